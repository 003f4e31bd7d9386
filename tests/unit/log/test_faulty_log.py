"""Log directories on a disk that loses, tears and reorders: hypothesis drives appends, flushes, rolls, truncation,
retention, full disks, failed syncs and crashes at any file operation, and checks after every restart what must hold.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.flush import FlushTicket
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.records.batch import BatchHeader, is_intact, iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.testing.faulty_fs import Crashed, FaultyFS, Operation, Survival
from ottla.testing.manual_clock import ManualClock

TP = TopicPartition(TopicName("flights"), PartitionId(0))
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150, retention_ms=-1, segment_index_bytes=10_000)
EPOCH = LeaderEpoch(0)
SURVIVALS = st.sampled_from(list(Survival))


class FaultyLog(RuleBasedStateMachine):
    """A log and what is known of it: `values` by offset, each with what else may stand there after a crash."""

    config = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.fs = FaultyFS()
        self.clock = ManualClock()
        self.values: list[bytes] = []
        """The value of each record, by offset."""
        self.former: dict[int, set[bytes]] = {}
        """By offset: values that were truncated away, and may come back while the truncation is not synced."""
        self.synced_end = 0
        self.log_start = 0
        self.next_sequence: dict[int, int] = {}
        self.last_batch: dict[int, tuple[int, int, bytearray]] = {}
        """By producer: first and last offset of its newest batch, and the batch."""
        self.counter = 0

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.fs = FaultyFS(seed=seed, clock=self.clock, block_bytes=64)
        self.fs.make_directory("/data")
        self.fs.sync_directory("/")
        self.open()
        self.directories.create_log(TP, None, self.config)
        self.sync()

    @property
    def log(self) -> PartitionLog:
        log = self.directories.get(TP)
        assert log is not None
        return log

    def open(self) -> None:
        self.directories = LogDirectories([Path("/data")], fs=self.fs, clock=self.clock)
        self.directories.acquire(cluster_id="c", node_id=BrokerId(1))
        self.directories.load_all(lambda _: self.config)

    def sync(self) -> None:
        ticket = self.log.prepare_flush()
        if ticket is not None:
            self.finish(ticket)

    def finish(self, ticket: FlushTicket) -> None:
        try:
            ticket.sync()
        except OSError:
            self.log.flush_failed(ticket)
            return
        self.log.flushed(ticket)
        self.log.high_watermark = self.log.recovery_point
        self.synced_end = max(self.synced_end, self.log.recovery_point)
        if ticket.end_offset == self.log.log_end_offset:
            self.former.clear()

    def survive(self, action: Callable[[], None], survival: Survival = Survival.RANDOM) -> None:
        """Does something during which the machine may crash."""
        try:
            action()
        except Crashed:
            self.restart(survival)

    def restart(self, survival: Survival) -> None:
        while True:
            self.fs.crash(survival)
            try:
                self.open()
                break
            except Crashed:
                continue
        self.check_survivors()

    def check_survivors(self) -> None:
        log = self.log
        assert log.log_end_offset >= self.synced_end, "what was synced is lost"
        assert log.log_start_offset <= max(self.log_start, log.log_end_offset)
        records = read_all(log)
        assert [record.offset for record in records] == list(range(log.log_start_offset, log.log_end_offset))
        kept = self.values[: log.log_end_offset]
        kept += [b""] * (log.log_start_offset - len(kept))  # all that is known may lie before the log's start
        for record in records:
            known = kept[record.offset] if record.offset < len(kept) else None
            if record.value != known:
                assert record.offset >= self.synced_end, f"record {record.offset} was altered"
                assert record.value in self.former.get(record.offset, ()), f"record {record.offset} is none of ours"
                assert record.value is not None
                kept[record.offset : record.offset + 1] = [record.value]
        self.values = kept
        self.log_start = log.log_start_offset
        self.synced_end = min(self.synced_end, log.log_end_offset)
        self.forget_lost_batches()

    def forget_lost_batches(self) -> None:
        """What producers know of the log after it was cut: compared with what the log knows of them."""
        self.last_batch.clear()
        state = self.log.producer_state.producers
        known: dict[int, int] = {}
        last: dict[int, tuple[int, int]] = {}
        for header in headers(self.log):
            if header.producer_id >= 0:
                known[header.producer_id] = header.last_sequence
                last[header.producer_id] = (header.base_offset, header.last_offset)
        for producer_id, sequence in known.items():
            assert state[producer_id].last_sequence == sequence, f"producer {producer_id} is not known any more"
            assert state[producer_id].batches[-1][2:4] == last[producer_id]
        self.next_sequence = {pid: entry.last_sequence + 1 for pid, entry in state.items()}

    # --- what happens ------------------------------------------------------------------------------------------

    def batch(self, count: int, size: int, **options: Any) -> tuple[list[bytes], bytearray]:
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(b"%d:" % self.counter + bytes([self.counter % 251]) * size)
        records = [Record(i, self.clock.now_ms(), b"k", value) for i, value in enumerate(values)]
        return values, encode_batch(records, **options)

    def append(self, values: list[bytes], batch: bytearray) -> bool:
        log = self.log
        end, size = log.log_end_offset, log.size_bytes
        try:
            info = log.append_as_leader(bytearray(batch), EPOCH)
        except KafkaStorageError:
            assert (log.log_end_offset, log.size_bytes) == (end, size)
            return False
        assert info.first_offset == end == len(self.values)
        self.values += values
        return True

    @rule(count=st.integers(1, 4), size=st.integers(0, 400), survival=SURVIVALS)
    def append_records(self, count: int, size: int, survival: Survival) -> None:
        values, batch = self.batch(count, size)

        def action() -> None:
            self.values_if_lost(values)
            self.append(values, batch)

        self.survive(action, survival)

    @rule(producer_id=st.integers(1, 2), count=st.integers(1, 3), size=st.integers(0, 200), survival=SURVIVALS)
    def append_idempotently(self, producer_id: int, count: int, size: int, survival: Survival) -> None:
        sequence = self.next_sequence.get(producer_id, 0)
        values, batch = self.batch(count, size, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

        def action() -> None:
            first = self.log.log_end_offset
            self.values_if_lost(values)
            if self.append(values, batch):
                self.next_sequence[producer_id] = sequence + count
                self.last_batch[producer_id] = (first, first + count - 1, batch)

        self.survive(action, survival)

    @rule(producer_id=st.integers(1, 2))
    def send_again(self, producer_id: int) -> None:
        if producer_id in self.last_batch:
            first, last, batch = self.last_batch[producer_id]
            info = self.log.append_as_leader(bytearray(batch), EPOCH)
            assert (info.duplicate, info.first_offset, info.last_offset) == (True, first, last)

    def values_if_lost(self, values: list[bytes]) -> None:
        """An append that the crash interrupts may be found in the log."""
        for offset, value in enumerate(values, len(self.values)):
            self.former.setdefault(offset, set()).add(value)

    @rule(survival=SURVIVALS)
    def flush(self, survival: Survival) -> None:
        self.survive(self.sync, survival)

    @rule(count=st.integers(1, 3), size=st.integers(0, 600), survival=SURVIVALS)
    def append_during_flush(self, count: int, size: int, survival: Survival) -> None:
        def action() -> None:
            ticket = self.log.prepare_flush()
            values, batch = self.batch(count, size)
            self.values_if_lost(values)
            self.append(values, batch)
            if ticket is not None:
                self.finish(ticket)

        self.survive(action, survival)

    @rule(survival=SURVIVALS)
    def roll(self, survival: Survival) -> None:
        def action() -> None:
            try:
                self.log.roll()
            except KafkaStorageError:
                return

        self.survive(action, survival)

    @rule(survival=SURVIVALS)
    def checkpoint(self, survival: Survival) -> None:
        def action() -> None:
            try:
                self.directories.directories[0].prepare_checkpoints().write()
            except OSError:
                return

        self.survive(action, survival)

    @rule(share=st.floats(0, 1), survival=SURVIVALS)
    def delete_records(self, share: float, survival: Survival) -> None:
        def action() -> None:
            log = self.log
            self.log_start = max(self.log_start, round(share * log.high_watermark))
            try:
                log.delete_records_before(Offset(self.log_start))
                before = log.recovery_point
                self.directories.directories[0].prepare_checkpoints().write()
                deletion = log.apply_retention(self.clock.now_ms(), before=before)
                if deletion is not None:
                    deletion.remove()
            except (KafkaStorageError, OSError):
                return

        self.survive(action, survival)

    @rule(back=st.integers(0, 12), prepared=st.booleans(), meanwhile=st.booleans(), survival=SURVIVALS)
    def truncate(self, back: int, prepared: bool, meanwhile: bool, survival: Survival) -> None:
        """`prepared`: the checkpoints are written before, for many logs; `meanwhile` all is synced and checkpointed."""
        offset = max(self.log_start, len(self.values) - back)

        def action() -> None:
            # what is cut, from the batch's beginning, is neither there nor gone for sure until the next sync
            cut = next((header.base_offset for header in headers(self.log) if header.last_offset >= offset), offset)
            directory = self.directories.directories[0]
            if prepared and self.log.expect_cut(Offset(offset)):
                with suppress(OSError):
                    directory.prepare_checkpoints().write()
                    self.log.cut_is_written()
            if meanwhile:
                self.sync()
                with suppress(OSError):
                    directory.prepare_checkpoints().write()
            self.synced_end = min(self.synced_end, cut)
            for at in range(len(self.values)):
                self.former.setdefault(at, set()).add(self.values[at])
            self.log.truncate_to(Offset(offset))
            self.log.end_cut()
            end = self.log.log_end_offset
            assert end <= offset
            self.synced_end = min(self.synced_end, end)
            self.values = self.values[:end] + [b""] * (end - len(self.values))
            self.log_start = self.log.log_start_offset
            self.forget_lost_batches()

        try:
            self.survive(action, survival)
        except KafkaStorageError:
            self.restart(survival)

    @rule(survival=SURVIVALS)
    def crash(self, survival: Survival) -> None:
        self.restart(survival)

    @rule(changes=st.integers(0, 25))
    def crash_soon(self, changes: int) -> None:
        self.fs.crash_after(changes)

    @rule(survival=SURVIVALS)
    def shut_down_and_restart(self, survival: Survival) -> None:
        def action() -> None:
            self.fs.capacity_bytes = None
            end = self.log.log_end_offset
            self.directories.close()
            self.fs.heal()
            self.open()
            assert self.log.log_end_offset == end
            self.log.high_watermark = self.log.recovery_point
            if self.log.recovery_point == end:
                self.synced_end = end
                if self.log.is_cut_synced:  # not if a sync failed when it was shut down
                    self.former.clear()
            self.check_survivors()

        self.survive(action, survival)

    @rule(room=st.integers(0, 3000))
    def disk_gets_full(self, room: int) -> None:
        self.fs.capacity_bytes = self.fs.used_bytes() + room

    @precondition(lambda self: self.fs.capacity_bytes is not None)
    @rule()
    def room_is_made(self) -> None:
        self.fs.heal()
        values, batch = self.batch(1, 10)

        def action() -> None:
            self.values_if_lost(values)
            assert self.append(values, batch), "writing does not resume"

        self.survive(action)

    @rule(skip=st.integers(0, 3))
    def sync_fails(self, skip: int) -> None:
        self.fs.fail(Operation.SYNC, skip=skip)

    @rule(operation=st.sampled_from([Operation.WRITE, Operation.CREATE, Operation.TRUNCATE]), skip=st.integers(0, 3))
    def operation_fails(self, operation: Operation, skip: int) -> None:
        self.fs.fail(operation, error=errno.EIO, skip=skip)

    @rule(likely=st.sampled_from([0.0, 0.5]))
    def reads_get_cold(self, likely: float) -> None:
        self.fs.cold_reads = likely

    @invariant()
    def everything_can_be_read(self) -> None:
        if self.directories.get(TP) is None:
            return
        records = read_all(self.log)
        assert [(r.offset, r.value) for r in records] == list(enumerate(self.values))[self.log.log_start_offset :]


def read_all(log: PartitionLog) -> list[Record]:
    """Every record by reads as clients make them; each batch whole and intact."""
    offset = log.log_start_offset
    records: list[Record] = []
    while offset < log.log_end_offset:
        result = log.read(offset, 1000, upper_bound=log.log_end_offset, min_one_message=True)
        data = (result.run() if isinstance(result, ColdRead) else result).data
        assert len(data), f"nothing to read at {offset} of {log}"
        first = offset
        for header in iter_batches(data):
            assert is_intact(data, header)
            records += [record for record in decode_records(data, header) if record.offset >= first]
            offset = Offset(header.next_offset)
    return records


def headers(log: PartitionLog) -> Iterator[BatchHeader]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_blocking(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).data
        for header in iter_batches(data):
            offset = Offset(header.next_offset)
            yield header


class PreallocatedFaultyLog(FaultyLog):
    """The same in segments that have their full length at once."""

    config = replace(CONFIG, preallocate=True)


SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
TestFaultyLog = FaultyLog.TestCase
TestFaultyLog.settings = SETTINGS
TestFaultyLog = pytest.mark.timeout(120)(TestFaultyLog)
TestPreallocatedFaultyLog = PreallocatedFaultyLog.TestCase
TestPreallocatedFaultyLog.settings = SETTINGS
TestPreallocatedFaultyLog = pytest.mark.timeout(120)(TestPreallocatedFaultyLog)


def test_no_segment_outlives_a_power_failure_without_those_before_it() -> None:
    """Nothing was synced yet, of the log or its names: what is left begins where the log began."""
    ends = []
    for seed in range(40):
        fs, clock = FaultyFS(seed=seed), ManualClock()
        fs.make_directory("/data")
        fs.sync_directory("/")
        directories = LogDirectories([Path("/data")], fs=fs, clock=clock)
        directories.acquire(cluster_id="c", node_id=BrokerId(1))
        log = directories.create_log(TP, None, CONFIG)
        while len(log.segments) < 4:
            log.append_as_leader(bytearray(encode_batch([Record(0, 1, None, b"v" * 100)])), EPOCH)
        fs.crash(Survival.SCATTERED)
        directories = LogDirectories([Path("/data")], fs=fs, clock=clock)
        directories.acquire(cluster_id="c", node_id=BrokerId(1))
        found = directories.load_all(lambda _: CONFIG).get(TP)
        if found is not None:
            assert (found.log_start_offset, found.segments[0].base_offset) == (0, 0), seed
            ends.append(found.log_end_offset)
        directories.close()
    assert len(ends) > 10
