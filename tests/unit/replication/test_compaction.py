"""What is compacted when, and what happens when it cannot be."""

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from ottla.config.log import LogConfig
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.cleaner import CleaningAborted
from ottla.log.directories import LogDirectories
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.replication.compaction import Compaction, Throttle
from ottla.testing.faulty_fs import FaultyFS, Operation
from ottla.testing.manual_clock import ManualClock

CONFIG = LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0.1)


@dataclass
class Settings:
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 10
    log_cleaner_dedupe_buffer_size: int = 1 << 20
    log_cleaner_io_buffer_size: int = 4096
    log_cleaner_io_max_bytes_per_second: float = 1e300


class Held:
    """A partition, led or followed, as far as compaction is concerned."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.topic_partition = log.topic_partition
        self.marked = 0

    def mark_dirty(self) -> None:
        self.marked += 1


class Bench:
    """Logs on a faulty disk and what compacts them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = FaultyFS(clock=self.clock)
        self.directories = LogDirectories([Path("/data")], fs=self.fs, clock=self.clock)
        self.directories.acquire(cluster_id="c", node_id=BrokerId(1))
        self.held: list[Held] = []
        self.compaction: Compaction | None = None

    def add(self, name: str, config: LogConfig = CONFIG) -> PartitionLog:
        log = self.directories.create_log(TopicPartition(TopicName(name), PartitionId(0)), None, config)
        self.held.append(Held(log))
        return log

    def partitions(self) -> list[Held]:
        return self.held

    def fill(self, log: PartitionLog, count: int, *, sync: bool = True) -> None:
        for number in range(count):
            log.append_as_leader(encode_batch([Record(0, self.clock.now_ms(), b"k", b"%d" % number)]), LeaderEpoch(0))
        log.roll()
        if sync:
            log.flush()
        log.high_watermark = log.log_end_offset

    async def round(self) -> bool:
        if self.compaction is None:
            loop = asyncio.get_running_loop()
            self.compaction = Compaction(
                cast(Any, Settings), cast(Any, self), self.directories, loop, self.clock
            )  # fmt: skip
        return await self.compaction.compact_dirtiest()

    def run(self, rounds: int = 1) -> list[bool]:
        async def all_of_them() -> list[bool]:
            self.compaction = cast("Compaction | None", None)
            done = [await self.round() for _ in range(rounds)]
            assert self.compaction is not None
            await self.compaction.close()
            return done

        return asyncio.run(all_of_them())


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.directories.close()


def batches_left(log: PartitionLog) -> int:
    return sum(segment.size for segment in log.segments)


def test_the_dirtiest_log_comes_first_and_then_the_others(bench: Bench) -> None:
    clean, dirty = bench.add("clean"), bench.add("dirty")
    bench.fill(clean, 5)
    bench.run(2)
    sizes = batches_left(clean)
    bench.fill(dirty, 50)
    assert bench.run(3) == [True, True, False]
    assert batches_left(dirty) < 200
    assert batches_left(clean) <= sizes
    (directory,) = bench.directories.directories
    assert directory.read_cleaner_offsets() == {clean.topic_partition: 5, dirty.topic_partition: 50}


def test_logs_without_compaction_are_left_alone(bench: Bench) -> None:
    bench.fill(bench.add("plain", LogConfig()), 10)
    assert bench.run() == [False]


def test_what_is_not_on_the_disk_is_synced_first(bench: Bench) -> None:
    log = bench.add("lazy")
    bench.fill(log, 10, sync=False)
    assert bench.run() == [False]
    assert bench.held[0].marked == 1
    log.flush()
    assert bench.run() == [True]


def test_without_room_it_rests_and_tries_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    log = bench.add("big")
    bench.fill(log, 10)
    fault = bench.fs.fail(Operation.WRITE, "*.cleaned", error=errno.ENOSPC, times=None)
    before = batches_left(log)

    async def scenario() -> None:
        assert not await bench.round()
        assert not await bench.round()
        assert fault.hits == 1, "not tried at once again"
        assert batches_left(log) == before
        fault.cancel()
        bench.clock.advance(seconds=61)
        assert await bench.round()
        assert bench.compaction is not None
        assert bench.compaction.uncleanable == {}
        await bench.compaction.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert [r.getMessage() for r in caplog.records if "big-0 is not compacted for now" in r.getMessage()]
    assert not [name for name, _, _ in bench.fs.names("/data/big-0") if name.endswith(".cleaned")]


def test_a_log_that_cannot_be_compacted_is_named_once_and_left_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log, other = bench.add("broken"), bench.add("whole")
    bench.fill(log, 10)
    bench.fill(other, 5)
    fault = bench.fs.fail(Operation.READ, "/data/broken-0/*.log", times=None)

    async def scenario() -> None:
        done = [await bench.round() for _ in range(4)]
        assert True in done, "others are compacted all the same"
        assert bench.compaction is not None
        assert list(bench.compaction.uncleanable) == [log.topic_partition]
        hits = fault.hits
        await bench.round()
        assert fault.hits == hits
        await bench.compaction.close()

    asyncio.run(scenario())
    assert len([r for r in caplog.records if "broken-0 cannot be compacted" in r.getMessage()]) == 1


