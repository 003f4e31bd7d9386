"""What the simulated cluster has promised: what was committed, what clients were told, and whether they agree."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from ottla.cluster.image import TRANSACTION_STATE_TOPIC


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Violation(AssertionError):
    """A promise was broken; the message says which, where and when."""


class Outcome(Enum):
    """What became of a transaction, as far as its producer knows."""

    OPEN = "open"
    IN_DOUBT = "in doubt"
    """Its commit was sent."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction of one producer, over some partitions."""

    outcome: Outcome = Outcome.OPEN
    values: list[bytes] = field(default_factory=list)


class Committed:
    """One partition as it was committed: what any replica has once shown below its high watermark."""

    def __init__(self) -> None:
        self.end = 0
        self.batches: dict[int, tuple[int, int, int]] = {}
        """Base offset to last offset, leader epoch and CRC."""
        self.values: dict[int, bytes] = {}
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        """Offset to key and value, of those with a key."""
        self.newest: dict[bytes, int] = {}
        """Key to the offset of its last record."""
        self.open: dict[int, list[bytes]] = defaultdict(list)
        """Values of transactions without a marker, by producer id."""
        self.visible: dict[bytes, bool] = {}
        """Values of transactions that have ended here: whether they are committed."""

    def base_of(self, offset: int) -> int:
        """The base offset of the batch with the record."""
        return max(base for base in self.batches if base <= offset)


