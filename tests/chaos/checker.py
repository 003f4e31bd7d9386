"""PURE: what in a history contradicts what Kafka promises to clients that write with acks=all and read committed.

The method is that of Jepsen's Kafka workload: every value is sent once, so who wrote what a consumer was given is
known, and with it what may not have been given, what is missing, and what depends on what. Each kind of anomaly is one
function.

Allowed, and not looked for: transactions of several producers that interleave in a log (Kafka isolates no writes), and
consumers that see one partition of a transaction before another one.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.chaos.cycles import shortest_cycles
from tests.chaos.history import Operation, Outcome, Send, What
from tests.chaos.observed import Observed
from tests.chaos.positions import Jump, jumps


class Kind(Enum):
    """What can be wrong."""

    LOST_WRITE = "lost write"
    """Acknowledged, and nobody was given it although consumers went past it."""
    VANISHED = "record vanished"
    """A consumer was given it, and it is not in the log any more."""
    DUPLICATE = "duplicate"
    """One value at two offsets of its partition."""
    TWO_VALUES = "two values at one offset"
    ABORTED_READ = "aborted read"
    """A consumer was given what its producer knows to have failed (Adya's G1a)."""
    TORN_TRANSACTION = "torn transaction"
    """Some of its records are there and others are not."""
    UNWRITTEN_READ = "read of what nobody wrote"
    PRECOMMITTED_READ = "precommitted read"
    """A transaction was given its own records before it committed."""
    PRODUCER_ORDER = "a producer's records out of order"
    OFFSET_WENT_BACK = "offset went back"
    """A record that was sent after another one had been acknowledged stands before it."""
    SKIPPED = "records skipped"
    """A consumer was not given a record between two that it was given in turn."""
    WENT_BACK = "consumer went back"
    """A consumer was given a record twice, or an earlier one after a later one, and did not ask for it."""
    CYCLE = "cycle"
    """Transactions that have each read what the next one wrote (Adya's G1c)."""
    REALTIME_CYCLE = "cycle through time"
    """The same, where some only ended before others began."""
    RELAYED_TWICE = "relayed twice"
    NOT_RELAYED = "not relayed"
    RELAYED_FROM_NOWHERE = "relayed from nowhere"
    """In the output without being in the input."""
    REPLICAS_DIFFER = "replicas differ"
    """Two brokers have something else at one offset; seen on their disks, not by clients."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One contradiction: what it is, in a sentence, and the operations that show it."""

    kind: Kind
    text: str
    operations: tuple[Operation, ...] = ()


RELAY_INPUT: Final = "in"
RELAY_OUTPUT: Final = "out"
RELAYED: Final = 1_000_000_000
"""What a relay adds to a value."""


def check(operations: Collection[Operation], *, relays: bool = False) -> list[Anomaly]:
    """All anomalies of a history; none is what a sound broker gives.

    With `relays`, the topics `in` and `out` are also compared, which needs both to have been audited.
    """
    seen = Observed(operations, frozenset({RELAY_OUTPUT}))
    checks: list[Callable[[Observed], Iterator[Anomaly]]] = [
        lost_writes,
        vanished,
        duplicates,
        two_values,
        aborted_reads,
        torn_transactions,
        unwritten_reads,
        precommitted_reads,
        producer_order,
        offsets_that_went_back,
        positions,
        cycles,
    ]
    if relays:
        checks.append(relayed_exactly_once)
    return [anomaly for one in checks for anomaly in one(seen)]


def lost_writes(seen: Observed) -> Iterator[Anomaly]:
    """Sends that were acknowledged and are gone; of a transaction, those of which nothing is left."""
    for operation in seen.operations:
        sends = [send for send in operation.sends if not seen.is_derived(send.key)]
        if operation.is_transaction and any(map(seen.was_read, sends)):
            continue  # what is missing of it makes it torn
        for send in sends:
            if seen.must_be_visible(operation, send) and not seen.was_read(send) and seen.was_passed(send):
                where = "" if send.offset is None else f" at offset {send.offset}"
                yield Anomaly(
                    Kind.LOST_WRITE,
                    f"{send.value} was acknowledged to {operation.who} in {send.key}{where}, and nobody was given it",
                    (operation,),
                )


def vanished(seen: Observed) -> Iterator[Anomaly]:
    """Records that consumers were given before the last audit of each auditor began, which did not find them."""
    audits = {
        operation.who: operation
        for operation in seen.operations
        if operation.what is What.AUDIT and operation.outcome is Outcome.OK
    }
    for audit in audits.values():
        there = set(audit.reads)
        gone: dict[tuple[str, int, int], Operation] = {}
        for operation in seen.operations:
            if operation.ended is not None and operation.ended < audit.began:
                for record in operation.reads:
                    if record not in there and record[0] in audit.keys:
                        gone.setdefault(record, operation)
        for (key, offset, value), reader in gone.items():
            yield Anomaly(
                Kind.VANISHED,
                f"{reader.who} was given {value} at offset {offset} of {key}, and {audit.who} did not find it there",
                (reader, audit),
            )


def duplicates(seen: Observed) -> Iterator[Anomaly]:
    """Values that stand, or were said to stand, at more than one offset."""
    for key, log in seen.logs.items():
        for value, offsets in log.offsets_of().items():
            if len(offsets) > 1:
                yield Anomaly(
                    Kind.DUPLICATE,
                    f"{value} is in {key} at the offsets {_listed(offsets)}",
                    _known(seen.writer.get((key, value)), *log.readers.get(value, ())[:2]),
                )


def two_values(seen: Observed) -> Iterator[Anomaly]:
    """Offsets at which different values were read, or acknowledged and read."""
    for key, log in seen.logs.items():
        for offset in log.visible_offsets():
            values = log.read.get(offset, set()) | log.acknowledged.get(offset, set())
            if len(values) > 1:
                yield Anomaly(
                    Kind.TWO_VALUES,
                    f"{key} has the values {_listed(values)} at offset {offset}",
                    _known(*(seen.writer.get((key, value)) for value in sorted(values))),
                )


def aborted_reads(seen: Observed) -> Iterator[Anomaly]:
    """Values of failed operations that consumers were given."""
    for operation in seen.operations:
        if operation.outcome is not Outcome.FAIL:
            continue
        for send in operation.sends:
            acknowledged_alone = not operation.is_transaction and send.offset is not None
            if not seen.is_derived(send.key) and seen.was_read(send) and not acknowledged_alone:
                reader = seen.logs[send.key].readers[send.value][0]
                yield Anomaly(
                    Kind.ABORTED_READ,
                    f"{reader.who} was given {send.value} of {send.key}, which {operation.who} had failed to write",
                    (operation, reader),
                )


def torn_transactions(seen: Observed) -> Iterator[Anomaly]:
    """Transactions of which some records were read, and others never, although consumers went past them."""
    for operation in seen.operations:
        if not operation.is_transaction or operation.outcome is Outcome.FAIL:
            continue
        sends = [send for send in operation.sends if not seen.is_derived(send.key)]
        there = [send for send in sends if seen.was_read(send)]
        missing = [send for send in sends if not seen.was_read(send) and seen.was_passed(send)]
        if there and missing:
            yield Anomaly(
                Kind.TORN_TRANSACTION,
                f"of a transaction of {operation.who}, {_named(there)} can be read and {_named(missing)} cannot",
                (operation, seen.logs[there[0].key].readers[there[0].value][0]),
            )


def unwritten_reads(seen: Observed) -> Iterator[Anomaly]:
    """Values that nobody sent, or that were sent to another partition."""
    for key, log in seen.logs.items():
        if seen.is_derived(key):
            continue
        for value, readers in log.readers.items():
            if (key, value) not in seen.writer:
                other = seen.sent_to.get(value)
                text = "nobody wrote" if other is None else f"was sent to {other}"
                yield Anomaly(
                    Kind.UNWRITTEN_READ, f"{readers[0].who} was given {value} of {key}, which {text}", (readers[0],)
                )


def precommitted_reads(seen: Observed) -> Iterator[Anomaly]:
    """Transactions that read what they have written themselves."""
    for operation in seen.operations:
        own = {(send.key, send.value) for send in operation.sends}
        for key, _, value in operation.reads:
            if (key, value) in own:
                yield Anomaly(
                    Kind.PRECOMMITTED_READ,
                    f"{operation.who} was given its own {value} of {key} before it committed",
                    (operation,),
                )


def producer_order(seen: Observed) -> Iterator[Anomaly]:
    """Acknowledged records of one process that stand in its partition in another order than it sent them."""
    last: dict[tuple[str, str], tuple[Send, Operation]] = {}
    for operation in seen.operations:
        for send in operation.sends:
            if send.offset is None:
                continue
            before = last.get((operation.who, send.key))
            if before is not None and before[0].offset is not None and before[0].offset >= send.offset:
                yield Anomaly(
                    Kind.PRODUCER_ORDER,
                    f"{operation.who} sent {before[0].value} before {send.value}, "
                    f"and {send.key} has them at the offsets {before[0].offset} and {send.offset}",
                    (before[1], operation),
                )
            last[operation.who, send.key] = send, operation


def offsets_that_went_back(seen: Observed) -> Iterator[Anomaly]:
    """Records at lower offsets than one that had been acknowledged before they were sent, by whomever."""
    events: list[tuple[int, bool, Operation]] = []
    for operation in seen.operations:
        events.append((operation.began, False, operation))
        if operation.ended is not None:
            events.append((operation.ended, True, operation))
    highest: dict[str, tuple[Send, Operation]] = {}
    floor: dict[int, dict[str, tuple[Send, Operation]]] = {}
    for _, is_end, operation in sorted(events, key=lambda event: event[0]):
        if not is_end:
            floor[operation.began] = {send.key: highest[send.key] for send in operation.sends if send.key in highest}
            continue
        for send in operation.sends:
            if send.offset is None:
                continue
            before = floor[operation.began].get(send.key)
            if before is not None and (before[0].offset or 0) >= send.offset:
                yield Anomaly(
                    Kind.OFFSET_WENT_BACK,
                    f"{send.key} had {before[0].value} at offset {before[0].offset} when {send.value} was sent, "
                    f"which was then put at offset {send.offset}",
                    (before[1], operation),
                )
            top = highest.get(send.key)
            if top is None or (top[0].offset or 0) < send.offset:
                highest[send.key] = send, operation


def positions(seen: Observed) -> Iterator[Anomaly]:
    """Consumers that jumped, forward or back, without having been told to."""
    for jump in jumps(seen):
        if jump.offset > jump.expected_after:
            yield Anomaly(
                Kind.SKIPPED,
                f"{jump.operation.who} was given offset {jump.offset} of {jump.key} next after "
                f"{_after(jump)}, without {_listed(jump.skipped)} between them",
                jump.operations,
            )
        else:
            yield Anomaly(
                Kind.WENT_BACK,
                f"{jump.operation.who} was given offset {jump.offset} of {jump.key} after {_after(jump)}",
                jump.operations,
            )


def cycles(seen: Observed) -> Iterator[Anomaly]:
    """Circular dependencies, first those of reads alone, then those through real time."""
    happened = [operation for operation in seen.operations if seen.has_happened(operation)]
    reads = [
        (writer, operation)
        for operation in happened
        for key, _, value in operation.reads
        if (writer := seen.writer.get((key, value))) is not None and writer is not operation
    ]
    plain = shortest_cycles(happened, reads, through_time=False)
    for cycle in plain:
        yield Anomaly(Kind.CYCLE, _circle(cycle), tuple(cycle))
    known = {frozenset(operation.began for operation in cycle) for cycle in plain}
    for cycle in shortest_cycles(happened, reads, through_time=True):
        if frozenset(operation.began for operation in cycle) not in known:
            yield Anomaly(Kind.REALTIME_CYCLE, _circle(cycle), tuple(cycle))


def relayed_exactly_once(seen: Observed) -> Iterator[Anomaly]:
    """Every record of the input once in the output, and nothing else there."""
    put_in: dict[int, int] = defaultdict(int)
    came_out: dict[int, int] = defaultdict(int)
    for key, log in seen.logs.items():
        counts = {RELAY_INPUT: put_in, RELAY_OUTPUT: came_out}.get(key.rpartition("-")[0])
        if counts is None:
            continue
        if not log.audited:
            raise ValueError(f"{key} was not read to its end: nothing can be said about what was relayed")
        for values in log.read.values():
            for value in values:
                counts[value if counts is put_in else value - RELAYED] += 1
    by_value: dict[int, list[Operation]] = defaultdict(list)
    for operation in seen.operations:
        for send in operation.sends:
            by_value[send.value].append(operation)
    for value in sorted(put_in.keys() | came_out.keys()):
        relays = by_value[value + RELAYED]
        if value not in put_in:
            yield Anomaly(Kind.RELAYED_FROM_NOWHERE, f"{value} came out and was never put in", tuple(relays))
        elif came_out[value] == 0:
            yield Anomaly(Kind.NOT_RELAYED, f"{value} was put in and never came out", tuple(relays))
        elif came_out[value] > put_in[value]:
            yield Anomaly(
                Kind.RELAYED_TWICE, f"{value} was put in once and came out {came_out[value]} times", tuple(relays)
            )


def _circle(cycle: list[Operation]) -> str:
    return " -> ".join(f"{operation.who} ({operation.lines})" for operation in [*cycle, cycle[0]])


def _after(jump: Jump) -> str:
    return "its start" if jump.expected_after < 0 else f"offset {jump.expected_after}"


def _known(*operations: Operation | None) -> tuple[Operation, ...]:
    return tuple(operation for operation in operations if operation is not None)


def _listed(numbers: Iterable[int]) -> str:
    ordered = sorted(numbers)
    return ", ".join(map(str, ordered[:8])) + (f" and {len(ordered) - 8} more" if len(ordered) > 8 else "")


def _named(sends: list[Send]) -> str:
    return ", ".join(f"{send.value} in {send.key}" for send in sends)