def test_a_failed_rename_leaves_a_log_that_is_read_and_restarted(bench: Bench) -> None:
    for suffix in (".swap", ".cleaned", "00.log"):
        log = bench.add(f"t{suffix.strip('.')}")
        bench.fill(log, 10)
        bench.fs.fail(Operation.RENAME, f"/data/{log.topic_partition}/*{suffix}", skip=1)
        bench.run(2)
        data = log.read_blocking(log.log_start_offset, 1 << 20, upper_bound=10, min_one_message=True).data
        assert len(data)
    bench.fs.heal()
    partitions = [led.topic_partition for led in bench.held]
    bench.directories.close()
    bench.directories = LogDirectories([Path("/data")], fs=bench.fs, clock=bench.clock)
    bench.directories.acquire(cluster_id="c", node_id=BrokerId(1))
    bench.directories.load_all(lambda _: CONFIG)
    for partition in partitions:
        again = bench.directories.get(partition)
        assert again is not None
        assert again.log_end_offset == 10
        data = again.read_blocking(again.log_start_offset, 1 << 20, upper_bound=10, min_one_message=True).data
        assert len(data)


class RecordingStop(threading.Event):
    """Notes how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return self.is_set()


def test_the_throttle_keeps_to_the_rate() -> None:
    clock, stop = ManualClock(), RecordingStop()
    throttle = Throttle(lambda: 1000.0, clock, stop)
    time.sleep(0.001)
    throttle.pause(5000)
    assert stop.waits == [pytest.approx(5.0)]
    clock.advance(seconds=6)
    time.sleep(0.001)
    throttle.pause(500)
    assert len(stop.waits) == 1, "what was waited too long is not waited again"


def test_the_throttle_stops_the_round() -> None:
    stop = threading.Event()
    throttle = Throttle(lambda: 1e300, ManualClock(), stop)
    throttle.pause(10)
    stop.set()
    with pytest.raises(CleaningAborted):
        throttle.pause(10)


def test_a_coordinators_log_is_compacted_long_before_its_segment_is_full(bench: Bench) -> None:
    log = bench.add("__consumer_offsets")
    big = encode_batch([Record(0, bench.clock.now_ms(), b"k", b"v" * 1_000_000)])

    async def story() -> None:
        for _ in range(17):
            assert len(log.segments) == 1
            assert not await bench.round()
            log.append_as_leader(bytearray(big), LeaderEpoch(0))
        log.high_watermark = log.log_end_offset
        assert not await bench.round(), "it has to be on the disk first"
        log.flush()
        assert await bench.round()
        assert batches_left(log) < 2 << 20
        assert bench.compaction is not None
        await bench.compaction.close()

    asyncio.run(story())


def last_values(log: PartitionLog) -> list[bytes | None]:
    read = log.read_blocking(log.log_start_offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True)
    return [record.value for header in iter_batches(read.data) for record in decode_records(read.data, header)]


def test_what_comes_after_a_truncation_is_dirty_again(bench: Bench) -> None:
    """As when another replica is elected uncleanly: the checkpoint of what was compacted goes back with the log."""
    log = bench.add("cut")
    (directory,) = bench.directories.directories
    bench.fill(log, 10)

    async def story() -> None:
        assert await bench.round()
        log.truncate_to(Offset(0))
        bench.fill(log, 20)
        assert await bench.round()
        assert directory.read_cleaner_offsets() == {log.topic_partition: 20}
        assert last_values(log) == [b"19"]
        log.truncate_to(Offset(5))
        assert not await bench.round()
        assert directory.read_cleaner_offsets() == {log.topic_partition: log.log_end_offset}, "also after a crash"
        assert bench.compaction is not None
        await bench.compaction.close()

    asyncio.run(story())


def test_a_copy_that_takes_the_place_of_a_log_is_compacted_from_its_start(bench: Bench) -> None:
    """A move to another directory may have copied what the source had not compacted yet."""
    log = bench.add("moved")
    bench.fill(log, 10)

    async def story() -> None:
        assert await bench.round()
        bench.directories.delete_log(log.topic_partition)
        bench.held.clear()
        copy = bench.add("moved")
        bench.fill(copy, 10)
        assert await bench.round()
        assert last_values(copy) == [b"9"]
        assert bench.compaction is not None
        await bench.compaction.close()

    asyncio.run(story())


def test_retention_beside_compaction_is_no_fault_of_the_log(bench: Bench) -> None:
    log = bench.add("both", replace(CONFIG, delete=True, retention_bytes=0))
    bench.fill(log, 10)

    def shorten() -> None:
        deletion = log.apply_retention(bench.clock.now_ms())
        if deletion is not None:
            deletion.remove()

    async def story() -> None:
        (directory,) = bench.directories.directories
        write = directory.prepare_checkpoints

        def prepare() -> Any:
            shorten()
            return write()

        with patch.object(directory, "prepare_checkpoints", prepare):
            assert not await bench.round()
        assert bench.compaction is not None
        assert not bench.compaction.uncleanable
        await bench.compaction.close()

    asyncio.run(story())
