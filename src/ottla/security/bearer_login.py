"""Tokens with which this broker logs in to others, from a file or from an identity provider.

A token is used until four fifths of its life are over, as Kafka does by default. Source: RFC 6749 section 4.4 (client
credentials), KIP-768.
"""

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import IO, Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode

from ottla.config.logins import TokenLoginSettings

LARGEST_ANSWER_BYTES: Final = 1 << 16
TIMEOUT_S: Final = 10.0
USED_SHARE: Final = 0.8
_PARTS: Final = 3


class BearerTokens:
    """The newest token of a source; in any threads."""

    def __init__(self, settings: TokenLoginSettings, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since the epoch."""
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._token = ""
        self._use_until = 0.0

    def current(self) -> str:
        """The token to log in with; read or asked for, unless the one before is young enough.

        Raises ConnectionError, which names the source and quotes no secret.
        """
        with self._lock:
            if self._now() >= self._use_until:
                try:
                    self._take(_fetch(self._settings))
                except (OSError, ValueError) as problem:
                    raise ConnectionError(f"no token comes from {self._settings.url}: {problem}") from problem
            return self._token

    def _take(self, token: str) -> None:
        now, expires = self._now(), expiry(token)
        if expires <= now:
            raise ValueError("the token has expired")
        self._token, self._use_until = token, now + USED_SHARE * (expires - now)


class BearerLogin:
    """A client's side of one authentication by token (RFC 7628); after `prepare`, nothing waits."""

    name: Final = "OAUTHBEARER"

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens
        self._first = b""

    def prepare(self) -> None:
        """Have a token, in a thread. Raises ConnectionError."""
        self._first = f"n,,\x01auth=Bearer {self._tokens.current()}\x01\x01".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The token at first; then nothing, but the acknowledgement of an error, which the broker answers."""
        if challenge is None:
            return self._first
        return b"\x01" if challenge else None


def expiry(token: str) -> float:
    """When a token expires, in seconds since the epoch. Raises ValueError, without quoting it."""
    parts = token.split(".")
    if len(parts) != _PARTS or not token.isascii() or not token.isprintable():
        raise ValueError("it is no JSON Web Token")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError):
        raise ValueError("it is no JSON Web Token with an expiry") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The secret goes where the settings say, and nowhere else."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        raise HTTPError(req.full_url, code, "it redirects to another address", headers, fp)


def _fetch(settings: TokenLoginSettings) -> str:
    """It takes seconds at most. Raises OSError, ValueError."""
    request = urllib.request.Request(settings.url)
    if settings.client_id:
        pair = base64.b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
        form = {"grant_type": "client_credentials"} | ({} if settings.scope is None else {"scope": settings.scope})
        request.data = urlencode(form).encode()
        request.add_header("Authorization", f"Basic {pair}")
        request.add_header("Accept", "application/json")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            content = answer.read(LARGEST_ANSWER_BYTES + 1)
    except HTTPError as refused:
        refused.close()
        raise
    if len(content) > LARGEST_ANSWER_BYTES:
        raise ValueError(f"the answer has more than {LARGEST_ANSWER_BYTES} bytes")
    if not settings.client_id:
        return str(content.decode().strip())
    try:
        return str(json.loads(content)["access_token"])
    except (ValueError, TypeError, KeyError):
        raise ValueError("the answer has no access_token") from None
