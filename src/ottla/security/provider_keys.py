"""The keys of an identity provider, read from its URL in a thread: when none are there, when they are old, and when a
token names one that is unknown."""

import asyncio
import logging
import time
import urllib.request
from typing import IO, Any, Final
from urllib.error import HTTPError

from ottla.config.sasl import TokenSettings
from ottla.errors import sentence
from ottla.security.bearer_tokens import Keys, need_jwt, read_keys

log = logging.getLogger(__name__)

LARGEST_ANSWER_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 5.0
LONGEST_READ_S: Final = 15.0
UNKNOWN_KEY_INTERVAL_S: Final = 10.0
"""So often at most are keys read for tokens that name unknown ones: anybody can send those."""
_CHUNK_BYTES: Final = 1 << 14


class ProviderKeys:
    """The keys of one listener's provider. On the loop's thread, but for the reading."""

    def __init__(self, settings: TokenSettings, loop: asyncio.AbstractEventLoop) -> None:
        need_jwt()
        self.settings: Final = settings
        self.known: Keys = {}
        self._loop = loop
        self._reading: asyncio.Future[Keys] | None = None
        self._read_at = self._not_before = 0.0
        self._failures = 0

    def are_wanted(self, key_id: str) -> bool:
        """Whether the keys should be read before a token that names this one is judged."""
        now = self._loop.time()
        if self._reading is not None:
            return True
        if now < self._not_before:
            return False
        is_old = not self.known or now - self._read_at >= self.settings.refresh_s
        is_unknown = bool(key_id) and key_id not in self.known
        return is_old or (is_unknown and now - self._read_at >= UNKNOWN_KEY_INTERVAL_S)

    async def read(self) -> None:
        """Read the keys, once for all that wait. A failure is logged, and leaves those that are known."""
        if self._reading is None:
            self._reading = self._loop.run_in_executor(None, _fetch, self.settings.jwks_url or "")
            self._reading.add_done_callback(self._take)
        await asyncio.wait([self._reading])

    def _take(self, reading: "asyncio.Future[Keys]") -> None:
        self._reading = None
        if reading.cancelled():
            return
        now = self._loop.time()
        problem = reading.exception()
        if problem is None:
            self.known = reading.result()
            self._read_at, self._failures = now, 0
            return
        pause_s = min(self.settings.retry_s * 2 ** min(self._failures, 30), self.settings.longest_retry_s)
        self._failures += 1
        self._not_before = now + pause_s
        why = sentence(problem) if isinstance(problem, Exception) else repr(problem)
        log.error("the keys at %s cannot be read: %s; logins by token fail without them", self.settings.jwks_url, why)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The keys are where the settings say, and nowhere else."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        raise HTTPError(req.full_url, code, "it redirects to another address", headers, fp)


def _fetch(url: str) -> Keys:
    """Read the keys, in a thread. Raises OSError, ValueError."""
    return read_keys(read_answer(url))


def read_answer(request: str | urllib.request.Request) -> bytes:
    """Read an answer of a provider, in a thread: it takes seconds at most. Follows no redirects.

    Raises OSError, of which HTTPError is one, and ValueError for an answer that is too large.
    """
    deadline = time.monotonic() + LONGEST_READ_S
    opener = urllib.request.build_opener(_NoRedirects)
    text = bytearray()
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        while chunk := answer.read1(_CHUNK_BYTES) if hasattr(answer, "read1") else answer.read(_CHUNK_BYTES):
            text += chunk
            if len(text) > LARGEST_ANSWER_BYTES:
                raise ValueError(f"the answer has more than {LARGEST_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer takes longer than {LONGEST_READ_S:.0f} s")
    return bytes(text)
