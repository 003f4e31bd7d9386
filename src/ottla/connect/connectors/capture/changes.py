"""PURE: the changes of any database's stream on their way into batches: each once, and counted in its transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.connect.api import BadRecord, Progress, SourceContext, SourceRecord
from ottla.connect.connectors.capture.selection import CaptureSettings
from ottla.connect.connectors.capture.transactions import Transactions

Batch: TypeAlias = list[SourceRecord | Progress]


@dataclass(frozen=True, slots=True)
class Rules:
    """How changes become records. now_ns: the clock of `ts_ms`. skipped: operations that are left out.

    transactions: counts changes, where transaction metadata is configured. reject: called with a change that no schema
    can hold, to skip it or raise; without it the BadRecord is raised.
    """

    now_ns: Callable[[], int]
    skipped: frozenset[str] = frozenset()
    transactions: Transactions | None = None
    reject: Callable[[BadRecord], None] | None = None

    @classmethod
    def of(cls, settings: CaptureSettings, context: SourceContext, now_ns: Callable[[], int]) -> "Rules":
        """The rules that the settings mean."""
        transactions = Transactions(settings.transaction_topic) if settings.provide_transaction_metadata else None
        return cls(now_ns, frozenset(settings.skipped_operations), transactions, context.reject)


@dataclass(slots=True)
class Count:
    """Changes of the transaction that is being read. to_skip: how many of them were done before the stream began."""

    events: int = 0
    to_skip: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the change that was counted last had been done before the stream began."""
        return self.events <= self.to_skip

    @property
    def done(self) -> int:
        """How many changes need not come again."""
        return self.events if self.events > self.to_skip else self.to_skip


class EventWriter:
    """Puts records into batches. position: where to go on from after what came last, as the source's offset."""

    def __init__(self, rules: Rules, count: Count, position: Callable[[], dict[str, Any]]) -> None:
        self._transactions = rules.transactions
        self._reject = rules.reject
        self._count = count
        self._position = position

    @property
    def passes_over(self) -> bool:
        """Whether nothing is to be made of the change that was counted last, not even to count it again."""
        return self._transactions is None and self._count.events <= self._count.to_skip

    def add(self, records: list[SourceRecord], batch: Batch) -> None:
        """Append what one change has become; the last record gets the position."""
        if records:
            records[-1].position = self._position()
            batch.extend(records)

    def counted(
        self, records: list[SourceRecord], collection: str, transaction: Callable[[], str]
    ) -> list[SourceRecord]:
        """The records of a change that was not passed over, with their places in the transaction; none if the change
        was done before the stream began. transaction: returns its id.
        """
        if self._transactions is None:
            return records
        self._transactions.mark(records, collection, transaction())
        return [] if self._count.is_done else records

    def refuse(self, error: BadRecord) -> None:
        """Skip a change that no schema can hold, or raise."""
        if self._reject is None:
            raise error
        self._reject(error)

    def began(self, transaction: str, at_ms: int, batch: Batch, *, is_sent: bool) -> None:
        """A transaction begins. `is_sent`: its begin record is in the log from before the stream began."""
        transactions = self._transactions
        if transactions is not None:
            transactions.reset()
            if not is_sent:
                self.add([transactions.began(transaction, at_ms)], batch)

    def ended(self, transaction: str, at_ms: int, batch: Batch) -> None:
        """A transaction ends; `moved` gives its end record the position."""
        if self._transactions is not None:
            batch.append(self._transactions.ended(transaction, at_ms))

    def moved(self, move: Callable[[], None], batch: Batch) -> None:
        """Move the position behind a transaction: its last entry carries that, if it is still in the batch."""
        last = batch[-1] if batch else None
        takes_it = isinstance(last, Progress) or (
            last is not None
            and (last.position is None or (self._count.events > 0 and last.position == self._position()))
        )
        move()
        if last is not None and takes_it:
            last.position = self._position()
        else:
            batch.append(Progress(position=self._position()))
