"""The share coordinator's machine: who may write, when a snapshot is due, what a successor needs to read."""

from uuid import UUID

import pytest
from tests.support.state_machines import Driver

from ottla.coordination.state_machine import Append, Reply
from ottla.errors import ErrorCode
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.share.state import DeliveryState, SharePartitionKey, SharePartitionState, StateBatch
from ottla.share.state_events import (
    DeleteState,
    FindNeeded,
    ForgetTopics,
    InitializeState,
    ReadState,
    ShareStateConfig,
    ShareStateEvent,
    StateChanged,
    StateRead,
    StateSummary,
    SummarizeState,
    WriteState,
)
from ottla.share.state_machine import COLD, ShareStateMachine
from ottla.share.state_records import ShareSnapshot, ShareStateDeleted, ShareUpdate

TOPIC, OTHER_TOPIC, NO_TOPIC = (TopicId(UUID(int=number)) for number in (1, 2, 3))
KEY = SharePartitionKey(GroupId("g"), TOPIC, PartitionId(0))
OTHER = SharePartitionKey(GroupId("g"), OTHER_TOPIC, PartitionId(0))
DONE = StateBatch(5, 7, DeliveryState.ACKNOWLEDGED, 1)
BACK = StateBatch(8, 9, DeliveryState.AVAILABLE, 1)


def new_machine(updates: int = 500) -> ShareStateMachine:
    config = ShareStateConfig(snapshot_update_records_per_snapshot=updates, cold_partition_snapshot_interval_ms=1_000)
    return ShareStateMachine(config, lambda topic, partition: topic != NO_TOPIC and partition < 4)


def started(updates: int = 500, state_epoch: int = 0, start_offset: int = 5) -> Driver:
    """A machine that knows KEY."""
    driver = Driver(new_machine(updates))
    driver.carry_out(driver.machine.loaded(driver.now_ms))
    driver.send(InitializeState(KEY, state_epoch, start_offset), "init")
    assert driver.reply("init") == StateChanged(starts_over=True)
    return driver


def read(driver: Driver, leader_epoch: int = 0) -> SharePartitionState:
    """What a successor that reads the log would tell, which has to be what the machine itself tells."""
    successor = Driver(new_machine())
    for position, record in enumerate(driver.log):
        successor.machine.replay(record, position, -1)
    for each in (driver, successor):
        each.replies.pop("read", None)
        each.send(ReadState(KEY, leader_epoch), "read")
    told: StateRead = driver.reply("read")
    assert told == successor.reply("read")
    assert told.error is ErrorCode.NONE, told
    return told.state


def write(driver: Driver, *batches: StateBatch, epoch: int = 0, leader: int = 0, start: int = -1) -> StateChanged:
    driver.replies.pop("write", None)
    driver.send(WriteState(KEY, epoch, leader, start, batches), "write")
    changed: StateChanged = driver.reply("write")
    return changed


def test_a_share_partition_starts_with_a_snapshot_and_goes_on_with_updates() -> None:
    driver = started()
    assert write(driver, DONE, start=5) == StateChanged()
    assert write(driver, BACK) == StateChanged()
    now = driver.now_ms
    assert driver.log == [
        ShareSnapshot(KEY, 0, 0, 0, 5, now, now, complete_count=0),
        ShareUpdate(KEY, 0, 0, 5, (DONE,)),
        ShareUpdate(KEY, 0, 0, -1, (BACK,)),
    ]
    assert read(driver) == SharePartitionState(0, 5, (DONE, BACK))


def test_a_snapshot_is_due_after_so_many_updates() -> None:
    driver = started(updates=2)
    for count in range(1, 7):
        driver.now_ms += 1
        write(driver, StateBatch(5, 7, DeliveryState.AVAILABLE, count))
    kinds = [type(record) for record in driver.log]
    assert kinds == [ShareSnapshot, ShareUpdate, ShareUpdate, ShareSnapshot, ShareUpdate, ShareUpdate, ShareSnapshot]
    last = driver.log[-1]
    assert (last.snapshot_epoch, last.created_ms, last.written_ms) == (2, driver.now_ms, driver.now_ms)
    assert read(driver) == SharePartitionState(0, 5, (StateBatch(5, 7, DeliveryState.AVAILABLE, 6),))


