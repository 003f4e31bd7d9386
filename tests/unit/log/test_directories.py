"""Several log directories, of which one fails, and copies that are to become logs."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.log.driver import SetClock

from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log import checkpoints, names
from ottla.log.directories import LogDirectories
from ottla.log.directory import RECOVERY_POINTS, LogDirectory
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Operation

CONFIG = LogConfig()
T0 = TopicPartition(TopicName("some-topic"), PartitionId(0))
T1 = TopicPartition(TopicName("some-topic"), PartitionId(1))


def opened(fs: FaultyFS, *, goes_on: bool = True) -> LogDirectories:
    directories = LogDirectories([Path("/a"), Path("/b")], fs=fs, clock=SetClock(), goes_on=goes_on)
    directories.acquire(cluster_id="c", node_id=BrokerId(1))
    directories.load_all(lambda topic: CONFIG)
    return directories


@pytest.fixture
def fs() -> FaultyFS:
    return FaultyFS()


@pytest.fixture
def directories(fs: FaultyFS) -> Iterator[LogDirectories]:
    found = opened(fs)
    yield found
    fs.heal()
    found.close()


def batch() -> bytearray:
    return encode_batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")])


def test_errors_of_the_disk_are_told(directories: LogDirectories, fs: FaultyFS) -> None:
    told: list[tuple[Path, int | None]] = []

    def tell(directory: LogDirectory, problem: OSError) -> None:
        told.append((directory.path, problem.errno))

    for directory in directories.directories:
        directory.on_error = tell
    log = directories.create_log(T0, None, CONFIG)
    fs.fail(Operation.WRITE, "/a/*")
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(), LeaderEpoch(0))
    fs.fail(Operation.MAKE_DIRECTORY, "/b/*", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        directories.create_log(T1, None, CONFIG)
    fs.fail(Operation.RENAME, "/a/*")
    with pytest.raises(KafkaStorageError):
        directories.delete_log(T0)
    assert told == [(Path("/a"), errno.EIO), (Path("/b"), errno.ENOSPC), (Path("/a"), errno.EIO)]


def test_one_that_has_failed_is_left_alone(directories: LogDirectories, fs: FaultyFS) -> None:
    directories.create_log(T0, None, CONFIG)
    first, second = directories.directories
    first.fail("it is broken")
    assert (directories.online, directories.all_online) == ([second], False)
    assert directories.get(T0) is None
    directories.create_log(T1, None, CONFIG)
    assert directories.directory_of(T1) is second
    with pytest.raises(KafkaStorageError, match="it is broken"):
        first.create(T0, None, CONFIG)
    fs.fail(Operation.WRITE, "/a/*", times=None)
    directories.close()  # does not touch it
    fs.heal()
    again = opened(fs)
    assert (again.directories[0].was_clean, again.directories[1].was_clean) == (False, True)
    assert again.get(T0) is not None
    again.close()


def test_one_that_is_broken_at_the_start_is_left_out_unless_it_is_the_last(fs: FaultyFS) -> None:
    opened(fs).close()
    fs.fail(Operation.LIST, "/b", times=None)
    directories = opened(fs)
    assert [directory.path for directory in directories.online] == [Path("/a")]
    assert "Input/output error" in str(directories.directories[1].offline_reason)
    directories.close()
    with pytest.raises(KafkaStorageError, match="/b"):
        opened(fs, goes_on=False)
    fs.fail(Operation.LIST, "/a", times=None)
    with pytest.raises(KafkaStorageError):
        opened(fs)


def test_a_partition_is_made_where_it_was_wanted(directories: LogDirectories) -> None:
    wanted = directories.at("/b")
    assert wanted is not None
    directories.preferred[T0] = wanted
    directories.create_log(T0, None, CONFIG)
    assert directories.directory_of(T0) is wanted
    assert directories.at("/c") is None


def test_a_copy_takes_the_place_of_a_log(directories: LogDirectories, fs: FaultyFS) -> None:
    source = directories.create_log(T0, None, CONFIG)
    source.append_as_leader(batch(), LeaderEpoch(0))
    source.append_as_leader(batch(), LeaderEpoch(3))
    source.assign_epoch_start(LeaderEpoch(5))
    source.high_watermark = Offset(4)
    source.delete_records_before(Offset(1))
    old, new = directories.directories
    future = new.begin_future(T0, source.topic_id, CONFIG)
    assert names.future_partition_of(future.directory.name) == T0
    future.truncate_fully_and_start_at(source.log_start_offset)
    read = source.read_blocking(1, 1 << 20, upper_bound=2, min_one_message=True)
    future.append_as_follower(read.data)
    future.close()
    copy = new.promote(future, CONFIG)
    assert (copy.log_end_offset, copy.recovery_point) == (2, 2)
    copy.append_as_follower(source.read_blocking(2, 1 << 20, upper_bound=4, min_one_message=True).data)
    ticket = source.prepare_flush()
    copy.succeed(source)
    old.give_away(T0)
    new.take_in(copy)
    assert ticket is not None
    ticket.sync()
    copy.flushed(ticket)
    assert copy.recovery_point == 2  # what was synced is the other one
    assert (copy.log_start_offset, copy.high_watermark, copy.log_end_offset) == (1, 4, 4)
    assert copy.leader_epochs.entries() == source.leader_epochs.entries()
    old.discard(source)
    assert not fs.exists(f"/a/{T0}")
    directories.close()
    again = opened(fs)
    found = again.get(T0)
    assert found is not None
    assert found.directory == Path(f"/b/{T0}")
    assert (found.log_start_offset, found.log_end_offset, found.latest_epoch) == (1, 4, 5)
    again.close()


def test_copies_are_found_by_the_next_process_and_removed_if_their_log_is_gone(fs: FaultyFS) -> None:
    directories = opened(fs)
    first, second = directories.directories
    first.create(T0, None, CONFIG)
    kept, gone = (second.begin_future(tp, None, CONFIG) for tp in (T0, T1))
    directories.close()
    again = opened(fs)
    assert again.directories[1].futures == {T0: kept.directory.name}
    assert not fs.exists(str(gone.directory))
    again.close()


# -- the disks that were here before ---------------------------------------------------------------------------------


def taken(directories: LogDirectories, recorded: dict[str, int]) -> dict[str, int]:
    directories.compare(recorded)
    return directories.take_into_use(recorded)


def test_directories_that_come_back_are_in_no_doubt(fs: FaultyFS) -> None:
    recorded: dict[str, int] = {}
    for generation in (1, 2, 3):
        directories = opened(fs)
        recorded = taken(directories, recorded)
        assert set(recorded.values()) == {generation}
        assert len(recorded) == 2
        assert not directories.is_in_doubt
        assert not directories.lacks(T0)
        directories.close()


def test_a_directory_that_is_missing_stays_recorded_until_all_is_trusted(fs: FaultyFS) -> None:
    before = opened(fs)
    recorded = taken(before, {})
    lost_id, kept_id = (directory.directory_id for directory in before.directories)
    before.close()
    fs.remove_tree("/a")
    for _ in range(2):  # what is missing stays missing over starts
        directories = opened(fs)
        recorded = taken(directories, recorded)
        assert directories.is_in_doubt
        assert directories.lacks(T0)
        assert recorded[lost_id] == 1
        assert len(recorded) == 3
        last = directories
        last.close()
    directories = opened(fs)
    directories.compare(recorded)
    trusted = directories.take_into_use(recorded, trusted=True)
    directories.trust()
    assert set(trusted) == {directory.directory_id for directory in directories.directories}
    assert kept_id in trusted
    assert not directories.is_in_doubt
    directories.close()


def test_an_old_copy_of_a_directory_is_stale(fs: FaultyFS) -> None:
    first = opened(fs)
    log = first.create_log(T0, None, CONFIG)
    recorded = taken(first, {})
    log.append_as_leader(batch(), LeaderEpoch(0))
    place = first.directory_of(T0)
    assert place is not None
    first.close()
    recorded = {directory_id: generation + 1 for directory_id, generation in recorded.items()}
    later = opened(fs)
    after = taken(later, recorded)
    assert after == recorded  # nothing of what is old is taken for new
    found = later.get(T0)
    assert found is not None
    assert later.is_stale(found)
    assert later.lacks(T1)
    later.close()


def test_a_partition_that_had_synced_records_and_is_gone_has_vanished(fs: FaultyFS) -> None:
    first = opened(fs)
    for partition in (T0, T1):
        first.create_log(partition, None, CONFIG).append_as_leader(batch(), LeaderEpoch(0))
    place, other = first.directory_of(T0), first.directory_of(T1)
    assert place is not None
    assert other is not None
    first.close()
    fs.remove_tree(f"{place.path}/{T0}")
    for _ in range(2):
        later = opened(fs)
        assert later.lacks(T0)
        assert not later.lacks(T1)
        later.close()
    later = opened(fs)
    later.create_log(T0, None, CONFIG)
    assert not later.lacks(T0)
    later.delete_log(T1)
    later.close()
    assert not opened(fs).lacks(T1)


def test_what_was_true_of_a_vanished_partition_does_not_outlive_it(fs: FaultyFS) -> None:
    first = opened(fs)
    first.create_log(T0, None, CONFIG).append_as_leader(batch(), LeaderEpoch(0))
    place = first.directory_of(T0)
    assert place is not None
    first.close()
    fs.remove_tree(f"{place.path}/{T0}")
    later = opened(fs)
    for directory in later.online:
        directory.prepare_checkpoints().write()  # as every minute, while nobody has said what this broker holds
    later.create_log(T0, None, CONFIG)
    points = {
        partition
        for directory in later.online
        for partition in checkpoints.read_offsets(fs, f"{directory.path}/{RECOVERY_POINTS}")
    }
    assert T0 not in points
    later.close()
