"""Counts requests between the connections and the dispatcher: how many, how large, how long, and the slowest ones.

    connection -> RequestMeter -> Dispatcher -> handler          local time: until the handler returns
    connection <- _Watch       <- ReplySlot.fill                 remote time: from then on until the reply is there

The time before, in the socket's buffer, is that of the event loop's delay; the time after, until the client has taken
the reply, is the client's.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.metrics.histogram import Durations
from ottla.protocol.api import ApiKey
from ottla.server.connection import Connection, FrameHandler
from ottla.server.replies import Owner, ReplySlot

SLOWEST: Final = 50
"""Requests that are remembered."""
REMEMBERED_S: Final = 3600.0
MOST_CLIENTS: Final = 1000
"""Clients whose requests are counted; for a new one, those that were silent for the longest time are given up."""
MOST_NAME_BYTES: Final = 100
"""What is kept of a client id, which the client chooses."""
CLIENT_ID_AT: Final = 8
"""API key, version and correlation id come before it in a request."""
HELD: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SHARE_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
    }
)
"""Requests that wait for others by design: of them, only the local time can be slow."""


class ApiCounts(NamedTuple):
    """What was counted of one API."""

    total: Durations
    local: Durations
    remote: Durations
    by_version: dict[int, int]
    bytes_: list[int]
    """Those of requests, and of replies."""


class ClientCounts:
    """What was counted of one client id at one address."""

    __slots__ = ("busy_s", "last_at", "reply_bytes", "request_bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.reply_bytes = 0
        self.busy_s = 0.0
        """The loop's time that its requests took until their handlers returned."""
        self.last_at = 0.0


class SlowRequest(NamedTuple):
    """One of the slowest requests of the last hour."""

    duration_s: float
    local_s: float
    at_ms: int
    api: str
    version: int
    client_id: str
    address: str
    principal: str
    request_bytes: int


class RequestMeter:
    """A frame handler that calls another one. On the loop's thread."""

    def __init__(self, handle: FrameHandler, monotonic: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._handle = handle
        self.now = monotonic
        """Seconds on a clock that never goes back."""
        self._now_ms = now_ms
        self.by_api: dict[int, ApiCounts] = {}
        self.by_client: dict[tuple[str, str], ClientCounts] = {}
        """By client id and address."""
        self._slowest: list[SlowRequest] = []
        self._slow_since = 0.0
        """A request that took no longer is not among the slowest."""

    def __call__(self, frame: memoryview, connection: Connection, slot: ReplySlot) -> bool | None:
        size = len(frame)
        if size < CLIENT_ID_AT + 2:
            return self._handle(frame, connection, slot)
        watch = _Watch(self, frame, connection)
        slot.observe(watch.between)
        gives_way = self._handle(frame, connection, slot)
        watch.handled(self.now())
        return gives_way

    def answered(self, watch: "_Watch", ended: float, reply_bytes: int) -> None:
        """Count a request whose reply is there."""
        api = self.by_api.get(watch.api_key)
        if api is None:
            if watch.api_key not in ApiKey._value2member_map_:
                return  # no request to an API, however it was answered
            api = self.by_api[watch.api_key] = ApiCounts(Durations(), Durations(), Durations(), {}, [0, 0])
        total_s = ended - watch.began
        local_s = (watch.returned or ended) - watch.began
        api.total.add(total_s)
        api.local.add(local_s)
        api.remote.add(total_s - local_s)
        version = watch.version
        api.by_version[version] = api.by_version.get(version, 0) + 1
        api.bytes_[0] += watch.size
        api.bytes_[1] += reply_bytes
        client = self._client(watch.client_id, watch.connection.client_host)
        client.requests += 1
        client.request_bytes += watch.size
        client.reply_bytes += reply_bytes
        client.busy_s += local_s
        client.last_at = ended
        slow_s = local_s if watch.api_key in HELD else total_s
        if slow_s > self._slow_since:
            self._note_slow(watch, slow_s, local_s)

    def slowest(self) -> list[SlowRequest]:
        """The slowest requests of the last hour, the slowest first."""
        self._forget_old()
        return list(self._slowest)

    def _client(self, client_id: str, address: str) -> ClientCounts:
        key = client_id, address
        found = self.by_client.get(key)
        if found is None:
            if len(self.by_client) >= MOST_CLIENTS:  # many at once, so that an invented name costs little
                longest_silent = sorted(self.by_client, key=lambda each: self.by_client[each].last_at)
                for each in longest_silent[: MOST_CLIENTS // 10]:
                    del self.by_client[each]
            found = self.by_client[key] = ClientCounts()
        return found

    def _note_slow(self, watch: "_Watch", duration_s: float, local_s: float) -> None:
        connection = watch.connection
        self._slowest.append(
            SlowRequest(
                duration_s,
                local_s,
                self._now_ms(),
                ApiKey(watch.api_key).name,
                watch.version,
                watch.client_id,
                connection.client_host,
                connection.principal,
                watch.size,
            )
        )
        self._forget_old()
        if len(self._slowest) >= SLOWEST:
            self._slow_since = self._slowest[-1].duration_s

    def _forget_old(self) -> None:
        oldest = self._now_ms() - REMEMBERED_S * 1000
        kept = sorted((slow for slow in self._slowest if slow.at_ms >= oldest), reverse=True)
        self._slowest = kept[:SLOWEST]
        if len(self._slowest) < SLOWEST:
            self._slow_since = 0.0


def client_id_in(frame: memoryview) -> str:
    """The client id of a request, or the beginning of a long one; empty if it has none."""
    length = frame[CLIENT_ID_AT] << 8 | frame[CLIENT_ID_AT + 1]
    length = 0 if length & 0x8000 else min(length, MOST_NAME_BYTES)  # -1: no client id
    return bytes(frame[CLIENT_ID_AT + 2 : CLIENT_ID_AT + 2 + length]).decode("utf-8", "replace")


class _Watch:
    """Stands between a slot and its connection until the reply is there."""

    __slots__ = ("_meter", "_owner", "api_key", "began", "client_id", "connection", "returned", "size", "version")

    def __init__(self, meter: RequestMeter, frame: memoryview, connection: Connection) -> None:
        self._meter = meter
        self.connection = connection
        self.api_key = frame[0] << 8 | frame[1]
        self.version = frame[2] << 8 | frame[3]
        self.size = len(frame)
        self.client_id = client_id_in(frame)
        self.returned = 0.0
        self.began = meter.now()

    def between(self, owner: Owner) -> "_Watch":
        """Take the place of the slot's owner."""
        self._owner = owner
        return self

    def handled(self, now: float) -> None:
        """The handler has returned; the reply may be there already."""
        self.returned = now

    def slot_filled(self, slot: ReplySlot) -> None:
        """Count the request, then let the connection send the reply."""
        reply_bytes = 0
        for piece in slot.pieces:
            reply_bytes += len(piece)
        self._meter.answered(self, self._meter.now(), reply_bytes)
        self._owner.slot_filled(slot)