def test_only_initializing_moves_the_state_epoch() -> None:
    driver = started(state_epoch=3)
    assert write(driver, DONE, epoch=4).error is ErrorCode.NONE
    assert read(driver).state_epoch == 3
    assert write(driver, BACK, epoch=2).error is ErrorCode.FENCED_STATE_EPOCH
    assert read(driver) == SharePartitionState(3, 5, (DONE,))


def test_only_reading_moves_the_leader_epoch() -> None:
    driver = started()
    assert write(driver, DONE, leader=7).error is ErrorCode.NONE
    assert write(driver, BACK, leader=3).error is ErrorCode.NONE
    read(driver, 5)
    assert write(driver, BACK, leader=3).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_new_leader_fences_the_old_one() -> None:
    driver = started()
    write(driver, DONE, leader=1)
    assert read(driver, leader_epoch=2) == SharePartitionState(0, 5, (DONE,))
    assert write(driver, BACK, leader=1).error is ErrorCode.FENCED_LEADER_EPOCH
    driver.send(ReadState(KEY, 1), "late")
    assert driver.reply("late").error is ErrorCode.FENCED_LEADER_EPOCH
    assert read(driver, leader_epoch=2) == SharePartitionState(0, 5, (DONE,))


def test_reading_with_a_known_leader_epoch_writes_nothing() -> None:
    driver = started()
    read(driver, leader_epoch=4)
    effects = driver.send(ReadState(KEY, 4), "again")
    assert [type(effect) for effect in effects] == [Reply]


def test_starting_over_forgets_deliveries_but_not_who_is_fenced() -> None:
    driver = started()
    write(driver, DONE, leader=6)
    driver.send(InitializeState(KEY, 1, 100), "again")
    assert driver.reply("again") == StateChanged(starts_over=True)
    assert read(driver, leader_epoch=6) == SharePartitionState(1, 100)
    assert write(driver, DONE, epoch=1, leader=5).error is ErrorCode.FENCED_LEADER_EPOCH
    driver.send(InitializeState(KEY, 0, 0), "old")
    assert driver.reply("old").error is ErrorCode.FENCED_STATE_EPOCH


