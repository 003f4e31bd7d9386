"""Records: the form of a search, what it finds, and each record whole."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from confluent_kafka.admin import OffsetSpec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.partition import Partition
from ottla.console.cluster import ClusterView
from ottla.console.expressions import ExpressionProblem, Test, compile_filter
from ottla.console.pages.base import Pages, Shell, event, number_of, query_of, stream, time_of
from ottla.console.records import MOST_RECORDS, Progress, Search, search

SEARCHES: Final = 4
"""Searches of all viewers at a time; others wait."""


class RecordPages(Pages):
    """Records of topics, to look at."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._searches = asyncio.Semaphore(SEARCHES)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/topics/{topic}/records", self.records),
            Route("/topics/{topic}/records/search", self.search),
            Route("/topics/{topic}/records/{partition:int}/{offset:int}", self.record),
        ]

    async def records(self, request: Request) -> Response:
        """The form of a search; the script then asks `search` for the records."""
        name = request.path_params["topic"]
        partitions = await self.view(request).partitions(name)
        if not partitions:
            raise HTTPException(404, f"There is no topic {name!r}.")
        query = query_of(request)
        problem = ""
        try:
            _test(query)
        except ExpressionProblem as found:
            problem = str(found)
        return self.page(
            request,
            "records.html",
            topic=name,
            numbers=[each.number for each in partitions],
            problem=problem,
            address=f"/topics/{quote(name, safe='')}/records/search?{urlencode(query)}",
        )

    async def search(self, request: Request) -> Response:
        """The records that a query finds, as events, with the progress of the search."""
        view = self.view(request)
        wanted = await _wanted(view, request.path_params["topic"], query_of(request))
        return stream(self._found(view, wanted._replace(masks=self.viewer(request).masks)))

    async def record(self, request: Request) -> Response:
        """One record, whole."""
        view = self.view(request)
        topic, partition, offset = (request.path_params[name] for name in ("topic", "partition", "offset"))
        missing = HTTPException(404, f"There is no record at offset {offset} of {topic}-{partition}.")
        held = {each.number: each for each in await view.partitions(topic)}
        if partition not in held or not (held[partition].first or 0) <= offset < (held[partition].end or 0):
            raise missing
        wanted = Search(topic, {partition: (offset, offset + 1)}, newest=False, most=1, whole=True)
        wanted = wanted._replace(masks=self.viewer(request).masks)
        records = []
        problem = ""
        async for progress in self._reports(view, wanted):
            records, problem = progress.records, progress.problem
        if not records:
            raise HTTPException(502, problem) if problem else missing
        return self.page(request, "record.html", topic=topic, record=records[0])

    async def _found(self, view: ClusterView, wanted: Search) -> AsyncIterator[str]:
        async for progress in self._reports(view, wanted):
            yield event("part", self.render("parts/found.html", topic=wanted.topic, progress=progress))
        yield event("end", "")

    async def _reports(self, view: ClusterView, wanted: Search) -> AsyncIterator[Progress]:
        """The reports of a search in a thread, which ends when the viewer goes."""
        loop = asyncio.get_running_loop()
        reports: asyncio.Queue[Progress | Exception | None] = asyncio.Queue()
        stop = threading.Event()

        def run() -> None:
            try:
                for progress in search(view.client_properties, wanted, stop):
                    loop.call_soon_threadsafe(reports.put_nowait, progress)
            except Exception as error:
                loop.call_soon_threadsafe(reports.put_nowait, error)
            finally:
                loop.call_soon_threadsafe(reports.put_nowait, None)

        async with self._searches:
            thread = loop.run_in_executor(None, run)
            try:
                while (report := await reports.get()) is not None:
                    if isinstance(report, Exception):
                        raise report
                    yield report
            finally:
                stop.set()
                await asyncio.shield(thread)


async def _wanted(view: ClusterView, topic: str, query: Mapping[str, str]) -> Search:
    partitions = await view.partitions(topic)
    chosen = query.get("partition", "")
    held = [
        each
        for each in partitions
        if each.first is not None and each.end is not None and chosen in ("", str(each.number))
    ]
    ranges = {each.number: (each.first or 0, each.end or 0) for each in held}
    start = query.get("from", "newest")
    if start == "offset":
        at = number_of(query, "offset")
        ranges = {number: (max(first, at), end) for number, (first, end) in ranges.items() if at < end}
    elif start == "time":
        at_ms = time_of(query.get("time", ""))
        asked = [Partition(topic, number) for number in ranges]
        found = await view.offsets(asked, OffsetSpec.for_timestamp(at_ms))
        ranges = {
            number: (found[partition], end)
            for number, (_, end) in ranges.items()
            if 0 <= found.get(partition := Partition(topic, number), -1) < end
        }
    most = min(number_of(query, "most", 100), MOST_RECORDS)
    try:
        test = _test(query)
    except ExpressionProblem as problem:
        raise HTTPException(400, str(problem)) from problem
    return Search(topic, ranges, start == "newest", max(most, 1), test)


def _test(query: Mapping[str, str]) -> Test | None:
    text = query.get("filter", "")
    return compile_filter(text) if text else None
