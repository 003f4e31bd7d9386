import os
import tracemalloc
from itertools import pairwise
from pathlib import Path

from tests.unit.log.driver import NOW_MS, LogDriver, offsets, read_all

from ottla.log.partition_log import PartitionLog
from ottla.log.time_index import TimestampOffset


def _bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_by_size(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=1000)
    size = driver.batch(1).nbytes
    driver.fill(log, 20, count=1)
    each = 1000 // size
    assert _bases(log) == list(range(0, 20, each))
    assert all(segment.size == each * size for segment in log.segments[:-1])
    log.release()


def test_by_the_records_times(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_ms=1000)
    for later in (0, 500, 1000, 1001, 1500, 2001, 2002):
        driver.append(log, timestamp_ms=NOW_MS + later)
    assert _bases(log) == [0, 3, 6]
    driver.clock.ms += 10_000_000  # time alone rolls nothing that has timestamps
    driver.append(log, timestamp_ms=NOW_MS + 2003)
    assert _bases(log) == [0, 3, 6]
    log.release()


def test_by_age_without_timestamps(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_ms=1000)
    driver.append(log, timestamp_ms=-1)
    driver.clock.ms += 1000
    driver.append(log, timestamp_ms=-1)
    driver.clock.ms += 1
    driver.append(log, timestamp_ms=-1)
    assert _bases(log) == [0, 2]
    log.release()


def test_when_the_index_is_full(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_index_bytes=64, index_interval_bytes=0)
    driver.fill(log, 40, count=1)
    assert len(log.segments) == 5
    for segment in log.segments[:-1]:
        assert len(segment.offset_index) <= 8
        assert len(segment.time_index) <= 5
    assert offsets(read_all(log)) == list(range(40))
    log.release()


def test_when_an_offset_no_longer_fits(driver: LogDriver) -> None:
    log = driver.open(clean=True)
    for base in (0, 2**31 - 1, 2**31):
        batch = bytearray(driver.batch(1))
        batch[0:8] = base.to_bytes(8, "big")
        log.append_as_follower(batch)
    assert _bases(log) == [0, 2**31]
    log.release()


def test_an_empty_segment_is_not_rolled(driver: LogDriver) -> None:
    log = driver.open(clean=True)
    log.roll()
    driver.append(log)
    log.roll()
    log.roll()
    assert _bases(log) == [0, 1]
    log.release()


def test_a_rolled_segment_is_complete(driver: LogDriver) -> None:
    log = driver.open(clean=True, index_interval_bytes=500)
    for number in range(30):
        driver.append(log, timestamp_ms=NOW_MS + number % 20, producer_id=1, producer_epoch=0, base_sequence=number)
    log.roll()
    old = log.segments[0]
    index = Path(old.offset_index.path).read_bytes()
    assert len(index) % 8 == 0
    assert len(index) // 8 == len(old.offset_index) > 3
    assert old.time_index.last() == TimestampOffset(NOW_MS + 19, 19)
    assert Path(old.time_index.path).stat().st_size == 12 * len(old.time_index)
    assert (driver.directory / f"{30:020d}.snapshot").exists()
    log.release()


def test_jitter_takes_some_time_off(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_ms=1000, segment_jitter_ms=500)
    for later in range(0, 40_000, 50):
        driver.append(log, timestamp_ms=NOW_MS + later)
    bases = _bases(log)
    spans_ms = [50 * (after - before) for before, after in pairwise(bases)]
    assert all(500 < span <= 1050 for span in spans_ms), spans_ms
    assert len(set(spans_ms)) > 3
    log.release()


def test_ten_thousand_closed_segments_cost_neither_memory_nor_descriptors(driver: LogDriver) -> None:
    size = driver.batch(1).nbytes
    log = driver.open(clean=True, segment_bytes=50 * size)

    def grow(segments: int) -> None:
        driver.fill(log, 50 * segments, count=1)
        log.high_watermark = log.log_end_offset
        log.flush()
        for segment in log.segments:  # a consumer has read everything
            log.read_blocking(segment.base_offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True)
        assert log.apply_retention(driver.clock.ms) is None

    grow(20)
    descriptors = len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        grow(100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log.segments) >= 119
    assert (after - before) / 100 < 5000
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    log.release()
