"""Logs without records: they have no segment files, and their first record makes them, durably."""

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.driver import SetClock

from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.names import LEADER_EPOCHS
from ottla.log.partition_log import PartitionLog
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Operation, Survival

TP = TopicPartition(TopicName("t"), PartitionId(0))
TOPIC_ID = TopicId(UUID(int=7))
DIRECTORY = f"/data/{TP}"
SEGMENT = {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}


@pytest.fixture
def fs() -> FaultyFS:
    fs = FaultyFS()
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


def directories(fs: FaultyFS) -> LogDirectories:
    found = LogDirectories([Path("/data")], fs=fs, clock=SetClock())
    found.acquire(cluster_id="c", node_id=BrokerId(1))
    found.load_all(lambda topic: LogConfig())
    return found


def opened(fs: FaultyFS) -> PartitionLog:
    """The log as a new process finds it."""
    log = directories(fs).get(TP)
    assert log is not None
    return log


def names(fs: FaultyFS) -> set[str]:
    return {name for name, _, _ in fs.names(DIRECTORY)}


def append(log: PartitionLog) -> None:
    log.append_as_leader(memoryview(encode_batch([Record(0, 1, None, b"v")])), LeaderEpoch(3))


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_was_never_written_is_found_again_without_files_and_can_be_written(
    fs: FaultyFS, *, is_clean: bool
) -> None:
    here = directories(fs)
    here.create_log(TP, TOPIC_ID, LogConfig())
    if is_clean:
        here.close()
    else:
        fs.crash(Survival.EVERYTHING)
    log = opened(fs)
    assert (log.topic_id, log.log_end_offset, log.is_cut_synced) == (TOPIC_ID, 0, True)
    assert not names(fs) & SEGMENT
    append(log)
    assert names(fs) > SEGMENT
    assert log.log_end_offset == 1


@pytest.mark.parametrize("is_synced_before", [True, False])
def test_the_first_record_and_the_names_of_its_files_survive_a_power_failure(
    fs: FaultyFS, *, is_synced_before: bool
) -> None:
    log = directories(fs).create_log(TP, TOPIC_ID, LogConfig())
    if is_synced_before:
        log.assign_epoch_start(LeaderEpoch(3))
        log.flush()
        assert not names(fs) & SEGMENT
    append(log)
    log.flush()
    fs.crash(Survival.NOTHING)
    assert opened(fs).log_end_offset == 1


@pytest.mark.parametrize("is_clean", [True, False])
def test_leader_epochs_come_to_the_disk_with_the_first_record(fs: FaultyFS, *, is_clean: bool) -> None:
    """A broker that stops has been elected for thousands of partitions without records."""
    here = directories(fs)
    log = here.create_log(TP, TOPIC_ID, LogConfig())
    log.flush()
    log.assign_epoch_start(LeaderEpoch(2))
    assert log.prepare_flush() is None
    assert LEADER_EPOCHS not in names(fs)
    append(log)
    log.flush()
    assert fs.read_bytes(f"{DIRECTORY}/{LEADER_EPOCHS}") == b"0\n1\n3 0\n"
    if is_clean:
        here.close()
    else:
        fs.crash(Survival.NOTHING)
    assert opened(fs).leader_epochs.entries() == [(3, 0)]


def test_epochs_that_a_log_without_records_had_do_not_outlive_its_first_record(fs: FaultyFS) -> None:
    log = directories(fs).create_log(TP, TOPIC_ID, LogConfig())
    log.flush()
    fs.write_bytes(f"{DIRECTORY}/{LEADER_EPOCHS}", b"0\n1\n2 0\n", sync=True)
    fs.crash(Survival.EVERYTHING)
    append(opened(fs))
    fs.crash(Survival.EVERYTHING)
    assert opened(fs).leader_epochs.entries() == [(3, 0)]


def test_a_full_disk_refuses_the_first_record_and_leaves_no_file(fs: FaultyFS) -> None:
    log = directories(fs).create_log(TP, TOPIC_ID, LogConfig())
    fs.fail(Operation.CREATE, f"{DIRECTORY}/{0:020d}.timeindex", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match=os.strerror(errno.ENOSPC)):
        append(log)
    assert not names(fs) & SEGMENT
    fs.heal()
    append(log)
    log.flush()
    fs.crash(Survival.NOTHING)
    assert opened(fs).log_end_offset == 1


def test_segments_that_are_missing_behind_what_was_synced_are_reported(
    fs: FaultyFS, caplog: pytest.LogCaptureFixture
) -> None:
    here = directories(fs)
    append(here.create_log(TP, TOPIC_ID, LogConfig()))
    here.close()
    for name in SEGMENT:
        fs.remove(f"{DIRECTORY}/{name}")
    fs.remove(f"{DIRECTORY}/{1:020d}.snapshot")
    opened(fs)
    assert "what lay between is lost" in caplog.text
