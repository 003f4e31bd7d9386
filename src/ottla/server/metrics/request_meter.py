"""Counts requests between the connections and the dispatcher: how many, how large, how long, and the slowest ones.

Local time is that until the handler returns; remote time, that from then on until the reply is there.
The time before, in the socket's buffer, is that of the event loop's delay; the time after, until the client has taken
the reply, is the client's.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from ottla.metrics.histogram import Durations
from ottla.protocol.api import ApiKey
from ottla.server.connection import Connection, FrameHandler
from ottla.server.observed_requests import CLIENT_ID_AT, MOST_NAME_BYTES, ObservedRequests, Watch, client_id_in
from ottla.server.replies import ReplySlot

SLOWEST: Final = 50
"""Requests that are remembered."""
REMEMBERED_S: Final = 3600.0
MOST_CLIENTS: Final = 1000
"""Clients whose requests are counted; for a new one, those that were silent for the longest time are given up."""
HEAD_BYTES: Final = CLIENT_ID_AT + 2 + MOST_NAME_BYTES
TOGETHER: Final = 128
"""Requests that are counted at a time, which takes some 300 microseconds."""
_KEY_AND_VERSION: Final = Struct(">HH")
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


_Noted = tuple[bytes, str, int, int, float, float, float, Connection | None]
"""A request whose reply is there: its first bytes, up to the client id; address; bytes of the request and the reply;
when it began, its handler returned, and the reply was there; and its connection, if it may be slow: a closed one is not
kept for the others."""


class RequestMeter(ObservedRequests):
    """Notes and counts requests. On the loop's thread.

    A request is noted in a few hundred nanoseconds, and counted together with many others: between two requests, the
    processor's caches have forgotten this code, so that it takes several times as long by itself as in a loop.
    """

    def __init__(self, handle: FrameHandler, monotonic: Callable[[], float], now_ms: Callable[[], int]) -> None:
        super().__init__(handle, monotonic, _Watch)
        self._now_ms = now_ms
        self.noted: list[_Noted] = []
        """Not counted yet."""
        self._by_api: dict[int, ApiCounts] = {}
        self._by_client: dict[tuple[str, str], ClientCounts] = {}
        self._known: dict[tuple[bytes, str], ClientCounts] = {}
        """The same by client id as it is sent."""
        self._slowest: list[SlowRequest] = []
        self.slow_since = 0.0
        """A request that took no longer is not among the slowest."""

    @property
    def by_api(self) -> dict[int, ApiCounts]:
        """What was counted, by API key."""
        self.count()
        return self._by_api

    @property
    def by_client(self) -> dict[tuple[str, str], ClientCounts]:
        """The same by client id and address."""
        self.count()
        return self._by_client

    def count(self) -> None:
        """Count what was noted."""
        noted, self.noted = self.noted, []
        spent: dict[bytes, list[tuple[float, float]]] = {}
        for head, host, request_bytes, reply_bytes, began, returned, ended, connection in noted:
            local_s = returned - began
            kind = head[:4]
            if kind not in spent:
                spent[kind] = []
            spent[kind].append((ended - began, local_s))
            client = self._client(head, host)
            client.requests += 1
            client.request_bytes += request_bytes
            client.reply_bytes += reply_bytes
            client.busy_s += local_s
            client.last_at = ended
            if connection is not None:
                self._note_slow(head, host, request_bytes, began, ended, local_s, connection)
            api = self._api(kind)
            if api is not None:
                api.bytes_[0] += request_bytes
                api.bytes_[1] += reply_bytes
        for kind, times in spent.items():
            api = self._api(kind)
            if api is not None:
                _, version = _KEY_AND_VERSION.unpack(kind)
                api.by_version[version] = api.by_version.get(version, 0) + len(times)
                api.total.add_all([total_s for total_s, _ in times])
                api.local.add_all([local_s for _, local_s in times])
                api.remote.add_all([total_s - local_s for total_s, local_s in times])

    def _api(self, kind: bytes) -> ApiCounts | None:
        """The counts of an API; None for a request to none, however it was answered."""
        key = kind[0] << 8 | kind[1]
        found = self._by_api.get(key)
        if found is None and key in ApiKey._value2member_map_:
            found = self._by_api[key] = ApiCounts(Durations(), Durations(), Durations(), {}, [0, 0])
        return found

    def slowest(self) -> list[SlowRequest]:
        """The slowest requests of the last hour, the slowest first."""
        self.count()
        self._forget_old()
        return list(self._slowest)

    def _client(self, head: bytes, address: str) -> ClientCounts:
        length = head[CLIENT_ID_AT] << 8 | head[CLIENT_ID_AT + 1]
        raw = head[CLIENT_ID_AT + 2 : CLIENT_ID_AT + 2 + length] if length <= MOST_NAME_BYTES else None
        known = self._known.get((raw, address)) if raw is not None else None
        if known is not None:
            return known
        key = client_id_in(head), address
        found = self._by_client.get(key)
        if found is None:
            if len(self._by_client) >= MOST_CLIENTS:  # many at once, so that an invented name costs little
                longest_silent = sorted(self._by_client, key=lambda each: self._by_client[each].last_at)
                for each in longest_silent[: MOST_CLIENTS // 10]:
                    del self._by_client[each]
                self._known.clear()
            found = self._by_client[key] = ClientCounts()
        if raw is not None:
            if len(self._known) >= MOST_CLIENTS:  # many that are no UTF-8 may read as one
                self._known.clear()
            self._known[raw, address] = found
        return found

    def _note_slow(
        self,
        head: bytes,
        host: str,
        request_bytes: int,
        began: float,
        ended: float,
        local_s: float,
        connection: Connection,
    ) -> None:
        key, version = _KEY_AND_VERSION.unpack_from(head)
        slow_s = local_s if key in HELD else ended - began
        if slow_s <= self.slow_since or key not in ApiKey._value2member_map_:
            return
        self._slowest.append(
            SlowRequest(
                slow_s,
                local_s,
                self._now_ms() - round((self.now() - ended) * 1000),  # it may have been noted long ago
                ApiKey(key).name,
                version,
                client_id_in(head),
                host,
                connection.principal,
                request_bytes,
            )
        )
        self._forget_old()
        if len(self._slowest) >= SLOWEST:
            self.slow_since = self._slowest[-1].duration_s

    def _forget_old(self) -> None:
        oldest = self._now_ms() - REMEMBERED_S * 1000
        kept = sorted((slow for slow in self._slowest if slow.at_ms >= oldest), reverse=True)
        self._slowest = kept[:SLOWEST]
        if len(self._slowest) < SLOWEST:
            self.slow_since = 0.0


class _Watch(Watch):
    """Notes a request for the meter."""

    __slots__ = ("_meter", "began", "connection", "head", "size")

    def __init__(self, meter: RequestMeter, frame: memoryview, connection: Connection) -> None:
        self._meter = meter
        self.connection = connection
        self.head = bytes(frame[:HEAD_BYTES])
        self.size = len(frame)
        self.returned = 0.0
        """When the handler has returned; the reply may be there before."""
        self.began = meter.now()

    def slot_filled(self, slot: ReplySlot) -> None:
        """Note the request, then let the connection send the reply."""
        meter, connection, began, pieces = self._meter, self.connection, self.began, slot.pieces
        ended = meter.now()
        noted = meter.noted
        noted.append(
            (
                self.head,
                connection.client_host,
                self.size,
                len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces)),
                began,
                self.returned or ended,
                ended,
                connection if ended - began > meter.slow_since else None,
            )
        )
        if len(noted) >= TOGETHER:
            meter.count()
        self._owner.slot_filled(slot)
