"""Metrics that clients send (KIP-714): subscriptions, accepted pushes, and the newest push of each client.

    GetTelemetrySubscriptions -> which metrics, how often (of the subscriptions that match the client)
    PushTelemetry             -> kept as it came, until the next push of that client

Nothing of a push is decoded here: `ottla telemetry show` does that (ADR 28), and `client_metrics.py` where the broker
serves metrics (ADR 53).
All that is kept is bounded, the oldest goes first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import MetadataImage, ResourceType
from ottla.config.client_metrics_settings import ALL_METRICS, DEFAULT_INTERVAL_MS, Subscription, subscription
from ottla.errors import ApiError, ErrorCode, InvalidConfig, InvalidRequest
from ottla.ids import uuid_to_text
from ottla.records.checksum import crc32c

if TYPE_CHECKING:
    from ottla.server.client_metrics import ClientSeries

MAX_INSTANCES: Final = 16_384
"""Clients whose subscriptions are remembered, as in Kafka."""
MAX_REPORTS: Final = 4_096
MAX_REPORT_BYTES: Final = 16 << 20
"""Pushes that are kept, of all clients together."""
SHORTEST_LIFE_MS: Final = 60_000
"""Minimum time for which a silent client is remembered; three of its intervals if that is longer."""
MAX_SOFTWARE_LENGTH: Final = 100
MAX_CLIENT_ID_LENGTH: Final = 256
"""Characters of a client id that are kept and matched: it may be 32 KB long, and thousands of clients are kept."""
MAX_SUBSCRIPTIONS: Final = 1_000
"""Every client is held against all of them."""
MAX_METRICS: Final = 2_000
"""Prefixes that are gathered from subscriptions; a client to which more apply is asked for all of its metrics."""
COMPRESSION_TYPES: Final = range(5)
_ANY_WAY_OUT: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client may ask at once what it is subscribed to."""


