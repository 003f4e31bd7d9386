"""The protocol of a coordinator's state machines: their events and effects. PURE.

A machine owns the state in one partition of a coordinator's topic. `handle` looks at an event and
decides; it returns effects and never waits. State that has to outlive the broker is written as an `Append`; the runtime
passes each appended record to `replay` at once, and `replay` is the only place where durable
state changes: for the leader that has just decided, and for a successor that reads the log.

    event --> handle --> [Append(records), Reply(request, value), Notify(message), SetTimer(key, after_ms)]
                             |                 |                     |
                             v                 +---------------------+-- held until every record appended before
                          replay                                         is committed

So no request sees state that a crash could take back. When a write does not commit, the machine is discarded
together with its held-back replies, and a new one replays the log.

Effects are carried out in the order of the list.
"""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.ids import ProducerIdAndEpoch

TimerKey: TypeAlias = tuple[str, ...]
"""A timer's name; setting it again moves it."""

NO_PRODUCER_ID = -1


class IllegalTransition(AssertionError):
    """A transition that the state does not allow: a defect, never a client's fault."""


ReplyT = TypeVar("ReplyT")


class Request(Generic[ReplyT]):
    """An event whose sender waits for a `ReplyT`. A dataclass that equals itself alone: it is sent once, and its
    reply names it."""

    __slots__ = ()


class Append(NamedTuple):
    """Write these records, in this order, to the machine's partition.

    With a `producer` they are part of its transaction: replayed with its id, and settled by `end_transaction`.
    """

    records: tuple[Any, ...]
    producer: ProducerIdAndEpoch | None = None


class Reply(NamedTuple, Generic[ReplyT]):
    """Answer a request, once all records appended before are committed."""

    request: Request[ReplyT]
    value: ReplyT


class Notify(NamedTuple):
    """Notify the coordinator that runs the machine, once all records appended before are committed."""

    message: Any


class SetTimer(NamedTuple):
    """Send `TimerFired(key)` after `after_ms`, instead of what was set under this key before."""

    key: TimerKey
    after_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer, if it is set."""

    key: TimerKey


Effect: TypeAlias = Append | Reply[Any] | Notify | SetTimer | CancelTimer


LongDecision: TypeAlias = Iterator[Effect | None]
"""Effects that are carried out while they are decided, a few in each turn of the loop, since there may be one for each
group. None has no effect: it is yielded for what needs none, so that others may go on there, too."""


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


class StateMachine(Protocol[EventT, RecordT]):
    """The state behind one partition of a coordinator's topic.

    `now_ms` is the wall clock (milliseconds since the epoch): it goes into records. Durations are left to timers.
    """

    @property
    def records(self) -> RecordFormat[RecordT]:
        """How its records are written."""
        ...

    @property
    def is_compacted(self) -> bool:
        """Whether the newest record of each key is its whole state, so that older ones need not be replayed."""
        ...

    def handle(self, event: EventT | TimerFired, now_ms: int) -> list[Effect]:
        """Decide. May change volatile state (waiting requests, joining members), not durable state."""
        ...

    def replay(self, record: RecordT, position: int, producer_id: int) -> None:
        """Apply a record. `position` grows along the log; `producer_id` is -1 outside of transactions."""
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a control record: the producer's transaction has ended, with or without records here."""
        ...

    def loaded(self, now_ms: int) -> LongDecision:
        """The whole log has been replayed: set the timers that its state asks for."""
        ...
