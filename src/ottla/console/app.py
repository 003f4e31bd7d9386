"""The pages of the console, as an ASGI application. Every page only reads, and has all that it shows in its address.

A page that is live has an element with `data-live`: the script asks its address as server-sent events, and replaces the
element whenever the server has something new. Viewers share what the cluster is asked for (`sharing.py`).
"""

import asyncio
import ipaddress
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import OffsetSpec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla import __version__
from ottla.client.errors import ClientError
from ottla.client.partition import Partition
from ottla.console.cluster import ClusterView, GroupPage
from ottla.console.expressions import ExpressionProblem, Test, compile_filter
from ottla.console.findings import findings
from ottla.console.records import MOST_RECORDS, Progress, Search, search
from ottla.console.values import human_bytes

HERE: Final = Path(__file__).parent
LIVE_S: Final = 2.0
SEARCHES: Final = 4
"""Searches of all viewers at a time; others wait."""
MOST_VIEWERS: Final = 200
LOCAL_NAMES: Final = frozenset(("localhost", ""))
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def application(view: ClusterView) -> Starlette:
    """The console of one cluster."""
    pages = _Pages(view)
    routes = [
        Route("/", pages.overview),
        Route("/topics", pages.topics),
        Route("/topics/{topic}", pages.topic),
        Route("/topics/{topic}/records", pages.records),
        Route("/topics/{topic}/records/search", pages.search),
        Route("/topics/{topic}/records/{partition:int}/{offset:int}", pages.record),
        Route("/groups", pages.groups),
        Route("/groups/{group:path}", pages.group),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    failures: Mapping[Any, Any] = {
        HTTPException: pages.failure,
        ClientError: pages.no_answer,
        KafkaException: pages.no_answer,
        TimeoutError: pages.no_answer,
    }
    app = Starlette(routes=routes, exception_handlers=dict(failures))
    app.add_middleware(Guard)
    return app


class Guard:
    """Answers reading alone, at local names alone, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        app = self._app
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if scope["method"] not in ("GET", "HEAD"):
            app = PlainTextResponse("The console only reads.\n", 405)
        elif not _is_local_name(host):
            app = PlainTextResponse("The console listens on this machine: open it as 127.0.0.1 or localhost.\n", 403)
        elif headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") != b"navigate":
            app = PlainTextResponse("Pages of other sites may lead here, and load nothing from here.\n", 403)
        await app(scope, receive, send_guarded)


class _Pages:
    """One method for each page."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._searches = asyncio.Semaphore(SEARCHES)
        self._viewers = 0
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "bytes": lambda size: "" if size is None else human_bytes(size),
            "number": lambda number: "" if number is None else f"{number:,}",
            "time": _time,
            "segment": lambda name: quote(name, safe=""),
        }
        self._templates.globals |= {"bootstrap": view.bootstrap, "version": __version__}

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(**values)

    async def _page(self, request: Request, template: str, fragment: Callable[[], Any], **values: Any) -> Response:
        """A page around a fragment; or the fragment again and again, for a viewer that asks for events."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            html = self._render(template, request=request, query=_query(request), **values, **await fragment())
            return HTMLResponse(html)
        if self._viewers >= MOST_VIEWERS:
            raise HTTPException(503, f"{MOST_VIEWERS} pages are being watched: close some of them")

        async def render() -> str:
            return self._render(
                f"parts/{template}", request=request, query=_query(request), **values, **await fragment()
            )

        return StreamingResponse(
            self._events(render), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _events(self, render: Callable[[], Any]) -> AsyncIterator[str]:
        shown = ""
        self._viewers += 1
        try:
            while True:
                try:
                    html = await render()
                except (ClientError, KafkaException, TimeoutError):
                    html = self._render("parts/no_answer.html")
                if html != shown:
                    shown = html
                    yield _event("part", html)
                else:
                    yield ": still the same\n\n"
                await asyncio.sleep(LIVE_S)
        finally:
            self._viewers -= 1

    # -- pages -------------------------------------------------------------------------------------------------------

    async def overview(self, request: Request) -> Response:
        """What is healthy, and what is not."""

        async def fragment() -> dict[str, Any]:
            cluster = await self._view.cluster()
            leaders: dict[int, int] = dict.fromkeys(cluster.brokers, 0)
            replicas: dict[int, int] = dict.fromkeys(cluster.brokers, 0)
            for state in cluster.partitions.values():
                if state.leader is not None:
                    leaders[state.leader] += 1
                for replica in state.replicas:
                    replicas[replica] = replicas.get(replica, 0) + 1
            topics = await self._view.topics()
            groups = await self._view.groups()
            return {
                "cluster": cluster,
                "findings": findings(cluster, {}),
                "leaders": leaders,
                "replicas": replicas,
                "topics": sum(not topic.is_internal for topic in topics),
                "partitions": len(cluster.partitions),
                "groups": len(groups),
            }

        return await self._page(request, "overview.html", fragment)

    async def topics(self, request: Request) -> Response:
        """The list of topics."""
        query = _query(request)
        internal = query.get("internal") == "1"

        async def fragment() -> dict[str, Any]:
            page = await self._view.topics_page(
                query.get("q", ""), query.get("state", ""), _number(query, "page"), internal=internal
            )
            return {"page": page, "pages": _pages(request, page.number, page.last)}

        return await self._page(request, "topics.html", fragment)

    async def topic(self, request: Request) -> Response:
        """A topic: partitions and settings."""
        name = request.path_params["topic"]

        async def fragment() -> dict[str, Any]:
            partitions = await self._view.partitions(name)
            if not partitions:
                raise HTTPException(404, f"There is no topic {name!r}.")
            return {
                "topic": name,
                "partitions": partitions,
                "settings": await self._view.settings(name),
                "records": sum((each.end or 0) - (each.first or 0) for each in partitions),
                "size_bytes": sum(each.size_bytes or 0 for each in partitions),
            }

        return await self._page(request, "topic.html", fragment)

    async def groups(self, request: Request) -> Response:
        """The list of groups."""
        query = _query(request)

        async def fragment() -> dict[str, Any]:
            page = await self._view.groups_page(query.get("q", ""), _number(query, "page"))
            return {"page": page, "pages": _pages(request, page.number, page.last)}

        return await self._page(request, "groups.html", fragment)

    async def group(self, request: Request) -> Response:
        """A group: lag, members, and why it rebalanced."""
        name = request.path_params["group"]

        async def fragment() -> dict[str, Any]:
            group: GroupPage | None = await self._view.group(name)
            if group is None:
                raise HTTPException(404, f"There is no group {name!r}.")
            return {"group": group, "lag": sum(each.lag or 0 for each in group.lags)}

        return await self._page(request, "group.html", fragment)

    async def records(self, request: Request) -> Response:
        """The form of a search; the script then asks `search` for the records."""
        name = request.path_params["topic"]
        partitions = await self._view.partitions(name)
        if not partitions:
            raise HTTPException(404, f"There is no topic {name!r}.")
        query = _query(request)
        problem = ""
        try:
            _test(query)
        except ExpressionProblem as found:
            problem = str(found)
        html = self._render(
            "records.html",
            request=request,
            query=query,
            topic=name,
            numbers=[each.number for each in partitions],
            problem=problem,
            address=f"/topics/{quote(name, safe='')}/records/search?{urlencode(query)}",
        )
        return HTMLResponse(html)

    async def search(self, request: Request) -> Response:
        """The records that a query finds, as events, with the progress of the search."""
        query = _query(request)
        wanted = await self._wanted(request.path_params["topic"], query)
        return _stream(self._found(wanted))

    async def record(self, request: Request) -> Response:
        """One record, whole."""
        topic, partition, offset = (request.path_params[name] for name in ("topic", "partition", "offset"))
        missing = HTTPException(404, f"There is no record at offset {offset} of {topic}-{partition}.")
        held = {each.number: each for each in await self._view.partitions(topic)}
        if partition not in held or not (held[partition].first or 0) <= offset < (held[partition].end or 0):
            raise missing
        wanted = Search(topic, {partition: (offset, offset + 1)}, newest=False, most=1, whole=True)
        records = []
        problem = ""
        async for progress in self._reports(wanted):
            records, problem = progress.records, progress.problem
        if not records:
            raise HTTPException(502, problem) if problem else missing
        html = self._render("record.html", request=request, query={}, topic=topic, record=records[0])
        return HTMLResponse(html)

    # -- searches ----------------------------------------------------------------------------------------------------

    async def _wanted(self, topic: str, query: Mapping[str, str]) -> Search:
        partitions = await self._view.partitions(topic)
        chosen = query.get("partition", "")
        held = [
            each
            for each in partitions
            if each.first is not None and each.end is not None and chosen in ("", str(each.number))
        ]
        ranges = {each.number: (each.first or 0, each.end or 0) for each in held}
        start = query.get("from", "newest")
        if start == "offset":
            at = _number(query, "offset")
            ranges = {number: (max(first, at), end) for number, (first, end) in ranges.items() if at < end}
        elif start == "time":
            at_ms = _milliseconds(query.get("time", ""))
            asked = [Partition(topic, number) for number in ranges]
            found = await self._view.offsets(asked, OffsetSpec.for_timestamp(at_ms))
            ranges = {
                number: (found[partition], end)
                for number, (_, end) in ranges.items()
                if 0 <= found.get(partition := Partition(topic, number), -1) < end
            }
        most = min(_number(query, "most", 100), MOST_RECORDS)
        try:
            test = _test(query)
        except ExpressionProblem as problem:
            raise HTTPException(400, str(problem)) from problem
        return Search(topic, ranges, start == "newest", max(most, 1), test)

    async def _found(self, wanted: Search) -> AsyncIterator[str]:
        async for progress in self._reports(wanted):
            yield _event("part", self._render("parts/found.html", topic=wanted.topic, progress=progress))
        yield _event("end", "")

    async def _reports(self, wanted: Search) -> AsyncIterator[Progress]:
        """The reports of a search in a thread, which ends when the viewer goes."""
        loop = asyncio.get_running_loop()
        reports: asyncio.Queue[Progress | Exception | None] = asyncio.Queue()
        stop = threading.Event()

        def run() -> None:
            try:
                for progress in search(self._view.client_properties, wanted, stop):
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

    # -- failures ----------------------------------------------------------------------------------------------------

    async def failure(self, request: Request, error: Exception) -> Response:
        """A page that is not there, or a request that makes no sense."""
        assert isinstance(error, HTTPException)
        html = self._render("failure.html", request=request, query=_query(request), reason=error.detail)
        return HTMLResponse(html, error.status_code)

    async def no_answer(self, request: Request, error: Exception) -> Response:
        """The cluster does not answer."""
        html = self._render("failure.html", request=request, query=_query(request), reason=str(error))
        return HTMLResponse(html, 502)


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _event(name: str, data: str) -> str:
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def _query(request: Request) -> dict[str, str]:
    return {key: value for key, value in request.query_params.items() if value}


def _number(query: Mapping[str, str], name: str, default: int = 0) -> int:
    try:
        return max(int(query.get(name, default)), 0)
    except ValueError:
        raise HTTPException(400, f"{name} is a number, not {query[name]!r}.") from None


def _pages(request: Request, number: int, last: int) -> dict[str, str | None]:
    """The addresses of the neighbouring pages of a list."""

    def address(page: int) -> str | None:
        return f"{request.url.path}?{urlencode({**_query(request), 'page': page})}" if 0 <= page <= last else None

    return {"before": address(number - 1), "after": address(number + 1)}


def _test(query: Mapping[str, str]) -> Test | None:
    text = query.get("filter", "")
    return compile_filter(text) if text else None


def _milliseconds(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, f"{text!r} is no time, as 2026-01-01T00:00:00Z is.") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
