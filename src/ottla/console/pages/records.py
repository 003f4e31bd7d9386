"""Records: the form of a search, what it finds, what comes, files of it, and each record whole."""

import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Final
from urllib.parse import quote, urlencode

from confluent_kafka import KafkaException
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ottla.client.errors import ClientError
from ottla.client.partition import Partition
from ottla.console.access.viewer import Viewer
from ottla.console.cluster import ClusterView, PartitionRow
from ottla.console.collecting import Found
from ottla.console.downloads import download
from ottla.console.exporting import FORMATS, NoParquet
from ottla.console.lookups import PARTITIONERS, PARTS
from ottla.console.pages.base import Pages, Shell, event, query_of, stream
from ottla.console.pages.searches import Asked, asked, problem_of
from ottla.console.records import Progress, Search, search
from ottla.console.retention import Place, Stay, stay
from ottla.console.scanning import Trouble
from ottla.console.sight import Sight
from ottla.console.tailing import Tail, tail
from ottla.console.threads import Busy, Threads

SEARCHES: Final = 4
"""Searches of all viewers at a time; others wait."""
EXPORTS: Final = 2
TAILS: Final = 10
"""Pages that follow a topic live."""
STARTS: Final = (
    ("newest", "newest"),
    ("oldest", "oldest"),
    ("offset", "offset"),
    ("time", "time"),
    ("latest", "latest per key"),
    ("live", "live"),
)


