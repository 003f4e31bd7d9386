"""What all pages share: templates, live parts, queries, failures.

A module of pages has a class derived from `Pages`, with its routes and its entries of the navigation, and is listed in
`ottla.console.app`. A page that is live has an element with `data-live`: the script asks its address as server-sent
events, and replaces the element whenever the server has something new.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import quote, urlencode

from confluent_kafka import KafkaException
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from ottla import __version__
from ottla.client.errors import ClientError
from ottla.console.access.access import Access
from ottla.console.access.masks import MASKED
from ottla.console.access.viewer import Viewer
from ottla.console.cluster import ClusterView
from ottla.console.metrics import Counts
from ottla.console.values import human_bytes, human_duration

HERE: Final = Path(__file__).parents[1]
LIVE_S: Final = 2.0
MOST_VIEWERS: Final = 200
NOTICE: Final = "notice"
"""In the address of a page that an action has led to: the key of a sentence about its outcome."""


class Digits(Convertor[int]):
    """A number in an address, as `{partition:digits}`. Python reads no number of thousands of digits."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("digits", Digits())


class Entry(NamedTuple):
    """An entry of the navigation. The keys `g` and `key` lead there."""

    address: str
    text: str
    key: str


class Shell:
    """What the pages of one console have in common: the access to them, the templates, what is counted."""

    def __init__(self, access: Access, counts: Counts | None = None) -> None:
        self.access = access
        self.counts = counts or Counts()
        self.templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            "bytes": lambda size: "" if size is None else human_bytes(size),
            "duration": human_duration,
            "number": lambda number: "" if number is None else f"{number:,}",
            "time": _time,
            "segment": lambda name: quote(name, safe=""),
            "quoting": lambda text, viewer: MASKED if text and viewer.masks else text,
        }
        self.templates.globals |= {
            "bootstrap": access.settings.bootstrap,
            "version": __version__,
            "navigation": (),
        }

    def render(self, template: str, **values: Any) -> str:
        """The text of a template; values are escaped."""
        return self.templates.get_template(template).render(**values)

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """A page that does not change by itself."""
        return HTMLResponse(self.render(template, **_common(request), **values), status)

    async def failure(self, request: Request, error: Exception) -> Response:
        """A page that is not there, or a request that makes no sense."""
        assert isinstance(error, HTTPException)
        return self.page(request, "failure.html", error.status_code, reason=error.detail)

    async def no_answer(self, request: Request, error: Exception) -> Response:
        """The cluster does not answer."""
        return self.page(request, "failure.html", 502, reason=str(error))


class Pages(ABC):
    """A group of pages; one method for each."""

    NAVIGATION: ClassVar[Sequence[Entry]] = ()

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    @abstractmethod
    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""

    def viewer(self, request: Request) -> Viewer:
        """The sender of the request."""
        return viewer_of(request)

    def view(self, request: Request) -> ClusterView:
        """The cluster as the sender of the request may see it."""
        return viewer_of(request).view

    def render(self, template: str, **values: Any) -> str:
        """The text of a template that needs no request."""
        return self._shell.render(template, **values)

    def page(self, request: Request, template: str, **values: Any) -> Response:
        """A page that does not change by itself."""
        return self._shell.page(request, template, **values)

    async def live_page(
        self, request: Request, template: str, fragment: Callable[[], Any], every_s: float = LIVE_S, **values: Any
    ) -> Response:
        """A page around a fragment; or the fragment again and again, for a viewer that asks for events.

        `fragment` returns the values of `parts/<template>`, which `template` includes.
        """
        if "text/event-stream" not in request.headers.get("accept", ""):
            return self.page(request, template, **values, **await fragment())
        if self._shell.counts.viewers >= MOST_VIEWERS:
            raise HTTPException(503, f"{MOST_VIEWERS} pages are being watched: close some of them")

        async def render() -> str:
            return self.render(f"parts/{template}", **_common(request), **values, **await fragment())

        return stream(self._events(render, every_s, viewer_of(request)))

    async def _events(self, render: Callable[[], Any], every_s: float, viewer: Viewer) -> AsyncIterator[str]:
        shown = ""
        self._shell.counts.viewers += 1
        try:
            while self._shell.access.is_on(viewer):
                try:
                    html = await render()
                except (ClientError, KafkaException, TimeoutError):
                    html = self.render("parts/no_answer.html")
                except HTTPException as gone:  # a topic or group that is deleted while its page is open
                    html = self.render("parts/gone.html", reason=gone.detail)
                if html != shown:
                    shown = html
                    yield event("part", html)
                else:
                    yield ": still the same\n\n"
                await asyncio.sleep(every_s)
        finally:
            self._shell.counts.viewers -= 1


def viewer_of(request: Request) -> Viewer:
    """The sender of the request; the guard lets no page see one of nobody, but the login."""
    viewer: Viewer | None = request.state.viewer
    assert viewer is not None
    return viewer


def stream(events: AsyncIterator[str]) -> Response:
    """An answer of server-sent events."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def event(name: str, data: str) -> str:
    """A server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def query_of(request: Request) -> dict[str, str]:
    """The query of an address, without what is empty."""
    return {key: value for key, value in request.query_params.items() if value and key != NOTICE}


def number_of(query: Mapping[str, str], name: str, default: int = 0) -> int:
    """A number of a query, 0 at least. Raises HTTPException."""
    try:
        return max(int(query.get(name, default)), 0)
    except ValueError:
        raise HTTPException(400, f"{name} is a number, not {query[name]!r}.") from None


def time_of(text: str) -> int:
    """Milliseconds since the Unix epoch of a time in ISO 8601; UTC without a zone. Raises HTTPException."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, f"{text!r} is no time, as 2026-01-01T00:00:00Z is.") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def neighbours(request: Request, number: int, last: int) -> dict[str, str | None]:
    """The addresses of the neighbouring pages of a list, for `parts/pages.html`."""

    def address(page: int) -> str | None:
        return f"{request.url.path}?{urlencode({**query_of(request), 'page': page})}" if 0 <= page <= last else None

    return {"before": address(number - 1), "after": address(number + 1)}


def _common(request: Request) -> dict[str, Any]:
    """What every page needs of the request."""
    viewer: Viewer | None = request.state.viewer
    key = request.query_params.get(NOTICE, "")
    notice = viewer.take_notice(key) if viewer is not None and key else None
    return {"request": request, "query": query_of(request), "viewer": viewer, "notice": notice}


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
