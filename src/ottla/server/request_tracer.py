"""Traces of slow requests: how long each waited in its connection, was worked on, and waited for what.

    |- queue -|- append ----|- sync --------------|- replication ----|- response -|      Produce
    |- queue -|- handler ---|- wait ---------------------------------|- response -|      others
              ^ dispatched  ^ the handler returns  ^ the end of the first group commit that began after that

The time of other requests is that of a few looks at the clock. Requests count as slow by the time until their reply is
there; those that wait for others by design, only by the time of their handlers. `replication` is what is left of a
Produce after the group commit: the time for which the in-sync replicas were waited for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ottla.protocol.api import ApiKey, api_name
from ottla.replication.group_commit import GroupCommit
from ottla.server.connection import Connection, FrameHandler
from ottla.server.metrics.request_meter import HELD
from ottla.server.observed_requests import ObservedRequests, Watch, client_id_in
from ottla.server.replies import ReplySlot
from ottla.tracing import Part, Tracer

MOST_PER_SECOND: Final = 50
"""Requests that are traced, so that a broker that is slow to all does not become slower by that."""
MOST_SENDING: Final = 100
"""Slow requests whose replies are followed until the client has taken them."""
LOOK_S: Final = 0.02
LONGEST_RESPONSE_S: Final = 30.0
SHORTEST_S: Final = 0.0001
"""Parts that took less time are left out."""
ROUNDS: Final = 2_000
"""Group commits that are remembered, of each log directory."""


class RequestTracer(ObservedRequests):
    """Exports requests that were slow. On the loop's thread."""

    def __init__(
        self,
        handle: FrameHandler,
        tracer: Tracer,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        slow_s: float,
    ) -> None:
        super().__init__(handle, monotonic, _Watch)
        self._tracer = tracer
        self._loop = loop
        self._now_ms = now_ms
        self._slow_s = slow_s
        self._rounds: list[deque[tuple[float, float]]] = []
        self._second = 0
        self._in_second = 0
        self._sending = 0

    def follow(self, flushers: Iterable[GroupCommit]) -> None:
        """Remember when their rounds begin and end."""
        for flusher in flushers:
            rounds: deque[tuple[float, float]] = deque(maxlen=ROUNDS)
            self._rounds.append(rounds)
            flusher.on_round = lambda began, ended, rounds=rounds: rounds.append((began, ended))

    def answered(self, watch: "_Watch", filled: float) -> None:
        """Trace a request whose reply is there, if it was slow."""
        returned = watch.returned or filled
        slow_s = returned - watch.began if watch.api_key in HELD else filled - watch.arrived
        if slow_s < self._slow_s or watch.api_key not in ApiKey._value2member_map_ or not self._may():
            return
        parts = [("queue", watch.arrived, watch.began), *self._parts(watch.api_key, watch.began, returned, filled)]
        if watch.connection.has_unsent and self._sending < MOST_SENDING:
            self._sending += 1
            self._loop.call_later(LOOK_S, self._look_at_response, watch, parts, filled)
        else:
            self._export(watch, parts, filled)

    def _may(self) -> bool:
        second = int(self.now())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= MOST_PER_SECOND

    def _parts(self, api_key: int, began: float, returned: float, filled: float) -> list[tuple[str, float, float]]:
        if api_key != ApiKey.PRODUCE:
            return [("handler", began, returned), ("wait", returned, filled)]
        synced = max((self._synced_at(rounds, returned, filled) for rounds in self._rounds), default=returned)
        return [("append", began, returned), ("sync", returned, synced), ("replication", synced, filled)]

    @staticmethod
    def _synced_at(rounds: deque[tuple[float, float]], appended: float, filled: float) -> float:
        """When what was appended by then was on the disk; the same time if that was not waited for."""
        synced = appended
        for began, ended in reversed(rounds):  # the request has just ended: its round is among the last
            if began < appended:
                break
            synced = ended if ended <= filled else appended
        return synced

    def _look_at_response(self, watch: "_Watch", parts: list[tuple[str, float, float]], filled: float) -> None:
        now = self.now()
        if watch.connection.has_unsent and not watch.connection.closed and now - filled < LONGEST_RESPONSE_S:
            self._loop.call_later(LOOK_S, self._look_at_response, watch, parts, filled)
            return
        self._sending -= 1
        self._export(watch, [*parts, ("response", filled, now)], now)

    def _export(self, watch: "_Watch", parts: list[tuple[str, float, float]], ended: float) -> None:
        offset_ns = self._now_ms() * 1_000_000 - int(self.now() * 1e9)

        def wall(at: float) -> int:
            return int(at * 1e9) + offset_ns

        self._tracer.export(
            api_name(watch.api_key),
            wall(watch.arrived),
            wall(ended),
            [Part(name, wall(began), wall(end)) for name, began, end in parts if end - began >= SHORTEST_S],
            {
                "messaging.system": "kafka",
                "messaging.client.id": watch.client_id,
                "kafka.api.version": watch.version,
                "client.address": watch.connection.client_host,
                "enduser.id": watch.connection.principal,
                "request.bytes": watch.size,
            },
        )


class _Watch(Watch):
    """Hands a request to the tracer, with its times."""

    __slots__ = ("_tracer", "api_key", "arrived", "began", "client_id", "connection", "size", "version")

    def __init__(self, tracer: RequestTracer, frame: memoryview, connection: Connection) -> None:
        self._tracer = tracer
        self.connection = connection
        self.api_key = frame[0] << 8 | frame[1]
        self.version = frame[2] << 8 | frame[3]
        self.size = len(frame)
        self.client_id = client_id_in(frame)
        self.returned = 0.0
        self.began = tracer.now()
        self.arrived = min(connection.read_at, self.began)

    def slot_filled(self, slot: ReplySlot) -> None:
        """Let the connection send the reply, then look how long it took."""
        filled = self._tracer.now()
        self._owner.slot_filled(slot)
        self._tracer.answered(self, filled)
