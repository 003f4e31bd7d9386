from pathlib import Path

import pytest
from tests.unit.log.driver import Disk, LogDriver, offsets, read_all

from ottla.errors import KafkaStorageError
from ottla.ids import LeaderEpoch, Offset
from ottla.log.partition_log import PartitionLog


def test_a_ticket_covers_what_was_appended_before_it(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 3)
    ticket = log.prepare_flush()
    assert ticket is not None
    driver.fill(log, 2)
    ticket.sync()
    log.flushed(ticket)
    assert log.recovery_point == 6
    log.flush()
    assert log.recovery_point == 10
    assert log.prepare_flush() is None


def test_rolled_segments_and_epochs_are_synced_too(driver: LogDriver, disk: Disk) -> None:
    log = driver.open(clean=True, segment_bytes=1000)
    log.flush()
    driver.fill(log, 20, epoch=3)
    disk.syncs = 0
    ticket = log.prepare_flush()
    assert ticket is not None
    ticket.sync()
    assert disk.syncs >= len(log.segments) + 2 * (len(log.segments) - 1)
    log.flushed(ticket)
    assert (driver.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"
    log.release()


def test_a_ticket_outlives_its_segments(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=1000, retention_bytes=0)
    driver.fill(log, 20)
    ticket = log.prepare_flush()
    assert ticket is not None
    log.high_watermark = log.log_end_offset
    deletion = log.apply_retention(driver.clock.ms)
    assert deletion is not None
    deletion.remove()
    ticket.sync()
    log.flushed(ticket)
    assert log.prepare_flush() is not None, "the directory has changed since"
    log.release()


def test_after_a_failed_sync_the_data_is_written_again(driver: LogDriver, disk: Disk, log: PartitionLog) -> None:
    driver.fill(log, 2)
    log.flush()
    driver.fill(log, 5)
    path = Path(log.segments[0].path)
    before = path.read_bytes()
    ticket = log.prepare_flush()
    assert ticket is not None
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output error"):
        ticket.sync()
    log.flush_failed(ticket)
    assert log.recovery_point == 4
    driver.fill(log, 1)
    again = log.prepare_flush()
    assert again is not None
    assert len(again.rewrites) == 1
    again.sync()
    log.flushed(again)
    assert log.recovery_point == 16
    assert path.read_bytes()[: len(before)] == before
    driver.fill(log, 1)
    after = log.prepare_flush()
    assert after is not None
    assert not after.rewrites


def test_the_work_of_syncs_that_fail_again_and_again_does_not_grow(
    driver: LogDriver, disk: Disk, log: PartitionLog
) -> None:
    for _ in range(3):
        driver.fill(log, 2)
        log.roll()
    sizes = []
    for _ in range(5):
        ticket = log.prepare_flush()
        assert ticket is not None
        sizes.append(len(ticket.work.segments) + len(ticket.work.paths) + len(ticket.work.directories))
        disk.failing_syncs = 1
        with pytest.raises(OSError, match="Input/output error"):
            ticket.sync()
        log.flush_failed(ticket)
    assert max(sizes) == sizes[0]
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_what_a_failed_sync_has_lost_is_not_vouched_for(driver: LogDriver, disk: Disk, log: PartitionLog) -> None:
    driver.fill(log, 5)
    disk.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush()
    with open(log.segments[0].path, "r+b") as file:
        file.seek(150)
        file.write(bytes(30))
    with pytest.raises(KafkaStorageError, match="cannot be restored"):
        log.flush()
    assert log.recovery_point == 0


def test_a_rewrite_does_not_touch_what_comes_after_a_truncation(
    driver: LogDriver, disk: Disk, log: PartitionLog
) -> None:
    driver.fill(log, 5)
    disk.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush()
    ticket = log.prepare_flush()
    assert ticket is not None
    log.truncate_to(Offset(4))
    driver.append(log, 3, epoch=1, value_bytes=7)
    ticket.sync()
    log.flushed(ticket)
    assert log.recovery_point == 0
    assert offsets(read_all(log)) == list(range(7))
    log.flush()
    assert log.recovery_point == 7


def test_an_epoch_alone_is_worth_a_flush_of_a_log_with_records(log: PartitionLog, driver: LogDriver) -> None:
    driver.append(log, 1)
    log.flush()
    assert log.prepare_flush() is None
    log.assign_epoch_start(LeaderEpoch(2))
    assert log.prepare_flush() is not None
