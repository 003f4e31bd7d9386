"""Requests that another worker has to carry out, passed on to it.

As in Kafka, they carry the `Authorization` of their user, and the other worker judges it. Workers send each other no
requests of their own, so that the signatures of KIP-507 have nothing to sign here: what one worker has another do is a
record in a topic.
"""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import IO, Any, Final

_FORWARD_S: Final = 90.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A worker redirects nothing; another server that does must not get a password."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


class Forwarding:
    """How workers reach each other: all of a group over HTTPS, or none."""

    def __init__(self, scheme: str, context: Callable[[], ssl.SSLContext] | None) -> None:
        """context: gives the certificates of now, for https."""
        self._scheme, self._context = scheme, context

    def request(
        self, worker: str, method: str, target: str, body: bytes, authorization: str | None
    ) -> Callable[[], tuple[int, bytes]]:
        """What sends a request to `host:port`; returns status and body. It raises OSError, HTTPException."""
        headers = {"Content-Type": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        url = f"{self._scheme}://{worker}{target}"
        passed = urllib.request.Request(url, data=body or None, method=method, headers=headers)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirects()]
        if self._context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._context()))
        opener = urllib.request.build_opener(*handlers)

        def send() -> tuple[int, bytes]:
            try:
                with opener.open(passed, timeout=_FORWARD_S) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, refused.read()

        return send
