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
from ottla.log.directory import LogDirectory
from ottla.log.directory_checkpoints import RECOVERY_POINTS
from ottla.log.refill_marks import MARK, Refill
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Operation, Survival

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


def test_a_new_log_is_not_made_in_a_full_directory_while_another_has_room(directories: LogDirectories) -> None:
    full, other = directories.directories
    full.is_full = True
    for partition in (T0, T1):
        assert directories.create_log(partition, None, CONFIG).log_dir == other.path
    other.is_full = True
    third = TopicPartition(T0.topic, PartitionId(2))
    assert directories.create_log(third, None, CONFIG).log_dir == full.path


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
        directory.prepare_checkpoints().write()  # as every minute, before the controller has named the replicas
    later.create_log(T0, None, CONFIG)
    points = {
        partition
        for directory in later.online
        for partition in checkpoints.read_offsets(fs, f"{directory.path}/{RECOVERY_POINTS}")
    }
    assert T0 not in points
    later.close()


# -- replicas that are made anew -------------------------------------------------------------------------------------


def with_vanished(fs: FaultyFS) -> LogDirectories:
    """A partition had synced records here, and is gone."""
    first = opened(fs)
    first.create_log(T0, None, CONFIG).append_as_leader(batch(), LeaderEpoch(0))
    place = first.directory_of(T0)
    assert place is not None
    first.close()
    fs.remove_tree(f"{place.path}/{T0}")
    return on_the_disk(fs, opened(fs))


def on_the_disk(fs: FaultyFS, directories: LogDirectories) -> LogDirectories:
    """With all names as they are now."""
    fs.sync_directory("/")
    for directory in directories.online:
        directory.sync_names()
    return directories


def recovery_points(fs: FaultyFS, directories: LogDirectories) -> dict[TopicPartition, Offset]:
    return {
        partition: point
        for directory in directories.online
        for partition, point in checkpoints.read_offsets(fs, f"{directory.path}/{RECOVERY_POINTS}").items()
    }


def test_a_lost_partition_stays_lost_until_its_new_log_is_made_and_marked(fs: FaultyFS) -> None:
    """Else the next attempt would make an empty log without a mark, which may lead."""
    directories = with_vanished(fs)
    fs.fail(Operation.WRITE, f"*/{T0}/{MARK}", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        directories.create_log(T0, None, CONFIG, refill=Refill())
    assert directories.lacks(T0)
    fs.crash(Survival.NOTHING)
    assert opened(fs).lacks(T0)


@pytest.mark.parametrize("survival", [Survival.NOTHING, Survival.RANDOM])
def test_the_mark_of_a_replica_that_is_filled_again_outlives_a_power_failure(fs: FaultyFS, survival: Survival) -> None:
    directories = with_vanished(fs)
    refill = Refill(frozenset((BrokerId(7), BrokerId(8))), since=4)
    directories.create_log(T0, None, CONFIG, refill=refill)
    assert T0 not in recovery_points(fs, directories)
    fs.crash(survival)
    later = opened(fs)
    assert later.refilling == {T0: refill} or later.lacks(T0)


def test_the_mark_of_a_log_set_aside_outlives_a_power_failure(fs: FaultyFS, directories: LogDirectories) -> None:
    log = directories.create_log(T0, None, CONFIG)
    log.append_as_leader(batch(), LeaderEpoch(0))
    log.flush()
    on_the_disk(fs, directories)
    directories.set_aside(T0, refill=Refill((BrokerId(7),)))
    fs.crash(Survival.NOTHING)
    assert T0 in opened(fs).refilling, "its name is the old one again"


def test_a_new_log_does_not_begin_under_an_old_recovery_point_after_a_failed_attempt(fs: FaultyFS) -> None:
    """What a checkpoint says of a deleted topic goes before there is a log of its name, however often that fails."""
    directories = opened(fs)
    directories.create_log(T0, None, CONFIG).append_as_leader(batch(), LeaderEpoch(0))
    for directory in directories.online:
        for log in directory.logs.values():
            log.flush()
        directory.prepare_checkpoints().write()
    assert recovery_points(fs, directories) == {T0: Offset(2)}
    place = directories.directory_of(T0)
    assert place is not None
    directories.delete_log(T0)
    for _ in range(2):
        fs.fail(Operation.WRITE, f"{place.path}/{RECOVERY_POINTS}*", error=errno.ENOSPC)
        with pytest.raises(KafkaStorageError):
            place.create(T0, None, CONFIG)
    place.create(T0, None, CONFIG)
    assert T0 not in recovery_points(fs, directories)


@pytest.mark.parametrize("is_written_meanwhile", [False, True])
def test_new_logs_that_are_made_together_keep_nothing_of_vanished_ones(
    fs: FaultyFS, *, is_written_meanwhile: bool
) -> None:
    """The checkpoints written for one of them must not restore what was true of the other: what is appended then would
    lie before the old log start, and be removed by recovery."""
    partitions = [TopicPartition(T0.topic, PartitionId(number)) for number in range(4)]
    first = opened(fs)
    for partition in partitions:
        log = first.create_log(partition, None, CONFIG)
        for _ in range(3):
            log.append_as_leader(batch(), LeaderEpoch(0))
        log.high_watermark = Offset(6)
        log.delete_records_before(Offset(4))
    places = [first.directory_of(partition) for partition in partitions]
    first.close()
    for place, partition in zip(places, partitions, strict=True):
        assert place is not None
        fs.remove_tree(f"{place.path}/{partition}")
    directories = on_the_disk(fs, opened(fs))
    begun = [directories.begin_log(partition, None, CONFIG) for partition in partitions]
    if is_written_meanwhile:
        for directory in directories.online:
            directory.prepare_checkpoints().write()
    for _, new in begun:
        new.make()
    for place, new in begun:
        log = directories.take_log(place, new)
        log.append_as_leader(batch(), LeaderEpoch(0))
        log.flush()
    assert recovery_points(fs, directories) == {}
    on_the_disk(fs, directories)
    fs.crash(Survival.NOTHING)
    later = opened(fs)
    found = [later.get(partition) for partition in partitions]
    assert [log.log_end_offset for log in found if log is not None] == [2] * len(partitions)


def test_logs_may_stay_open_for_another_part_of_the_process(fs: FaultyFS) -> None:
    directories = opened(fs)
    log = directories.create_log(T0, None, CONFIG)
    directories.create_log(T1, None, CONFIG)
    log.append_as_leader(batch(), LeaderEpoch(3))
    directories.wants_to_stay_open = True
    directories.close()
    assert directories.stayed_open
    directories.acquire(cluster_id="c", node_id=BrokerId(1))
    assert directories.load_all(lambda topic: CONFIG)[T0] is log
    log.append_as_leader(batch(), LeaderEpoch(3))
    directories.wants_to_stay_open = False
    directories.close()
    found = opened(fs)
    assert found.were_clean
    again = found.get(T0)
    assert again is not None
    assert again.log_end_offset == 4
    found.close()


@pytest.mark.parametrize("entry", ["some-topic-0", "some-topic-1-future", ""])
def test_logs_do_not_stay_open_if_they_are_not_all_there_is(fs: FaultyFS, entry: str) -> None:
    directories = opened(fs)
    directories.create_log(T1, None, CONFIG)
    if entry == "some-topic-1-future":
        entry = names.future_name(T1)
    if entry:
        fs.make_directory(f"/a/{entry}")
    else:
        directories.directories[0].fail("a test")
    directories.wants_to_stay_open = True
    directories.close()
    assert not directories.stayed_open
    assert directories.get(T1) is None