def test_a_second_to_initialize_leaves_what_is_known() -> None:
    driver = started()
    write(driver, DONE)
    driver.send(InitializeState(KEY, 7, -1, only_if_new=True), "late")
    assert driver.reply("late") == StateChanged()
    assert read(driver) == SharePartitionState(0, 5, (DONE,))
    driver.send(InitializeState(OTHER, 7, -1, only_if_new=True), "new")
    assert driver.reply("new") == StateChanged(starts_over=True)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (KEY._replace(partition=PartitionId(-1)), ErrorCode.INVALID_REQUEST),
        (KEY._replace(topic_id=NO_TOPIC), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(partition=PartitionId(4)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_that_are_not_there(key: SharePartitionKey, error: ErrorCode) -> None:
    driver = Driver(new_machine())
    never_initialized = ErrorCode.INVALID_REQUEST
    requests: tuple[tuple[ShareStateEvent, ErrorCode], ...] = (
        (InitializeState(key, 0, 0), error),
        (SummarizeState(key), error),
        (DeleteState(key), error),
        (ReadState(key, 0), never_initialized),
        (WriteState(key, 0, 0, 0, (DONE,)), never_initialized),
    )
    for event, expected in requests:
        driver.send(event)
        assert driver.reply(event).error is expected, event
    assert driver.log == []


def test_a_topic_that_is_deleted_meanwhile_takes_no_writes() -> None:
    there = {TOPIC}
    driver = Driver(ShareStateMachine(ShareStateConfig(), lambda topic, partition: topic in there))
    driver.send(InitializeState(KEY, 0, 0), "init")
    there.clear()
    assert write(driver, DONE).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    driver.send(ReadState(KEY, 0), "read")
    assert driver.reply("read").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_that_were_deleted_while_nobody_was_there_are_forgotten() -> None:
    driver = started()
    driver.send(InitializeState(OTHER, 0, 0), "other")
    successor = Driver(ShareStateMachine(ShareStateConfig(), lambda topic, partition: topic == OTHER_TOPIC))
    for position, record in enumerate(driver.log):
        successor.machine.replay(record, position, -1)
    successor.carry_out(successor.machine.loaded(driver.now_ms))
    assert successor.log == [ShareStateDeleted(KEY)]
    assert COLD in successor.timers


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    driver = started()
    assert write(driver, StateBatch(7, 5, 0, 1)).error is ErrorCode.INVALID_REQUEST
    assert len(driver.log) == 1


def test_a_summary_leaves_out_the_deliveries() -> None:
    driver = started(state_epoch=2)
    read(driver, 4)
    driver.send(WriteState(KEY, 2, 4, 5, (DONE,), 3), "write")
    driver.send(SummarizeState(KEY), "known")
    assert driver.reply("known") == StateSummary(ErrorCode.NONE, None, 2, 4, 5, 3)
    driver.send(SummarizeState(OTHER), "unknown")
    assert driver.reply("unknown") == StateSummary(ErrorCode.NONE, None, 0, 0, -1)


def test_what_is_deleted_is_forgotten_at_once_and_by_successors() -> None:
    driver = started()
    driver.send(DeleteState(KEY), "delete")
    assert driver.reply("delete") == StateChanged(starts_over=True)
    assert driver.log[-1] == ShareStateDeleted(KEY)
    assert write(driver, DONE).error is ErrorCode.INVALID_REQUEST
    effects = driver.send(DeleteState(KEY), "twice")
    assert effects == [Reply(driver.requests["twice"], StateChanged())]


def test_deleted_topics_take_their_state_along() -> None:
    driver = started()
    driver.send(InitializeState(OTHER, 0, 0), "other")
    driver.send(ForgetTopics(frozenset((TOPIC,))), "forget")
    assert driver.log[-1] == ShareStateDeleted(KEY)
    driver.send(SummarizeState(OTHER), "left")
    assert driver.reply("left").start_offset == 0


def test_the_log_is_needed_from_the_oldest_of_the_newest_snapshots() -> None:
    driver = started(updates=1)
    driver.send(FindNeeded(), "all")
    assert driver.reply("all") is None
    driver.send(InitializeState(OTHER, 0, 0), "other")  # at position 1
    write(driver, DONE)
    write(driver, BACK)  # a snapshot at position 3
    driver.send(FindNeeded(), "some")
    assert driver.reply("some") == 1
    driver.send(DeleteState(OTHER), "gone")
    driver.send(FindNeeded(), "fewer")
    assert driver.reply("fewer") == 3
    successor = Driver(new_machine())
    for position in range(3, len(driver.log)):
        successor.machine.replay(driver.log[position], position, -1)
    successor.send(ReadState(KEY, 0), "read")
    assert successor.reply("read").state == read(driver)


def test_what_was_not_written_for_long_is_written_anew() -> None:
    driver = started()
    first_ms = driver.now_ms
    driver.pass_time(600)
    driver.send(InitializeState(OTHER, 0, 0), "other")
    driver.pass_time(400)
    anew = driver.log[-1]
    assert anew == ShareSnapshot(KEY, 1, 0, 0, 5, first_ms, first_ms + 1_000, complete_count=0)
    assert COLD in driver.timers
    driver.pass_time(1_000)
    assert [record.key for record in driver.log[3:]] == [KEY, OTHER]
    written = len(driver.log)
    driver.pass_time(10_000)
    assert len(driver.log) == written, "all is quiet: nothing to make room for"


def test_updates_whose_snapshot_is_not_in_the_log_any_more_are_passed_over() -> None:
    driver = Driver(new_machine())
    driver.machine.replay(ShareUpdate(KEY, 0, 0, 5, (DONE,)), 7, -1)
    driver.send(ReadState(KEY, 0), "read")
    assert driver.reply("read").error is ErrorCode.INVALID_REQUEST
    assert not any(isinstance(effect, Append) for effect in driver.send(SummarizeState(KEY), "s"))
