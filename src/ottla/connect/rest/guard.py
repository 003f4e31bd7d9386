"""Keeps web pages from reaching a worker through the browser of a user who can.

A browser sends certain requests to any address without asking it (bodies of `text/plain`, POST without a body), and a
page may have its own name resolve to 127.0.0.1 (DNS rebinding). Both carry marks that scripts and consoles do not.
"""

from collections.abc import Callable, Collection, Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.local_names import is_local_or_address


class Refusal(Exception):
    """A request is refused; `status` and `headers` are those of the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


Refuse = Callable[[Refusal], ASGIApp]
"""Makes the answer."""


def check(headers: Headers, *, origins: Collection[str], is_local: bool) -> None:
    """Raise `Refusal` for a request that a foreign page may have caused, or whose body is not JSON.

    origins: pages that may call the worker (`access.control.allow.origin`); `*`: all of them.
    is_local: the worker listens on a loopback address, where only a local name can be meant.
    """
    origin = headers.get("origin")
    if origin is not None and "*" not in origins and origin not in origins:
        raise Refusal(
            403, f"A page of {origin} may not use this worker; access.control.allow.origin names the pages that may"
        )
    if is_local and "*" not in origins and not is_local_or_address(headers.get("host", "")):
        raise Refusal(
            403,
            f"This worker is not at {headers['host']}: it listens on a loopback address, and answers to localhost "
            "and to IP addresses alone",
        )
    kind = headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json" and _has_body(headers):
        raise Refusal(415, f"HTTP 415 Unsupported Media Type: a body is application/json, not {kind}")


def guarded(app: ASGIApp, refuse: Refuse, *, origins: Collection[str], is_local: bool) -> ASGIApp:
    """`app` behind `check`."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        answer = app
        if scope["type"] == "http":
            try:
                check(Headers(scope=scope), origins=origins, is_local=is_local)
            except Refusal as refusal:
                answer = refuse(refusal)
        await answer(scope, receive, send)

    return checked


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
