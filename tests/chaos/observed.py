"""PURE: what all workers together have seen of each log: the value at each offset, its writer and its readers."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos.history import Operation, Outcome, Send, What


@dataclass(slots=True)
class KeyLog:
    """One partition, as far as the history knows it."""

    read: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Values by offset, as consumers were given them."""
    acknowledged: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Values by offset, as producers were told, of those that must be visible; see `Observed.must_be_visible`."""
    readers: dict[int, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """Who read a value."""
    highest_read: int = -1
    audited: bool = False
    """Whether somebody read it to its end when all was over."""

    def visible_offsets(self) -> list[int]:
        """Offsets with records that every consumer has to be given, ascending."""
        return sorted(self.read.keys() | self.acknowledged.keys())

    def offsets_of(self) -> dict[int, set[int]]:
        """All offsets at which a value was seen, by value."""
        found: dict[int, set[int]] = defaultdict(set)
        for values_by_offset in (self.read, self.acknowledged):
            for offset, values in values_by_offset.items():
                for value in values:
                    found[value].add(offset)
        return found


class Observed:
    """All of a history, indexed once for all checks.

    `derived` are topics whose values may be sent again after a failure, by a relay: who wrote a value there is not
    known.
    """

    def __init__(self, operations: Iterable[Operation], derived: frozenset[str] = frozenset()) -> None:
        self.operations = list(operations)
        self._derived = derived
        self.logs: dict[str, KeyLog] = defaultdict(KeyLog)
        self.writer: dict[tuple[str, int], Operation] = {}
        """Who sent a value, by key and value; without derived topics."""
        self.sent_to: dict[int, str] = {}
        """The key a value was sent to; without derived topics."""
        for operation in self.operations:
            for send in operation.sends:
                if not self.is_derived(send.key):
                    self.writer[send.key, send.value] = operation
                    self.sent_to[send.value] = send.key
            for key, offset, value in operation.reads:
                log = self.logs[key]
                log.read[offset].add(value)
                log.readers[value].append(operation)
                log.highest_read = max(log.highest_read, offset)
            if operation.what is What.AUDIT and operation.outcome is Outcome.OK:
                for key in operation.keys:
                    self.logs[key].audited = True
        for operation in self.operations:
            for send in operation.sends:
                if send.offset is not None and self.must_be_visible(operation, send):
                    self.logs[send.key].acknowledged[send.offset].add(send.value)

    def is_derived(self, key: str) -> bool:
        """Whether the key's values come from a relay."""
        return key.rpartition("-")[0] in self._derived

    def was_read(self, send: Send) -> bool:
        """Whether any consumer was given the value from where it was sent to."""
        log = self.logs.get(send.key)
        return log is not None and send.value in log.readers

    def has_happened(self, operation: Operation) -> bool:
        """Whether its sends took effect: it says so, or it does not know and one of them was read."""
        if operation.outcome is Outcome.OK:
            return True
        return operation.outcome is Outcome.INFO and any(
            self.was_read(send) for send in operation.sends if not self.is_derived(send.key)
        )

    def must_be_visible(self, operation: Operation, send: Send) -> bool:
        """Whether consumers that read committed records have to be given it, sooner or later.

        Outside transactions an acknowledgement is enough, whatever became of the operation's other sends.
        """
        if operation.is_transaction:
            return self.has_happened(operation)
        return operation.outcome is Outcome.OK or send.offset is not None or self.was_read(send)

    def was_passed(self, send: Send) -> bool:
        """Whether consumers have read past the place where the record has to be."""
        log = self.logs[send.key]
        return log.audited or (send.offset is not None and send.offset < log.highest_read)
