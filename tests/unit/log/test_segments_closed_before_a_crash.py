"""A power failure after a roll, before the next sync: the batches of the closed segment were synced and the name of the
next one has survived, but neither the closed one's cut nor its indexes have reached the disk.
"""

from pathlib import Path

import pytest
from tests.unit.log.driver import LogDriver, offsets, read_all

from ottla.config.log import LogConfig
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Survival
from ottla.testing.manual_clock import ManualClock

FIRST = "00000000000000000000"
DIRECTORY = Path("/data/flights-0")
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150, preallocate=True)


def rolled(driver: LogDriver, *, compact: bool = False) -> PartitionLog:
    """Everything is synced, then a segment begins."""
    log = driver.open(index_interval_bytes=300, compact=compact)
    driver.fill(log, 10, count=1)
    log.flush()
    log.roll()
    return log


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("unsynced", [0, 3])
@pytest.mark.parametrize("zeros", [1, 30, 60, 61, 5000])
def test_zeros_of_a_preallocated_segment_are_cut_off(
    driver: LogDriver, zeros: int, unsynced: int, compact: bool
) -> None:
    log = rolled(driver, compact=compact)
    closed = log.segments[0].size
    driver.fill(log, unsynced, count=1)
    with (driver.directory / f"{FIRST}.log").open("ab") as file:
        file.write(bytes(zeros))
    again = driver.crash(log)
    assert offsets(read_all(again)) == list(range(10 + unsynced)), "nothing is lost"
    assert (driver.directory / f"{FIRST}.log").stat().st_size == again.segments[0].size == closed
    again.release()


@pytest.mark.parametrize("left", [30, 100])
def test_the_rest_of_a_batch_that_was_truncated_away_is_cut_off(driver: LogDriver, left: int) -> None:
    log = rolled(driver)
    closed = log.segments[0].size
    with (driver.directory / f"{FIRST}.log").open("ab") as file:
        file.write(driver.batch()[:left])
    again = driver.crash(log)
    assert offsets(read_all(again)) == list(range(10))
    assert again.segments[0].size == closed
    driver.fill(again, 3, count=1)
    assert offsets(read_all(again)) == list(range(13))
    again.release()


def test_indexes_are_completed(driver: LogDriver) -> None:
    log = rolled(driver)
    paths = [driver.directory / f"{FIRST}.index", driver.directory / f"{FIRST}.timeindex"]
    before = [path.read_bytes() for path in paths]
    assert all(before)
    for path in paths:
        path.write_bytes(b"")
    again = driver.crash(log)
    assert [path.read_bytes() for path in paths] == before
    again.release()


def open_log(fs: FaultyFS, recovery_point: Offset) -> PartitionLog:
    return PartitionLog.open(
        DIRECTORY,
        TopicPartition(TopicName("flights"), PartitionId(0)),
        CONFIG,
        fs=fs,
        clock=ManualClock(),
        recovery_point=recovery_point,
        log_start_offset=Offset(0),
    )


def append(log: PartitionLog) -> None:
    log.append_as_leader(encode_batch([Record(0, 1_700_000_000_000, b"k", b"v" * 100)]), LeaderEpoch(0))


@pytest.mark.parametrize("crashes", [1, 2])
def test_the_next_sync_brings_the_repair_to_the_disk(crashes: int) -> None:
    """After it the recovery point lies behind the closed segment, which no recovery looks at again."""
    fs = FaultyFS()
    fs.make_directory("/data")
    fs.sync_directory("/")
    log = open_log(fs, Offset(0))
    for _ in range(5):
        append(log)
    log.flush()
    log.roll()
    for directory in ("/data", str(DIRECTORY)):
        fs.sync_directory(directory)
    for _ in range(crashes):
        fs.crash(Survival.NOTHING)
        log = open_log(fs, log.recovery_point)
        assert (len(log.segments), log.log_end_offset) == (2, 5)
    append(log)
    log.flush()
    fs.crash(Survival.NOTHING)
    log = open_log(fs, log.recovery_point)
    assert offsets(read_all(log)) == list(range(6))
    assert fs.read_bytes(f"{DIRECTORY}/{FIRST}.index"), "its indexes, too"
