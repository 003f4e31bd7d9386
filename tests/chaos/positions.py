"""PURE: whether each consumer moved through its partitions record by record, unless it was moved."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import Operation, Outcome, Poll, What
from tests.chaos.observed import Observed

START: Final = -1
"""Stands for the last offset read of a partition that is to be read from its start."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A consumer was given `offset`, and not the record that follows `expected_after`."""

    key: str
    operation: Operation
    before: Operation | None
    expected_after: int
    offset: int
    skipped: tuple[int, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Those that show it."""
        known = self.before is not None and self.before is not self.operation
        return (self.before, self.operation) if known and self.before is not None else (self.operation,)


def jumps(seen: Observed) -> Iterator[Jump]:
    """All of a history's.

    Where a consumer stands is known from the partitions it was assigned, and from its last poll. A rebalance makes it
    unknown. After an operation that did not succeed a consumer goes back to where it stood before it.
    """
    visible = {key: log.visible_offsets() for key, log in seen.logs.items()}
    by_worker: dict[str, list[Operation]] = defaultdict(list)
    for operation in seen.operations:
        by_worker[operation.who].append(operation)
    for operations in by_worker.values():
        yield from _jumps_of_one(operations, visible)


def _jumps_of_one(operations: list[Operation], visible: dict[str, list[int]]) -> Iterator[Jump]:
    stands: dict[str, tuple[int, Operation | None]] = {}
    for operation in operations:
        if operation.what is What.SUBSCRIBE:
            stands = {}
            continue
        if operation.what is What.ASSIGN:
            kept = {} if operation.from_start else stands
            known = operation.keys if operation.outcome is Outcome.OK else ()
            stands = {key: kept.get(key, (START, None)) for key in known}
            continue
        if operation.moved:
            stands = {}
            continue
        if operation.what is What.AUDIT:
            stands = dict.fromkeys(operation.keys, (START, None))
        now = dict(stands)
        for step in operation.steps:
            if not isinstance(step, Poll):
                continue
            for key, records in step.records.items():
                for offset, _ in records:
                    if key in now:
                        last, before = now[key]
                        skipped = _between(visible[key], last, offset)
                        if offset <= last or skipped:
                            yield Jump(key, operation, before, last, offset, skipped)
                    now[key] = offset, operation
        if operation.outcome is Outcome.OK:
            stands = now


def _between(offsets: list[int], after: int, before: int) -> tuple[int, ...]:
    return tuple(offsets[bisect_right(offsets, after) : bisect_left(offsets, before)])