class RecordPages(Pages):
    """Records of topics, to look at."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._searches = Threads(SEARCHES, "search", shell.counts)
        self._exports = Threads(EXPORTS, "export", shell.counts)
        self._tails = Threads(TAILS, "tail", shell.counts)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/topics/{topic}/records", self.records),
            Route("/topics/{topic}/records/search", self.search),
            Route("/topics/{topic}/records/live", self.live),
            Route("/topics/{topic}/records/export/{format}", self.export),
            Route("/topics/{topic}/records/{partition:digits}/{offset:digits}", self.record),
        ]

    def sight(self, request: Request) -> Sight:
        """How the sender of the request sees records."""
        return Sight(self._shell.access.settings.decode, self.viewer(request).masks)

    async def records(self, request: Request) -> Response:
        """The form of a search; the script then asks `search` or `live` for the records."""
        name = request.path_params["topic"]
        partitions = await self.view(request).partitions(name)
        if not partitions:
            raise HTTPException(404, f"There is no topic {name!r}.")
        query = query_of(request)
        is_live = query.get("from") == "live"
        return self.page(
            request,
            "records.html",
            topic=name,
            numbers=[each.number for each in partitions],
            problem=problem_of(name, query),
            starts=STARTS,
            looks=PARTS,
            partitioners=PARTITIONERS,
            is_live=is_live,
            address=f"{_address(name)}/{'live' if is_live else 'search'}?{urlencode(query)}",
        )

    async def search(self, request: Request) -> Response:
        """The records that a query finds, as events, with the progress of the search."""
        wanted = await self._asked(request)
        return stream(self._found(request, wanted))

    async def live(self, request: Request) -> Response:
        """Records as they come, as events."""
        wanted = await self._asked(request)
        return stream(self._followed(request, wanted.search))

    async def export(self, request: Request) -> Response:
        """A file of what a query finds; with `all=1`, of everything that it would look at."""
        kind = FORMATS.get(request.path_params["format"])
        if kind is None:
            raise HTTPException(404, f"There is no format {request.path_params['format']!r}: {', '.join(FORMATS)}.")
        wanted = (await self._asked(request)).search
        whole = query_of(request).get("all") == "1"
        properties = self.view(request).client_properties

        def pieces(stop: threading.Event) -> Iterator[bytes]:
            return download(properties, wanted, kind.kind, stop, whole=whole)

        written = self._exports.items(pieces, waits=False)
        try:
            first = await anext(written, b"")
        except Busy:
            raise HTTPException(503, f"{EXPORTS} exports are running: wait until one of them ends.") from None
        except NoParquet as problem:
            raise HTTPException(501, f"{problem}.") from None
        except Trouble as problem:
            raise HTTPException(502, f"The records cannot be read: {problem}.") from None
        name = f"{wanted.topic}.{kind.suffix}"
        return StreamingResponse(
            self._piece_by_piece(first, written, self.viewer(request)),
            media_type=kind.media_type,
            headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", "Cache-Control": "no-store"},
        )

    async def _piece_by_piece(
        self, first: bytes, rest: AsyncGenerator[bytes, None], viewer: Viewer
    ) -> AsyncIterator[bytes]:
        """A download that ends early is broken off, so that browsers say that it failed."""
        async with aclosing(rest):
            yield first
            async for piece in rest:
                if not self._shell.access.is_on(viewer):
                    raise Trouble("the session has ended")
                yield piece

    async def record(self, request: Request) -> Response:
        """One record, whole."""
        view = self.view(request)
        topic, partition, offset = (request.path_params[name] for name in ("topic", "partition", "offset"))
        missing = HTTPException(404, f"There is no record at offset {offset} of {topic}-{partition}.")
        held = {each.number: each for each in await view.partitions(topic)}
        if partition not in held or not (held[partition].first or 0) <= offset < (held[partition].end or 0):
            raise missing
        wanted = Search(topic, {partition: (offset, offset + 1)}, "forward", 1, whole=True, sight=self.sight(request))
        found = [progress async for progress in self._reports(request, wanted)][-1]
        if not found.records:
            raise HTTPException(502, found.problem) if found.problem else missing
        record = found.records[0]
        shown = record.key.kind == "text" and not record.key.is_cut and not wanted.sight.masks.hides("key")
        return self.page(
            request,
            "record.html",
            topic=topic,
            record=record,
            key_text=record.key.text if shown else None,
            stay=await self._stay(view, topic, held[partition], record),
        )

    async def _stay(self, view: ClusterView, topic: str, held: PartitionRow, record: Found) -> Stay | None:
        """Why a record is still there; None where its topic's settings cannot be seen."""
        try:
            settings = {each.name: each.value for each in await view.settings(topic)}
            newest_ms = await view.newest_ms(Partition(topic, held.number))
        except (ClientError, KafkaException, TimeoutError):
            return None
        place = Place(
            record.offset,
            record.timestamp,
            held.first or 0,
            held.end or 0,
            held.size_bytes,
            newest_ms,
            has_key=record.key.kind != "null",
            is_tombstone=record.value.kind == "null",
        )
        return stay(settings, place, time.time_ns() // 1_000_000)

    async def _asked(self, request: Request) -> Asked:
        return await asked(self.view(request), request.path_params["topic"], query_of(request), self.sight(request))

    async def _found(self, request: Request, wanted: Asked) -> AsyncIterator[str]:
        viewer = self.viewer(request)
        async with aclosing(self._reports(request, wanted.search)) as reports:
            async for progress in reports:
                if not self._shell.access.is_on(viewer):
                    break
                yield event("part", self._table(request, wanted, progress))
        yield event("end", "")

    def _table(self, request: Request, wanted: Asked, progress: Progress) -> str:
        query = urlencode({name: text for name, text in query_of(request).items() if name != "all"})
        address = _address(wanted.search.topic)
        return self.render(
            "parts/found.html",
            topic=wanted.search.topic,
            progress=progress,
            columns=[name for name, _ in wanted.search.columns],
            note=wanted.note,
            everywhere=wanted.everywhere and f"{address}?{wanted.everywhere}",
            pinned=wanted.pinned and f"{address}?{wanted.pinned}",
            exports=[(kind, f"{address}/export/{kind}?{wanted.pinned or query}") for kind in FORMATS],
            is_latest=wanted.search.order == "latest",
        )

    async def _followed(self, request: Request, wanted: Search) -> AsyncIterator[str]:
        properties, viewer = self.view(request).client_properties, self.viewer(request)

        def come(stop: threading.Event) -> Iterator[Tail | None]:
            return tail(properties, wanted, stop)

        columns = [name for name, _ in wanted.columns]
        try:
            async with aclosing(self._tails.items(come, waits=False)) as reports:
                async for found in reports:
                    if not self._shell.access.is_on(viewer):
                        break
                    if found is None:
                        yield ": nothing new\n\n"
                    else:
                        yield event(
                            "part", self.render("parts/live.html", topic=wanted.topic, tail=found, columns=columns)
                        )
        except Busy:
            reason = f"{TAILS} pages follow topics live: close one of them, and load this page again."
            yield event("part", self.render("parts/refused.html", reason=reason))
        yield event("end", "")

    def _reports(self, request: Request, wanted: Search) -> AsyncGenerator[Progress, None]:
        properties = self.view(request).client_properties
        return self._searches.items(lambda stop: search(properties, wanted, stop))


def _address(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}/records"
