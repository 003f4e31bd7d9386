"""PURE: the changes of any database after the snapshot: batches, heartbeats, and chunks of incremental snapshots."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from ottla.connect.api import ConnectError, Position, SourceRecord, Yielded
from ottla.connect.connectors.capture.changes import Batch
from ottla.connect.connectors.capture.envelope import heartbeat
from ottla.connect.connectors.capture.selection import CaptureSettings
from ottla.connect.connectors.capture.signals import TableSignals


class Arrived(NamedTuple):
    """Up to `max.batch.size` records; whether nothing more has come; why nothing more can be read, if so: what came
    before is good."""

    batch: Batch
    at_end: bool = False
    broken: ConnectError | None = None


class Place(Protocol):
    """How far a stream has come."""

    @property
    def in_transaction(self) -> bool:
        """Amid a transaction, of which more follows."""

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""


class Heartbeats:
    """Records in the heartbeat topic. run: executes `heartbeat.action.query` in the database."""

    def __init__(
        self, settings: CaptureSettings, run: Callable[[str], object], now_ns: Callable[[], int], now_s: float
    ) -> None:
        self._settings = settings
        self._run = run
        self._now_ns = now_ns
        self._due_s = now_s

    def is_due(self, now_s: float) -> bool:
        """Whether the interval has passed since the last one; `now_s` is of a clock that is never set back."""
        every_s = self._settings.heartbeat_interval_ms / 1000
        if not every_s or now_s < self._due_s:
            return False
        self._due_s = now_s + every_s
        return True

    def record(self, position: Position) -> SourceRecord:
        """A heartbeat with the position of the stream."""
        settings = self._settings
        if settings.heartbeat_action_query:
            self._run(settings.heartbeat_action_query)
        topic = f"{settings.topic_heartbeat_prefix}.{settings.topic_prefix}"
        return heartbeat(topic, settings.topic_prefix, self._now_ns() // 1_000_000, position)


def follow(
    read: Callable[[], Arrived],
    place: Place,
    heartbeats: Heartbeats,
    now_s: Callable[[], float],
    signals: TableSignals[Any] | None,
) -> Iterator[Yielded]:
    """Yield batch by batch; raises why the stream has ended.

    read: returns what has come, after a short wait for the first of it. now_s: a clock that is never set back.
    signals: go on with an incremental snapshot where no transaction is open.
    """
    has_records = False
    while True:
        batch, at_end, broken = read()
        if broken is None and not place.in_transaction and heartbeats.is_due(now_s()):
            batch.append(heartbeats.record(place.position()))
        yield batch or None
        if broken is not None:
            raise broken
        has_records = has_records or any(isinstance(each, SourceRecord) for each in batch)
        if at_end and has_records:
            has_records = False
            yield None  # a waiting runtime need not wait for the next event
        if signals is not None and not place.in_transaction:
            signals.go_on()
