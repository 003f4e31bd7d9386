"""Records deleted before they were synced: a power failure spoils them, but not those kept in the same file."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from ottla.config.log import LogConfig
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.records.record import Record, decode_records, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Survival
from ottla.testing.manual_clock import ManualClock

TP = TopicPartition(TopicName("flights"), PartitionId(0))
DIRECTORY = Path("/data/flights-0")
CONFIG = LogConfig()
SYNCED, DELETED_TO, END = 5, 40, 60
VALUE = b"v" * 100


def open_log(fs: FaultyFS, recovery_point: Offset, log_start: Offset) -> PartitionLog:
    return PartitionLog.open(
        DIRECTORY,
        TP,
        CONFIG,
        fs=fs,
        clock=ManualClock(),
        recovery_point=recovery_point,
        log_start_offset=log_start,
    )


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(encode_batch([Record(0, 1_700_000_000_000, b"k", VALUE)]), LeaderEpoch(0))
    log.high_watermark = log.log_end_offset


def trimmed_log(fs: FaultyFS) -> PartitionLog:
    """One segment: a little is synced, and more is deleted than that."""
    fs.make_directory("/data")
    fs.sync_directory("/")
    log = open_log(fs, Offset(0), Offset(0))
    append(log, SYNCED)
    log.flush()
    fs.sync_directory("/data")
    append(log, END - SYNCED)
    log.delete_records_before(Offset(DELETED_TO))
    return log


def read_each(log: PartitionLog) -> None:
    """Raises CorruptMessage if what the log says that it holds cannot be read."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        found = log.read_blocking(Offset(offset), 100, upper_bound=log.log_end_offset, min_one_message=True)
        assert [(record.offset, record.value) for record in decode_records(found.data)] == [(offset, VALUE)]


@pytest.mark.parametrize("kills", [0, 1], ids=["the power fails", "the process is killed, then the power fails"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_can_be_read_when_what_was_deleted_is_spoiled(seed: int, kills: int) -> None:
    fs = FaultyFS(seed=seed)
    log = trimmed_log(fs)
    for _ in range(kills):
        checkpointed = log.checkpointed
        fs.end_process()
        log = open_log(fs, *checkpointed)
        assert (log.log_start_offset, log.log_end_offset) == (DELETED_TO, END)
    checkpointed = log.checkpointed
    fs.crash(Survival.RANDOM)
    log = open_log(fs, *checkpointed)
    assert log.log_start_offset == DELETED_TO
    read_each(log)
    append(log, 10)
    read_each(log)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_was_synced_is_lost(seed: int) -> None:
    fs = FaultyFS(seed=seed)
    log = trimmed_log(fs)
    log.flush()
    append(log, 10)
    checkpointed = log.checkpointed
    fs.crash(Survival.RANDOM)
    log = open_log(fs, *checkpointed)
    assert log.log_start_offset == DELETED_TO
    assert log.log_end_offset >= END
    read_each(log)


def test_a_truncation_below_the_log_start_is_checkpointed_before_it_happens() -> None:
    """Else a crash would take the records that are copied there later for deleted ones."""
    log = trimmed_log(FaultyFS())
    written: list[tuple[int, int]] = []
    log.prepare_checkpoints = lambda: Mock(write=lambda: written.append(log.checkpointed))
    assert log.expect_cut(Offset(DELETED_TO - 10))
    log.end_cut()
    log.truncate_to(Offset(DELETED_TO - 10))
    assert written == [(SYNCED, DELETED_TO - 10)]