class Client(NamedTuple):
    """The client behind a request."""

    instance_id: UUID
    client_id: str | None
    software_name: str | None
    software_version: str | None
    host: str
    port: int
    connection_id: int

    @property
    def attributes(self) -> Mapping[str, str | None]:
        """What subscriptions look at."""
        return {
            "client_instance_id": uuid_to_text(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.host,
            "client_source_port": str(self.port),
        }


@dataclass(slots=True)
class Instance:
    """What a client has been asked for, and when it has last come."""

    client: Client
    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int
    generation: int
    """The state of the subscriptions that this follows from."""
    last_get_ms: int = 0
    last_push_ms: int = 0
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    expires_ms: int = 0

    def may_get(self, now_ms: int) -> bool:
        """Whether the next interval has begun, which it then has from now on; or the last answer asked it to come."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.interval_ms:
            self.last_get_ms = now_ms
            return True
        return self.last_error in _ANY_WAY_OUT

    def may_push(self, now_ms: int) -> bool:
        """The same for a push. One may follow at once on what the client is subscribed to: clients add some jitter."""
        may = self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.interval_ms
        if may:
            self.last_push_ms = now_ms
        return may


class Report(NamedTuple):
    """The newest push of a client."""

    client: Client
    at_ms: int
    interval_ms: int
    terminating: bool
    compression_type: int
    metrics: bytes


@dataclass(slots=True)
class Telemetry:
    """What this broker knows of clients' metrics. Everything is called on the loop's thread."""

    max_bytes: int
    new_id: Callable[[], UUID]
    _subscriptions: dict[str, Subscription] = field(default_factory=dict)
    _generation: int = 0
    _instances: "OrderedDict[UUID, Instance]" = field(default_factory=OrderedDict)
    """The one that came last is the last."""
    _reports: "OrderedDict[UUID, Report]" = field(default_factory=OrderedDict)
    _report_bytes: int = 0
    series: "ClientSeries | None" = None
    """The metrics of clients, decoded; None without `metrics.listeners`."""
    _software: dict[int, tuple[str, str]] = field(default_factory=dict)
    """What the clients of connections call themselves, by connection."""
    _by_connection: dict[int, UUID] = field(default_factory=dict)

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take the subscriptions of a new image."""
        if old.configs is new.configs:
            return
        found: dict[str, Subscription] = {}
        is_changed = any(_is_ours(key) and key not in new.configs for key in old.configs)
        for key, configs in new.configs.items():
            if not _is_ours(key):
                continue
            name = key[1]
            if old.configs.get(key) == configs:
                if name in self._subscriptions:
                    found[name] = self._subscriptions[name]
                continue
            is_changed = True
            try:
                found[name] = subscription(configs)
            except (InvalidConfig, InvalidRequest):
                continue  # written by another program into the store: no client is asked for metrics
        if is_changed:
            self._subscriptions = found
            self._generation += 1

    def check_room(self, names: Set[str]) -> None:
        """Raise `ApiError` POLICY_VIOLATION if these subscriptions, with those that there are, would be too many."""
        if (
            len(names) + len(self._subscriptions) > MAX_SUBSCRIPTIONS
            and len(names | self._subscriptions.keys()) > MAX_SUBSCRIPTIONS
        ):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"There may be at most {MAX_SUBSCRIPTIONS} subscriptions to clients' metrics: delete some first.",
            )

    @property
    def wanted(self) -> bool:
        """Whether a subscription exists: only then are clients offered the requests of KIP-714."""
        return bool(self._subscriptions)

    # -- connections -------------------------------------------------------------------------------------------------

    def note_software(self, connection_id: int, name: str, version: str) -> None:
        """What the client of a connection calls itself, until the connection is closed."""
        self._software[connection_id] = (name[:MAX_SOFTWARE_LENGTH], version[:MAX_SOFTWARE_LENGTH])

    def software(self, connection_id: int) -> tuple[str | None, str | None]:
        return self._software.get(connection_id, (None, None))

    def disconnected(self, connection_id: int) -> None:
        """A client that comes back begins anew, as in Kafka. Its newest push stays to be looked at."""
        self._software.pop(connection_id, None)
        instance_id = self._by_connection.pop(connection_id, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    # -- requests ----------------------------------------------------------------------------------------------------

    def subscribe(self, client: Client, now_ms: int) -> Instance:
        """What a client is asked for. Raises `ApiError` THROTTLING_QUOTA_EXCEEDED if it asks too often."""
        instance = self._instance(client, now_ms)
        if not instance.may_get(now_ms):
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def accept(
        self, client: Client, subscription_id: int, compression_type: int, size: int, *, terminating: bool, now_ms: int
    ) -> Instance:
        """Whether a push is taken. Raises `ApiError` or `InvalidRequest` for one that is not, with Kafka's codes."""
        instance = self._instance(client, now_ms)
        try:
            if instance.terminating:
                raise InvalidRequest("the client's previous push was marked as its last one")
            if not instance.may_push(now_ms) and not terminating:
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            if subscription_id != instance.subscription_id:
                raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
            if compression_type not in COMPRESSION_TYPES:
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if size > self.max_bytes:
                raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)
        except (ApiError, InvalidRequest) as refused:
            instance.last_error = refused.code
            raise
        finally:
            instance.terminating = terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def keep(self, report: Report) -> None:
        """Keep a push in place of the client's earlier one."""
        before = self._reports.pop(report.client.instance_id, None)
        self._report_bytes += len(report.metrics) - (0 if before is None else len(before.metrics))
        self._reports[report.client.instance_id] = report
        while len(self._reports) > 1 and (len(self._reports) > MAX_REPORTS or self._report_bytes > MAX_REPORT_BYTES):
            _, oldest = self._reports.popitem(last=False)
            self._report_bytes -= len(oldest.metrics)

    @property
    def kept_bytes(self) -> int:
        """The size of the pushes that are kept."""
        return self._report_bytes

    def reports(self) -> Iterator[Report]:
        """The newest push of each client, the oldest first."""
        return iter(self._reports.values())

    def report(self, instance_id: UUID) -> Report | None:
        return self._reports.get(instance_id)

    def _instance(self, client: Client, now_ms: int) -> Instance:
        self._forget_silent(now_ms)
        found = self._instances.pop(client.instance_id, None)
        if found is None:
            found = self._asked(client)
        elif found.generation != self._generation:
            found = self._asked(found.client)
        self._instances[client.instance_id] = found
        self._by_connection[client.connection_id] = client.instance_id
        found.expires_ms = now_ms + max(SHORTEST_LIFE_MS, 3 * found.interval_ms)
        if len(self._instances) > MAX_INSTANCES:
            self._instances.popitem(last=False)
        return found

    def _forget_silent(self, now_ms: int) -> None:
        while self._instances:
            instance_id, oldest = next(iter(self._instances.items()))
            if oldest.expires_ms > now_ms:
                return
            del self._instances[instance_id]

    def _asked(self, client: Client) -> Instance:
        attributes = client.attributes
        matching = [each for each in self._subscriptions.values() if each.matches(attributes)]
        metrics = _metrics_of(matching)
        interval_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        asked = crc32c(f"{metrics}{interval_ms}".encode() + client.instance_id.bytes)
        return Instance(client, asked - (1 << 31), metrics, interval_ms, self._generation)


def _metrics_of(subscriptions: Sequence[Subscription]) -> tuple[str, ...]:
    is_too_much = sum(len(each.metrics) for each in subscriptions) > MAX_METRICS
    names = {ALL_METRICS} if is_too_much else {name for each in subscriptions for name in each.metrics}
    return (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))


def _is_ours(key: tuple[ResourceType, str]) -> bool:
    return key[0] is ResourceType.CLIENT_METRICS
