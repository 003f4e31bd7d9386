"""PURE. Requests on their way to other replicas: one at a time to each, and a backoff after a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.protocol.schema import Message
from ottla.quorum.effects import Destination, Send

MAX_BACKOFF_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Outbound:
    """A request on its way, and the log's end when it was sent."""

    to: Destination
    request: Message
    log_end: int


class Links:
    """Which replicas may be sent a request, and which requests wait for an answer.

    The backoff doubles with each failure in a row, up to MAX_BACKOFF_MS.
    """

    __slots__ = ("_busy", "_failures", "_last_id", "_pending", "_retry_at", "_retry_backoff_ms", "_timeout_ms")

    def __init__(self, timeout_ms: int, retry_backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._last_id = 0
        self._pending: dict[int, Outbound] = {}
        self._busy: dict[Destination, int] = {}
        self._retry_at: dict[Destination, int] = {}
        self._failures: dict[Destination, int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for an answer."""
        return not self._pending

    def is_ready(self, to: Destination, now_ms: int) -> bool:
        """Whether `to` may be sent a request now."""
        return to not in self._busy and self._retry_at.get(to, now_ms) <= now_ms

    def retry_at(self, to: Destination) -> int | None:
        """When `to` may be sent a request again after a failure; None if it has not failed, or waits for an answer."""
        return None if to in self._busy else self._retry_at.get(to)

    def failures(self, to: Destination) -> int:
        """How many requests to `to` have failed in a row."""
        return self._failures.get(to, 0)

    def send(self, to: Destination, request: Message, log_end: int) -> Send:
        """The effect that sends `request`; `to` is busy until it ends."""
        self._last_id += 1
        self._pending[self._last_id] = Outbound(to, request, log_end)
        self._busy[to] = self._last_id
        return Send(self._last_id, to, request, self._timeout_ms)

    def take(self, send_id: int) -> Outbound | None:
        """The request that has ended; None if nobody waits for it any longer."""
        outbound = self._pending.pop(send_id, None)
        if outbound is not None and self._busy.get(outbound.to) == send_id:
            del self._busy[outbound.to]
        return outbound

    def succeeded(self, to: Destination) -> None:
        """A request to `to` was of use: it may be sent the next one at once."""
        self._failures.pop(to, None)
        self._retry_at.pop(to, None)

    def failed(self, to: Destination, now_ms: int) -> None:
        """A request to `to` was of no use: the next one waits."""
        failures = self._failures[to] = self._failures.get(to, 0) + 1
        backoff_ms = min(self._retry_backoff_ms << min(failures - 1, 16), MAX_BACKOFF_MS)
        self._retry_at[to] = now_ms + max(backoff_ms, 1)

    def reset(self) -> None:
        """Forget all requests and failures: the replica's role has changed, and late answers are ignored."""
        self._pending.clear()
        self._busy.clear()
        self._retry_at.clear()
        self._failures.clear()
