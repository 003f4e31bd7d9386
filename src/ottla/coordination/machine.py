"""What a coordinator's machine takes and gives. PURE.

A machine owns everything one partition of a coordinator's topic stands for. `handle` looks at an event and
decides; it gives effects and never waits. What has to outlive the broker is written as an `Append`; whoever
runs the machine passes each appended record to `replay` at once, and `replay` is the only place where durable
state changes: for the leader that has just decided, and for a successor that reads the log.

    event --> handle --> [Append(records), Reply(token, value), Tell(message), SetTimer(key, after_ms)]
                             |                 |                     |
                             v                 +---------------------+-- held until every record appended before
                          replay                                         is committed

So nobody ever learns of a state that a crash could take back. When a write does not commit, the machine is thrown
away together with what it promised to nobody, and a new one replays the log.

Effects are carried out in the order of the list.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.ids import ProducerIdAndEpoch

Token: TypeAlias = Any
"""Who waits for a reply. Opaque to the machine, used once."""

TimerKey: TypeAlias = tuple[str, ...]
"""A timer's name; setting it again moves it."""

NO_PRODUCER_ID = -1


class Append(NamedTuple):
    """Write these records, in this order, to the machine's partition.

    With a `producer` they are part of its transaction: replayed with its id, and settled by `end_transaction`.
    """

    records: tuple[Any, ...]
    producer: ProducerIdAndEpoch | None = None


class Reply(NamedTuple):
    """Answer a request, once all records appended before are committed."""

    token: Token
    value: Any


class Tell(NamedTuple):
    """Tell the coordinator that runs the machine, once all records appended before are committed."""

    message: Any


class SetTimer(NamedTuple):
    """Send `TimerFired(key)` after `after_ms`, instead of what was set under this key before."""

    key: TimerKey
    after_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer, if it is set."""

    key: TimerKey


Effect: TypeAlias = Append | Reply | Tell | SetTimer | CancelTimer


class TimerFired(NamedTuple):
    """A timer's time has come."""

    key: TimerKey


EventT = TypeVar("EventT", contravariant=True)
RecordT = TypeVar("RecordT")


class RecordFormat(Protocol[RecordT]):
    """How a machine's records stand in the log."""

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]:
        """Key and value; no value is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> RecordT | None:
        """The record, or None for a type this version does not know. Raises `CorruptMessage`."""
        ...


class Machine(Protocol[EventT, RecordT]):
    """The state behind one partition of a coordinator's topic.

    `now_ms` is the wall clock (milliseconds since the epoch): it goes into records. Durations are left to timers.
    """

    @property
    def records(self) -> RecordFormat[RecordT]:
        """How its records are written."""
        ...

    @property
    def is_compacted(self) -> bool:
        """Whether the newest record of each key says everything, so that older ones need not be replayed."""
        ...

    def handle(self, event: EventT | TimerFired, now_ms: int) -> list[Effect]:
        """Decide. May change what is lost with the machine (who waits, who is joining), not what is durable."""
        ...

    def replay(self, record: RecordT, position: int, producer_id: int) -> None:
        """Apply a record. `position` grows along the log; `producer_id` is -1 outside of transactions."""
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a control record: the producer's transaction has ended, with or without records here."""
        ...

    def loaded(self, now_ms: int) -> list[Effect]:
        """The whole log has been replayed: set the timers that its state asks for."""
        ...
