"""Forms that write records: a new one, or one that is there once more."""

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.errors import ClientError
from ottla.console.access.audit import Change
from ottla.console.access.roles import Role
from ottla.console.cluster import PartitionRow
from ottla.console.pages.actions import ActionPages, Form
from ottla.console.pages.base import Shell
from ottla.console.producing import (
    FORMATS,
    Contents,
    ContentsProblem,
    Written,
    contents_of,
    read_again,
    write,
)
from ottla.console.scanning import Trouble

LARGEST_FORM_BYTES: Final = 4 << 20
AT_A_TIME: Final = 2
"""Records that are being written; each may be in memory more than once."""


class ProducePages(ActionPages):
    """Records of topics, to write."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._turns = asyncio.Semaphore(AT_A_TIME)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the forms."""
        path = "/topics/{topic}/produce"
        place = "/topics/{topic}/records/{partition:digits}/{offset:digits}/again"
        return [
            Route(path, self.form, methods=["GET"]),
            self.action(path, self.produce, Role.EDITOR, LARGEST_FORM_BYTES),
            self.action(place, self.again, Role.EDITOR),
        ]

    async def form(self, request: Request) -> Response:
        """The form of a new record."""
        self.needs(request, Role.EDITOR)
        topic = request.path_params["topic"]
        partitions = len(await self._held(request))
        return self.page(request, "produce.html", topic=topic, partitions=partitions, formats=FORMATS)

    async def produce(self, request: Request, form: Form) -> Response:
        """Write the record of a form."""
        topic = request.path_params["topic"]
        try:
            contents = contents_of(form, len(await self._held(request)))
        except ContentsProblem as problem:
            raise HTTPException(400, f"Nothing was written: {problem}.") from problem
        return await self._write(request, topic, contents, (("bytes", contents.size),))

    async def again(self, request: Request, form: Form) -> Response:
        """Write a record that is there once more: key, value, headers and partition are the same."""
        topic, partition, offset = (request.path_params[name] for name in ("topic", "partition", "offset"))
        missing = HTTPException(404, f"There is no record at offset {offset} of {topic}-{partition}.")
        held = {each.number: each for each in await self._held(request)}
        if partition not in held or not (held[partition].first or 0) <= offset < (held[partition].end or 0):
            raise missing
        properties = self.view(request).client_properties
        try:
            async with self._turns:
                contents = await asyncio.to_thread(read_again, properties, topic, partition, offset)
        except Trouble as problem:
            raise HTTPException(502, f"Nothing was written, as the record cannot be read: {problem}.") from problem
        if contents is None:
            raise missing
        source = (("partition", partition), ("offset", offset), ("bytes", contents.size))
        return await self._write(request, topic, contents, source)

    async def _write(
        self, request: Request, topic: str, contents: Contents, detail: tuple[tuple[str, str | int], ...]
    ) -> Response:
        properties = self.view(request).client_properties

        async def run() -> Written:
            try:
                async with self._turns:
                    return await asyncio.to_thread(write, properties, topic, contents)
            except Trouble as problem:
                raise ClientError(str(problem)) from problem

        return await self.change(
            request,
            Change("PRODUCE", "TOPIC", topic, detail),
            run,
            lambda written: f"The record was written to partition {written.partition}, at offset {written.offset}.",
            lambda written: f"/topics/{quote(topic, safe='')}/records/{written.partition}/{written.offset}",
        )

    async def _held(self, request: Request) -> list[PartitionRow]:
        """The topic's partitions as they are now. Raises HTTPException if there are none."""
        topic, view = request.path_params["topic"], self.view(request)
        view.forget()
        found = await view.partitions(topic)
        if not found:
            raise HTTPException(404, f"There is no topic {topic!r}.")
        return found
