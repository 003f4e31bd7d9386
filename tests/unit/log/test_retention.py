from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.driver import NOW_MS, LogDriver, offsets, read_all

from ottla.errors import OffsetOutOfRange
from ottla.ids import Offset
from ottla.log.partition_log import PartitionLog

SEGMENT_BATCHES = 5


def _open(driver: LogDriver, **config: Any) -> PartitionLog:
    size = driver.batch(1).nbytes
    return driver.open(clean=True, segment_bytes=SEGMENT_BATCHES * size, **config)


def _bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def _retain(driver: LogDriver, log: PartitionLog) -> int:
    deletion = log.apply_retention(driver.clock.ms)
    if deletion is None:
        return 0
    deletion.remove()
    return deletion.segment_count


def test_by_time(driver: LogDriver) -> None:
    log = _open(driver, retention_ms=1000)
    for number in range(20):
        driver.append(log, timestamp_ms=NOW_MS + 100 * number)
    log.high_watermark = log.log_end_offset
    driver.clock.ms = NOW_MS + 400 + 1000
    assert _retain(driver, log) == 0
    driver.clock.ms += 1
    assert _retain(driver, log) == 1
    assert _bases(log) == [5, 10, 15]
    assert log.log_start_offset == 5
    assert offsets(read_all(log)) == list(range(5, 20))
    names = {path.name for path in driver.directory.iterdir()}
    assert not [name for name in names if name.startswith(f"{0:020d}") or name.endswith(".deleted")]
    log.release()


def test_the_active_segment_too_goes_by_time(driver: LogDriver) -> None:
    log = _open(driver, retention_ms=1000)
    driver.fill(log, 8, count=1)
    log.high_watermark = log.log_end_offset
    driver.clock.ms += 10_000
    assert _retain(driver, log) == 2
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)
    assert _bases(log) == [8]
    assert _retain(driver, log) == 0
    driver.append(log)
    log = driver.reopen(log)
    assert offsets(read_all(log)) == [8]
    log.release()


def test_by_size(driver: LogDriver) -> None:
    size = driver.batch(1).nbytes
    log = _open(driver, retention_bytes=12 * size)
    driver.fill(log, 20, count=1)
    log.high_watermark = log.log_end_offset
    assert _retain(driver, log) == 1
    assert log.size_bytes == 15 * size, "whole segments go, and never too many"
    log.release()


def test_settings_may_change_meanwhile(driver: LogDriver) -> None:
    log = _open(driver)
    driver.fill(log, 20, count=1)
    log.high_watermark = log.log_end_offset
    assert _retain(driver, log) == 0
    log.update_config(replace(log.config, retention_bytes=0))
    assert _retain(driver, log) == 4
    log.release()


def test_only_below_the_high_watermark(driver: LogDriver) -> None:
    log = _open(driver, retention_bytes=0)
    driver.fill(log, 20, count=1)
    log.high_watermark = Offset(12)
    assert _retain(driver, log) == 2
    assert log.log_start_offset == 10
    log.release()


def test_compacted_topics_keep_what_is_old(driver: LogDriver) -> None:
    log = _open(driver, retention_bytes=0, retention_ms=0, delete=False, compact=True)
    driver.fill(log, 20, count=1)
    log.high_watermark = log.log_end_offset
    driver.clock.ms += 10_000
    assert _retain(driver, log) == 0
    log.delete_records_before(Offset(11))
    assert _retain(driver, log) == 2
    assert _bases(log) == [10, 15]
    log.release()


def test_deleted_records_are_gone_at_once_and_their_segments_later(driver: LogDriver) -> None:
    log = _open(driver)
    driver.fill(log, 20, count=1)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(Offset(1))
    log.high_watermark = Offset(18)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(Offset(19))
    assert log.delete_records_before(Offset(12)) == 12
    assert log.delete_records_before(Offset(3)) == 12
    assert offsets(read_all(log)) == list(range(12, 20))
    assert _bases(log) == [0, 5, 10, 15]
    assert _retain(driver, log) == 2
    assert log.leader_epochs.entries() == [(0, 12)]
    log = driver.reopen(log)
    assert log.log_start_offset == 12
    log.release()


def test_files_wait_renamed_until_they_are_removed(driver: LogDriver) -> None:
    log = _open(driver, retention_bytes=0)
    driver.fill(log, 10, count=1)
    log.high_watermark = log.log_end_offset
    deletion = log.apply_retention(driver.clock.ms)
    assert deletion is not None
    assert deletion.size_bytes == 10 * driver.batch(1).nbytes
    waiting = sorted(path.name for path in driver.directory.glob("*.deleted"))
    assert f"{0:020d}.log.deleted" in waiting
    deletion.remove()
    deletion.remove()
    assert not list(driver.directory.glob("*.deleted"))
    log.release()


def test_time_without_timestamps_is_the_files(driver: LogDriver) -> None:
    log = _open(driver, retention_ms=1000)
    driver.fill(log, 6, count=1, timestamp_ms=-1)
    for record_file in Path(driver.directory).glob("*.log"):
        driver.clock.ms = record_file.stat().st_mtime_ns // 1_000_000
    log.high_watermark = log.log_end_offset
    assert _retain(driver, log) == 0
    driver.clock.ms += 5000
    assert _retain(driver, log) == 2
    log.release()


def test_a_log_is_emptied_when_the_name_of_the_empty_segment_is_on_the_disk(driver: LogDriver) -> None:
    """A crash could lose that name and keep the removal of all before it: the log would give its offsets away again."""
    log = _open(driver, retention_ms=1000)
    driver.fill(log, 8, count=1)
    log.flush()
    log.high_watermark = log.log_end_offset
    driver.clock.ms += 10_000
    assert log.apply_retention(driver.clock.ms, before=log.recovery_point) is None
    assert log.awaits_flush
    assert _bases(log) == [0, 5, 8]
    log.flush()
    assert not log.awaits_flush
    deletion = log.apply_retention(driver.clock.ms, before=log.recovery_point)
    assert deletion is not None
    assert deletion.segment_count == 2
    assert _bases(log) == [8]
    log.release()
