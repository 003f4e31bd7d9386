from pathlib import Path

import pytest
from tests.unit.log.driver import Disk, LogDriver, offsets, read_all

from ottla.errors import KafkaStorageError
from ottla.log.partition_log import PartitionLog


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_failed_append_leaves_nothing_and_the_next_one_works(
    driver: LogDriver, disk: Disk, log: PartitionLog, room: int
) -> None:
    driver.append(log, 2, producer_id=1, producer_epoch=0, base_sequence=0)
    size = log.size_bytes
    disk.room = room
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="No space left"):
            driver.append(log, 2, producer_id=1, producer_epoch=0, base_sequence=2)
    assert log.size_bytes == size
    assert log.log_end_offset == 2
    assert offsets(read_all(log)) == [0, 1]
    disk.room = None
    info = driver.append(log, 2, producer_id=1, producer_epoch=0, base_sequence=2)
    assert (info.first_offset, info.duplicate) == (2, False)
    assert offsets(read_all(log)) == list(range(4))
    log = driver.crash(log)
    assert offsets(read_all(log)) == list(range(4))
    log.release()


def test_a_torn_append_is_cut_off_before_a_shorter_one(driver: LogDriver, disk: Disk, log: PartitionLog) -> None:
    driver.append(log)
    disk.room = 5000
    with pytest.raises(KafkaStorageError):
        driver.append(log, value_bytes=6000)
    disk.room = None
    driver.append(log, value_bytes=10)
    assert Path(log.segments[0].path).stat().st_size == log.size_bytes
    log = driver.crash(log)
    assert log.log_end_offset == 2
    log.release()


def test_a_torn_append_is_cut_off_by_closing(driver: LogDriver, disk: Disk, log: PartitionLog) -> None:
    driver.append(log)
    disk.room = 100
    with pytest.raises(KafkaStorageError):
        driver.append(log, value_bytes=6000)
    disk.room = None
    log = driver.reopen(log)
    assert offsets(read_all(log)) == [0]
    log.release()


def test_a_roll_that_fails_is_repeated(driver: LogDriver, disk: Disk) -> None:
    log = driver.open(clean=True, segment_bytes=1000)
    driver.fill(log, 3)
    disk.room = 3
    with pytest.raises(KafkaStorageError):
        driver.fill(log, 5)
    assert len(log.segments) == 1
    end = log.log_end_offset
    assert offsets(read_all(log)) == list(range(end))
    disk.room = None
    driver.fill(log, 5)
    assert len(log.segments) > 1
    assert offsets(read_all(log)) == list(range(end + 10))
    log = driver.crash(log)
    assert offsets(read_all(log)) == list(range(end + 10))
    log.release()


def test_an_empty_segment_of_a_failed_roll_is_not_taken_for_the_end(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 5)
    for suffix in (".log", ".index", ".timeindex"):
        (driver.directory / f"{6:020d}{suffix}").write_bytes(b"")
    log = driver.crash(log)
    assert log.log_end_offset == 10
    assert offsets(read_all(log)) == list(range(10))
    log.release()


def test_full_index_blocks_wait_for_room(driver: LogDriver, disk: Disk) -> None:
    log = driver.open(clean=True, index_interval_bytes=0)
    size = driver.batch(1, value_bytes=10).nbytes
    disk.room = size  # enough for a batch, not for a block of 4 KB
    driver.fill(log, 1500, count=1, value_bytes=10)
    assert len(log.segments[0].offset_index) == 1499
    disk.room = None
    log = driver.reopen(log)
    assert len(log.segments[0].offset_index) == 1499
    for offset in (0, 511, 512, 513, 1400):
        assert offsets(read_all(log, start=offset))[0] == offset
    log.release()


def test_readers_go_on(driver: LogDriver, disk: Disk) -> None:
    log = driver.open(clean=True, segment_bytes=3000)
    driver.fill(log, 50)
    log = driver.reopen(log)
    disk.room = 0
    with pytest.raises(KafkaStorageError):
        driver.append(log)
    assert offsets(read_all(log)) == list(range(100))
    log.release()


def test_a_file_that_may_not_grow_is_followed_by_another(driver: LogDriver, disk: Disk, log: PartitionLog) -> None:
    """By a limit of the process or of the filesystem, below `segment.bytes`: the disk has room."""
    disk.largest_file = 5000
    for _ in range(10):
        driver.append(log, 1, value_bytes=1500)
    assert len(log.segments) == 4
    assert offsets(read_all(log)) == list(range(10))
    log = driver.crash(log)
    assert offsets(read_all(log)) == list(range(10))
    with pytest.raises(KafkaStorageError, match="too large"):
        driver.append(log, 1, value_bytes=6000)
    log.release()