@dataclass(slots=True)
class History:
    """All values are unique, so that a value says which produce it came from."""

    committed: dict[Place, Committed] = field(default_factory=lambda: defaultdict(Committed))
    acknowledged: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Offset to value, as the broker has said with acks=all."""
    exactly_once: set[bytes] = field(default_factory=set)
    """Values of idempotent producers that were acknowledged."""
    copied_from: dict[tuple[Place, int, int], int] = field(default_factory=dict)
    """Where the log began that a leader had copied when it accepted a batch, if it had not copied all that was
    committed: by partition, leader epoch and base offset."""
    transactions: list[Transaction] = field(default_factory=list)
    transaction_of: dict[bytes, Transaction] = field(default_factory=dict)
    reads: int = 0
    refused: int = 0
    """Records of produces that got an error or no answer, and were not repeated: they may be there or not."""
    fingerprint: int = 0
    """A checksum of all answers to clients, and their times."""
    broken: "asyncio.Future[None] | None" = None
    """Fails with the first `Violation`, wherever that was found: brokers survive what is raised in them."""

    def fail(self, problem: str) -> None:
        """A promise was broken."""
        if self.broken is not None and not self.broken.done():
            self.broken.set_exception(Violation(problem))

    def acknowledge(self, place: Place, offset: int, value: bytes, now: float, *, once: bool) -> None:
        """A producer was told that the record is safe."""
        self._note(f"{now:.6f} ack {place}@{offset} {value!r}")
        found = self.committed[place].values.get(offset)
        if found != value:
            self.fail(f"{now:.3f} s: {place}@{offset} was acknowledged as {value!r}; committed there is {found!r}")
        self.acknowledged[place][offset] = value
        if once:
            self.exactly_once.add(value)

    def begin(self) -> Transaction:
        """A new transaction."""
        self.transactions.append(Transaction())
        return self.transactions[-1]

    def see(self, place: Place, offset: int, value: bytes, now: float, *, committed_only: bool) -> None:
        """A consumer got this value; `committed_only`: it asked for read_committed."""
        self._note(f"{now:.6f} see {place}@{offset} {value!r}")
        self.reads += 1
        found = self.committed[place].values.get(offset)
        if found != value:
            self.fail(f"{now:.3f} s: a consumer reads {value!r} at {place}@{offset}; committed there is {found!r}")
        transaction = self.transaction_of.get(value)
        if committed_only and transaction is not None and transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            self.fail(
                f"{now:.3f} s: a consumer of committed records reads {value!r} at {place}@{offset}, of a transaction "
                f"that is {transaction.outcome.value}"
            )

    def _note(self, line: str) -> None:
        self.fingerprint = crc32(line.encode(), self.fingerprint)

    def judge(self) -> None:
        """Whether what was committed has everything that was acknowledged, and as often as it may. Raises Violation.

        That the replicas hold what was committed the observer has seen to.
        """
        for place, acknowledged in self.acknowledged.items():
            values = self.committed[place].values
            for offset, value in sorted(acknowledged.items()):
                if values.get(offset) != value:
                    raise Violation(f"{place}@{offset}: {value!r} was acknowledged, and is {values.get(offset)!r} now")
        seen: dict[bytes, list[tuple[Place, int]]] = defaultdict(list)
        for place, each in self.committed.items():
            for offset, value in each.values.items():
                seen[value].append((place, offset))
        repeated = {value: found for value, found in seen.items() if len(found) > 1}
        forgotten = {value for value, found in repeated.items() if self._was_forgotten(found)}
        for value in sorted(self.exactly_once - forgotten):
            if len(seen[value]) != 1:
                raise Violation(f"{value!r} of an idempotent producer is there {len(seen[value])} times")
        confirmed = {value for value, found in repeated.items() if self._is_confirmed(found)}
        twice = sorted(repeated.keys() - forgotten - confirmed)
        if twice:  # nothing is sent twice by these producers, but by idempotent ones
            raise Violation(f"{twice[:5]} were produced once, and are there several times")

        for transaction in self.transactions:
            self._judge(transaction)

    def _was_forgotten(self, found: Sequence[tuple[Place, int]]) -> bool:
        """Whether each leader that accepted a batch again had a log which began behind the batch when it was copied:
        retention had taken the batch, and the copy knows nothing of its producer, here as in Kafka."""
        return all(
            place == again and self._last_offset(place, before) < self._copied_from(place, offset)
            for (place, before), (again, offset) in pairwise(found)
        )

    def _is_confirmed(self, found: Sequence[tuple[Place, int]]) -> bool:
        """Whether a coordinator of transactions has written the state of an id once more before it changed: the commit
        shows that it still coordinates. (It reads the newest record of each id.)"""
        return all(
            place == again
            and place.topic == TRANSACTION_STATE_TOPIC
            and self._is_next_of_its_key(place, before, offset)
            for (place, before), (again, offset) in pairwise(found)
        )

    def _is_next_of_its_key(self, place: Place, before: int, offset: int) -> bool:
        """Whether no record between the two has their key."""
        records = self.committed[place].records
        keys = [records[each][0] for each in range(before, offset + 1) if each in records]
        return len(keys) > 1 and keys[0] == keys[-1] and keys.count(keys[0]) == 2

    def _last_offset(self, place: Place, offset: int) -> int:
        """The last offset of the batch with a record."""
        committed = self.committed[place]
        return committed.batches[committed.base_of(offset)][0]

    def _copied_from(self, place: Place, offset: int) -> int:
        committed = self.committed[place]
        base = committed.base_of(offset)
        return self.copied_from.get((place, committed.batches[base][1], base), 0)

    def awaits_markers(self) -> str | None:
        """A transaction whose commit was answered, or has begun, and that has not ended in all its partitions.

        The coordinator answers before the markers are written, and sends again those whose answers are lost.
        """
        waiting = {value for each in self.committed.values() for values in each.open.values() for value in values}
        for transaction in self.transactions:
            here = [value for value in transaction.values if value in waiting]
            is_committed = transaction.outcome is Outcome.COMMITTED
            begun = transaction.outcome is Outcome.IN_DOUBT and bool(self._shown(transaction))
            if here and (is_committed or begun):
                return f"the transaction of {here} has not ended there"
        return None

    def _shown(self, transaction: Transaction) -> list[bytes]:
        """What readers of committed records get of it."""
        visible = {value for each in self.committed.values() for value, seen in each.visible.items() if seen}
        return [value for value in transaction.values if value in visible]

    def _judge(self, transaction: Transaction) -> None:
        """All of it is to be seen, or nothing."""
        shown = self._shown(transaction)
        outcome = transaction.outcome
        if outcome is Outcome.COMMITTED and len(shown) < len(transaction.values):
            raise Violation(f"of {transaction.values}, which was committed, only {shown} can be read")
        if outcome in (Outcome.OPEN, Outcome.ABORTED) and shown:
            raise Violation(f"{shown} can be read, of a transaction that is {outcome.value}")
        if outcome is Outcome.IN_DOUBT and shown and len(shown) < len(transaction.values):
            raise Violation(f"of {transaction.values} only {shown} can be read: half a transaction")

    @property
    def count(self) -> int:
        """Acknowledged records."""
        return sum(len(values) for values in self.acknowledged.values())
