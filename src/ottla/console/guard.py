"""What every request has to pass before a page sees it, and the headers that every answer carries."""

import asyncio
from typing import Final
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.access.access import Access
from ottla.console.access.audit import AuditProblem, Sender
from ottla.console.access.openid_logins import BEGIN, CALLBACK
from ottla.console.access.origins import is_known_host, is_own_form, loads_from_elsewhere
from ottla.console.metrics import Counts

LOGIN: Final = "/login"
BEFORE_LOGIN: Final = (LOGIN, BEGIN, CALLBACK)
"""Pages of users without a session."""
STATIC: Final = "/static/"
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with less, browsers would send no origin with the console's own forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
EVENTS: Final = b"text/event-stream; charset=utf-8"
NOT_KEPT: Final = (b"cache-control", b"no-store")
"""Pages of users that have logged in: a browser shows them no longer after the logout."""


class Guard:
    """Answers at known names alone, takes forms of the console's own pages alone, and knows the viewer."""

    def __init__(self, app: ASGIApp, access: Access, counts: Counts | None = None) -> None:
        self._app = app
        self._access = access
        self._counts = counts or Counts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        more: tuple[tuple[bytes, bytes], ...] = HEADERS
        if self._access.settings.asks_login and not scope["path"].startswith(STATIC):
            more = (*HEADERS, NOT_KEPT)

        streams, task, are_events = self._access.streams, asyncio.current_task(), False
        assert task is not None

        async def send_guarded(message: Message) -> None:
            nonlocal are_events
            if message["type"] == "http.response.start":
                are_events = (b"content-type", EVENTS) in message.get("headers", ())
                self._counts.answered(message["status"])
                replaced = {name for name, _ in more}
                message["headers"] = [*(each for each in message.get("headers", ()) if each[0] not in replaced), *more]
                streams[task] = scope.get("state", {}).get("viewer")
            elif not message.get("more_body"):
                streams.pop(task, None)
            await send(message)

        answer = await self._refusal(scope, Headers(scope=scope))
        try:
            await (answer or self._app)(scope, receive, send_guarded)
        except asyncio.CancelledError:
            if task not in streams:
                raise  # the session and the console go on
            if are_events:  # anything else is broken off, and not taken for whole
                await send({"type": "http.response.body", "body": b""})
        finally:
            streams.pop(task, None)

    async def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        """The answer instead of the page's; None: the page is asked, with the viewer as `request.state.viewer`."""
        settings = self._access.settings
        if not is_known_host(headers.get("host", ""), settings.names, is_local=settings.is_loopback):
            return PlainTextResponse(
                "The console is not known by this name: open it as 127.0.0.1 or localhost, or give --public-url.\n", 403
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("The console takes GET and POST.\n", 405)
        if loads_from_elsewhere(headers):
            return PlainTextResponse("Pages of other sites may lead here, and load nothing from here.\n", 403)
        viewer = scope.setdefault("state", {})["viewer"] = self._access.viewer(headers)
        if scope["method"] == "POST" and not is_own_form(headers, settings.scheme):
            sender = Sender(None if viewer is None else viewer.principal, scope["client"][0] if scope["client"] else "")
            try:
                await settings.trail.refused(sender, f"POST {scope['path']}", "not sent by a page of the console")
            except AuditProblem as problem:
                return PlainTextResponse(f"{problem}\n", 503)
            return PlainTextResponse("The console takes forms of its own pages alone.\n", 403)
        if viewer is None and scope["path"] not in BEFORE_LOGIN and not scope["path"].startswith(STATIC):
            return _ask_login(scope, headers)
        return None


def _ask_login(scope: Scope, headers: Headers) -> ASGIApp:
    if scope["method"] == "POST" or "text/event-stream" in headers.get("accept", ""):
        return PlainTextResponse("Log in again: the session is over.\n", 401)
    query = scope["query_string"].decode("latin-1")
    address = quote(scope["path"]) + (f"?{query}" if query else "")
    return RedirectResponse(f"{LOGIN}?{urlencode({'next': address})}" if address != "/" else LOGIN, 303)
