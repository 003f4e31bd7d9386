"""Random lives of a share partition, against one dict of records: any order of events, failed writes, new leaders.

What must hold whatever happens: nobody is given a record that somebody else holds or that was acknowledged; no record
is delivered more often than the limit; what a new leader reads is what was written, so that nothing acknowledged comes
back and nothing else is lost; with key order, one record of a key is held at a time and a key is finished in order. In
the end, everything can be delivered: nothing is stuck.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.errors import ApiError, ErrorCode
from ottla.share.partition import Acknowledgement, Acquired, Fetched, Limits, SharePartition, Write
from ottla.share.state import SharePartitionState, StateBatch, combine
from ottla.share.window import RecordState

MEMBERS = ("m1", "m2", "m3")
KEYS = (b"a", b"b", b"c", None)
LIMITS = Limits(max_record_locks=25, delivery_count_limit=2)
LOCK = 10.0
GAP, ACCEPT, RELEASE, REJECT = range(4)
OUTCOMES = ("written", "written", "refused", "written, but nobody heard")


@dataclass
class Written:
    """What the share coordinator has."""

    start_offset: int = -1
    batches: tuple[StateBatch, ...] = ()

    def add(self, write: Write) -> None:
        self.start_offset = write.start_offset
        self.batches = combine(self.batches, write.batches, write.start_offset)


@dataclass
class Batch:
    first: int
    last: int
    deliverable: bool
    records: dict[int, bytes | None]


@dataclass
class Model:
    """What is known from outside: who was told what."""

    log: list[Batch] = field(default_factory=list)
    end: int = 0
    log_start: int = 0
    held: dict[int, tuple[str, float]] = field(default_factory=dict)
    """By offset: the member that holds the record, and the end of its lock."""
    saying: dict[int, dict[int, int]] = field(default_factory=dict)
    """By number of write: the acknowledgement of each offset."""
    done: set[int] = field(default_factory=set)
    """Acknowledged or rejected, and confirmed to the member."""
    deliveries: dict[int, int] = field(default_factory=dict)


class Lives(RuleBasedStateMachine):
    """`key_ordered` as a whole, or changing."""

    key_ordered = False

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.written = Written()
        self.on_the_way: Write | None = None
        self.now = 0.0
        self.machine = self.lead()

    def lead(self) -> SharePartition:
        start = self.written.start_offset if self.written.start_offset >= 0 else self.model.log_start
        return SharePartition(
            SharePartitionState(0, self.written.start_offset, self.written.batches),
            start_offset=start,
            log_end_offset=self.model.end,
            limits=LIMITS,
            key_ordered=self.key_ordered,
        )

    # -- events ------------------------------------------------------------------------------------------------------

    @initialize(keys=st.lists(st.sampled_from(KEYS), min_size=4, max_size=8))
    def begin(self, keys: list[bytes | None]) -> None:
        for at in range(0, len(keys), 2):
            self.append(keys[at : at + 2], 0, set(), True)

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6),
        gap=st.integers(0, 2),
        missing=st.sets(st.integers(0, 5), max_size=2),
        deliverable=st.booleans() | st.just(True),
    )
    def append(self, keys: list[bytes | None], gap: int, missing: set[int], deliverable: bool) -> None:
        first = self.model.end + gap
        records = {first + at: key for at, key in enumerate(keys) if at not in missing}
        self.model.log.append(Batch(first, first + len(keys) - 1, deliverable, records if deliverable else {}))
        self.model.end = first + len(keys)

    @rule(member=st.sampled_from(MEMBERS), max_records=st.integers(1, 12), batch_size=st.integers(1, 8))
    def fetch(self, member: str, max_records: int, batch_size: int) -> None:
        self.machine.move_start(self.model.log_start)
        until = self.now + LOCK
        if self.machine.is_key_ordered:
            ready = self.machine.ready(max_records)
            while len(ready) < max_records and (at := self.machine.unknown_from()) is not None and at < self.model.end:
                batch = next(batch for batch in self.model.log if batch.last >= at)
                fetched = Fetched(batch.first, batch.last, batch.deliverable)
                ready += self.machine.learn(fetched, sorted(batch.records.items()))
            ready = ready[:max_records]
            assert ready == self.machine.ready(max_records)
            acquired = self.machine.acquire_ready(member, ready, until=until, batch_size=batch_size)
        else:
            offset = self.machine.next_offset()
            if offset is None or offset >= self.model.end:
                return
            batches = [batch for batch in self.model.log if batch.last >= offset]
            acquired = self.machine.acquire(
                member,
                offset,
                [Fetched(batch.first, batch.last, batch.deliverable) for batch in batches],
                until=until,
                max_records=max_records,
                batch_size=batch_size,
            )
            sizes = [one.last + 1 - one.first for one in acquired]
            assert sum(sizes[:-1]) < max_records + 6, "at most one batch too many"
        self.given(member, acquired, until)

    def given(self, member: str, acquired: list[Acquired], until: float) -> None:
        records = self.records()
        last = -1
        for one in acquired:
            assert last < one.first <= one.last
            last = one.last
            for offset in range(one.first, one.last + 1):
                assert offset not in self.model.held, f"{offset} is held by {self.model.held[offset]}"
                assert offset not in self.model.done, f"{offset} was acknowledged"
                assert offset >= self.model.log_start
                assert any(batch.first <= offset <= batch.last and batch.deliverable for batch in self.model.log)
                assert one.delivery_count <= LIMITS.delivery_count_limit
                if self.machine.is_key_ordered:
                    self.check_key(offset, records)
                self.model.held[offset] = (member, until)
                self.model.deliveries[offset] = one.delivery_count

    def check_key(self, offset: int, records: dict[int, bytes | None]) -> None:
        assert offset in records, "only what is there"
        key = records[offset]
        if key is None:
            return
        earlier = [other for other, its in records.items() if its == key and self.model.log_start <= other < offset]
        assert all(self.is_finished(other) for other in earlier), f"{offset} overtakes one of {earlier}"

    def is_finished(self, offset: int) -> bool:
        if offset in self.model.done:
            return True
        runs = [run for run in self.machine.runs() if run.first <= offset <= run.last]
        return runs[0].status.is_finished if runs else offset < self.machine.start_offset

    def records(self) -> dict[int, bytes | None]:
        return {offset: key for batch in self.model.log for offset, key in batch.records.items()}

    @rule(
        member=st.sampled_from(MEMBERS),
        part=st.integers(1, 100),
        kinds=st.lists(st.sampled_from((GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT)), min_size=1, max_size=4),
        outcome=st.sampled_from((None, *OUTCOMES)),
    )
    def acknowledge(self, member: str, part: int, kinds: list[int], outcome: str | None) -> None:
        """Some of what the member holds; written now or later."""
        said_already = {offset for said in self.model.saying.values() for offset in said}
        mine = sorted(at for at, (holder, _) in self.model.held.items() if holder == member and at not in said_already)
        chosen = mine[: max(1, len(mine) * part // 100)]
        if not chosen:
            return
        said = {offset: kinds[at % len(kinds)] for at, offset in enumerate(chosen)}
        number = self.machine.acknowledge(member, [Acknowledgement(at, at, [kind]) for at, kind in said.items()])
        if number:
            self.model.saying.setdefault(number, {}).update(said)
        else:
            self.forget(at for at in said if at < self.machine.start_offset)
        if outcome is not None:
            self.begin_write()
            if self.on_the_way is not None:
                self.end_write(outcome)

    @precondition(lambda self: self.model.held)
    @rule(member=st.sampled_from(MEMBERS), which=st.integers(0, 99), length=st.integers(0, 3))
    def acknowledge_what_is_not_held(self, member: str, which: int, length: int) -> None:
        said_already = {offset for said in self.model.saying.values() for offset in said}
        mine = {at for at, (holder, _) in self.model.held.items() if holder == member} - said_already
        first = sorted(self.model.held)[which % len(self.model.held)]
        offsets = range(max(first, self.machine.start_offset), first + length + 1)
        if not offsets or mine.issuperset(offsets):
            return
        before = self.machine.runs()
        with pytest.raises(ApiError) as error:
            self.machine.acknowledge(member, [Acknowledgement(first, first + length, [ACCEPT])])
        assert error.value.code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
        assert self.machine.runs() == before

    @rule(member=st.sampled_from(MEMBERS))
    def close_session(self, member: str) -> None:
        said_already = {offset for said in self.model.saying.values() for offset in said}
        self.machine.release(member)
        self.forget(at for at, (who, _) in self.model.held.items() if who == member and at not in said_already)

    @rule(seconds=st.floats(0.1, 15.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        said_already = {offset for said in self.model.saying.values() for offset in said}
        due = [at for at, (_, until) in self.model.held.items() if until <= self.now and at not in said_already]
        expiry = self.machine.next_expiry()
        below = all(at < self.machine.start_offset for at in due)
        assert below or (expiry is not None and expiry <= self.now), "the timer comes in time"
        self.machine.expire(self.now)
        self.forget(due)

    def forget(self, offsets: "object") -> None:
        for offset in list(offsets):  # type: ignore[call-overload]
            self.model.held.pop(offset, None)

    @rule()
    def begin_write(self) -> None:
        if self.on_the_way is None:
            self.on_the_way = self.machine.take_write()

    @precondition(lambda self: self.on_the_way is not None)
    @rule(outcome=st.sampled_from(OUTCOMES))
    def end_write(self, outcome: str) -> None:
        write, self.on_the_way = self.on_the_way, None
        assert write is not None
        if outcome != "refused":
            self.written.add(write)
        committed = outcome == "written"
        self.machine.written(committed=committed)
        for offset, kind in self.model.saying.pop(write.number, {}).items():
            if committed:
                self.model.held.pop(offset, None)
                if kind != RELEASE:
                    self.model.done.add(offset)

    @rule(part=st.floats(0, 1))
    def retention(self, part: float) -> None:
        """The log loses whole batches."""
        self.model.log_start = max(self.model.log_start, int(self.model.end * part * 0.5))
        self.machine.move_start(self.model.log_start)
        self.forget([at for at in self.model.held if at < self.model.log_start])

    @rule(reached=st.booleans())
    def new_leader(self, reached: bool) -> None:
        """The old one is gone in the middle of whatever it was doing; its last write may have arrived."""
        if self.on_the_way is not None and reached:
            self.written.add(self.on_the_way)
        self.on_the_way = None
        self.model.held.clear()
        self.model.saying.clear()
        self.machine = self.lead()

    def teardown(self) -> None:
        """Whoever is left can finish everything."""
        if self.on_the_way is not None:
            self.end_write("written")
        self.pass_time(LOCK + 1)
        self.begin_write()
        if self.on_the_way is not None:
            self.end_write("written")
        remembered = {at: one for one in self.written.batches for at in range(one.first_offset, one.last_offset + 1)}
        for run in self.machine.runs():
            for offset in range(run.first, run.last + 1) if run.status.delivery_count else ():
                assert remembered[offset].delivery_count >= run.status.delivery_count, "a delivery is forgotten"
        for _ in range(1_000):
            self.begin_write()
            if self.on_the_way is not None:
                self.end_write("written")
            if self.machine.start_offset >= self.model.end:
                break
            self.fetch("m1", 7, 3)
            held = {offset for offset in self.model.held if offset >= self.machine.start_offset}
            if held:
                number = self.machine.acknowledge("m1", [Acknowledgement(at, at, [ACCEPT]) for at in sorted(held)])
                self.model.saying[number] = dict.fromkeys(held, ACCEPT)
        assert self.machine.start_offset >= self.model.end, f"stuck at {self.machine.runs()}"
        self.nothing_is_passed_over()
        assert self.written.start_offset == self.machine.start_offset, "all of it is written"

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def what_is_held_is_held(self) -> None:
        by_offset = {at: run.status for run in self.machine.runs() for at in range(run.first, run.last + 1)}
        said_already = {offset for said in self.model.saying.values() for offset in said}
        for offset, (member, until) in self.model.held.items():
            if offset < self.machine.start_offset:
                assert offset < self.model.log_start
                continue
            held = by_offset[offset].held
            assert held is not None
            assert (held.member, held.until) == (member, until)
            assert by_offset[offset].is_held or offset in said_already

    @invariant()
    def nothing_is_passed_over(self) -> None:
        """What lies before the start was acknowledged, given up, or is not in the log."""
        records = self.records()
        for offset in range(self.model.log_start, self.machine.start_offset):
            assert (
                offset in self.model.done
                or offset not in records
                or self.model.deliveries.get(offset, 0) >= LIMITS.delivery_count_limit
                or self.was_written_as_finished(offset)
            ), offset

    def was_written_as_finished(self, offset: int) -> bool:
        """Written though the one who said it never heard so: that may happen."""
        return offset < self.written.start_offset or any(
            batch.first_offset <= offset <= batch.last_offset and batch.delivery_state != RecordState.AVAILABLE
            for batch in self.written.batches
        )

    @invariant()
    def what_is_done_is_written(self) -> None:
        for offset in self.model.done:
            assert offset < self.model.log_start or self.was_written_as_finished(offset), offset

    @invariant()
    def not_too_much_is_under_way(self) -> None:
        runs = self.machine.runs()
        if not self.machine.is_key_ordered and not self.key_ordered:
            held = sum(run.last + 1 - run.first for run in runs if run.status.is_held)
            assert held <= LIMITS.max_record_locks + 6


class KeyedLives(Lives):
    key_ordered = True

    @invariant()
    def one_record_of_a_key_is_held(self) -> None:
        records = self.records()
        keys = [records[offset] for offset in self.model.held if records[offset] is not None]
        assert len(keys) == len(set(keys))


class ChangingLives(Lives):
    """The group's order changes; then only new records are given in the new order."""

    @rule()
    def change_order(self) -> None:
        self.key_ordered = not self.key_ordered
        self.machine.set_order(key_ordered=self.key_ordered)


EXAMPLES = settings(max_examples=40, stateful_step_count=50, deadline=None)

TestAnyOrder = Lives.TestCase
TestAnyOrder.settings = EXAMPLES
TestKeyOrder = KeyedLives.TestCase
TestKeyOrder.settings = EXAMPLES
TestChangingOrder = ChangingLives.TestCase
TestChangingOrder.settings = EXAMPLES
