"""A share partition at work: loading, one write at a time, failures of the share coordinator, locks that expire."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest

from ottla.cluster.image import PartitionImage
from ottla.config.broker import BrokerConfig
from ottla.config.group_settings import BY_DURATION, EARLIEST, LATEST, GroupSettings, OffsetReset
from ottla.config.log import LogConfig
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, GroupId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.records.record import Record, encode_batch
from ottla.replication.environment import LedChanges
from ottla.replication.partition import Partition
from ottla.replication.throughput import Throughput
from ottla.share.partition import Acknowledgement
from ottla.share.state import SharePartitionKey, SharePartitionState, StateBatch
from ottla.share_partitions.led_partition import LedSharePartition
from ottla.share_partitions.led_partitions import SharePartitions
from ottla.share_partitions.reads import SlowRead, Taken
from ottla.share_partitions.sessions import MemberKey
from ottla.testing import ManualClock

ACCEPT = 1
RELEASE = 2
TP = TopicPartition(TopicName("t"), PartitionId(0))
KEY = SharePartitionKey(GroupId("g"), TopicId(UUID(int=5)), PartitionId(0))


class Persister:
    """Keeps what is written; answers when and how the test says."""

    def __init__(self) -> None:
        self.state = SharePartitionState(3, 0)
        self.refusals: list[ErrorCode] = []
        self.writes: list[tuple[int, tuple[StateBatch, ...]]] = []
        self.epochs: list[int] = []
        """The leader epochs of all reads and writes."""
        self.codes: list[ErrorCode] = []
        self.gate: asyncio.Event | None = None

    async def read(
        self, group_id: GroupId, topic_id: TopicId, partition: PartitionId, leader_epoch: int
    ) -> SharePartitionState:
        self.epochs.append(leader_epoch)
        if self.refusals:
            raise ApiError(self.refusals.pop(0))
        return self.state

    async def write(
        self,
        group_id: GroupId,
        topic_id: TopicId,
        partition: PartitionId,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
    ) -> ErrorCode:
        assert state_epoch == self.state.state_epoch
        self.epochs.append(leader_epoch)
        self.writes.append((start_offset, tuple(batches)))
        if self.gate is not None:
            await self.gate.wait()
        return self.codes.pop(0) if self.codes else ErrorCode.NONE


class World:
    """One led share partition of a log with five batches of two records."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = ManualClock()
        self.loop = loop
        self.persister = Persister()
        self.settings = GroupSettings(share_record_lock_duration_ms=1_000, share_partition_max_record_locks=100)
        self.readers = ThreadPoolExecutor(1)
        self.lost: list[LedSharePartition] = []
        log = PartitionLog.open(directory / "t-0", TP, LogConfig(), fs=RealFileSystem(), clock=self.clock)
        for first in range(0, 10, 2):
            records = [Record(at, self.clock.now_ms(), b"k", b"v") for at in range(2)]
            log.append_as_leader(encode_batch(records), LeaderEpoch(0))
            log.high_watermark = log.log_end_offset
            assert log.log_end_offset == first + 2
        self.log = log
        self.replica = Partition(TP, log, Mock(), Mock(), Mock(led_changes=LedChanges()), Throughput())
        only = (BrokerId(1),)
        self.replica.lead(PartitionImage(TP.partition, BrokerId(1), LeaderEpoch(0), only, only, 0))

    def lead(self) -> LedSharePartition:
        return LedSharePartition(
            KEY,
            self.replica,
            self.persister,
            lambda: self.settings,
            self.clock,
            self.loop,
            self.readers,
            self.lost.append,
            lambda led: None,
        )

    def follow_and_lead_again(self) -> None:
        """Broker 2 leads in epoch 1, this one in epoch 2."""
        both = (BrokerId(1), BrokerId(2))
        self.replica.follow(PartitionImage(TP.partition, BrokerId(2), LeaderEpoch(1), both, both, 0))
        self.replica.lead(PartitionImage(TP.partition, BrokerId(1), LeaderEpoch(2), both, both, 0))

    def close(self) -> None:
        self.readers.shutdown()
        self.log.close()


def run(tmp_path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        world = World(tmp_path, asyncio.get_running_loop())
        try:
            await story(world)
        finally:
            world.close()

    asyncio.run(told())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def take(led: LedSharePartition, member: str = "m", max_records: int = 500) -> Taken | None:
    found = led.look(led.terms(member, max_records, 500, 1 << 20, at_least_one=True, strictly=False))
    assert not isinstance(found, SlowRead)
    return None if found is None else led.take(found, max_records)


def say(led: LedSharePartition, first: int, last: int, member: str = "m") -> list[ErrorCode]:
    """The answer, once there is one."""
    answers: list[ErrorCode] = []
    led.acknowledge(member, [Acknowledgement(first, last, [ACCEPT])], answers.append)
    return answers


def test_nothing_is_given_until_the_state_is_read(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.persister.state = SharePartitionState(3, 4)
        led = world.lead()
        assert take(led) is None
        assert say(led, 0, 0) == [ErrorCode.INVALID_RECORD_STATE]
        await turns()
        taken = take(led)
        assert taken is not None
        assert taken.acquired == [(4, 9, 1)]

    run(tmp_path, story)


def test_records_that_are_given_again_count_as_such(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        assert led.records_in_flight() == 0
        await turns()
        assert take(led, max_records=4) is not None
        assert (led.records_in_flight(), led.delivered, led.redelivered) == (4, 4, 0)
        assert say(led, 0, 1) == []
        await turns()
        led.acknowledge("m", [Acknowledgement(2, 3, [RELEASE])], lambda _: None)
        await turns()
        assert led.records_in_flight() == 0
        assert take(led, "n") is not None
        assert (led.records_in_flight(), led.delivered, led.redelivered) == (8, 12, 2)

    run(tmp_path, story)


def test_a_coordinator_that_is_loading_is_asked_again_while_somebody_waits(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.persister.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        led = world.lead()
        led.waiters[Mock()] = None
        while take(led) is None:
            await asyncio.sleep(0.01)
        world.persister.refusals = [ErrorCode.NOT_COORDINATOR]
        nobody = world.lead()
        await turns()
        assert nobody.failure is not None
        assert nobody.failure.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_is_told_to_who_looks(tmp_path: Path, refusal: ErrorCode, told: ErrorCode) -> None:
    async def story(world: World) -> None:
        world.persister.refusals = [refusal]
        led = world.lead()
        await turns()
        assert world.lost == [led]
        with pytest.raises(ApiError) as error:
            take(led)
        assert error.value.code is told

    run(tmp_path, story)


def test_acknowledgements_that_come_while_one_is_written_share_the_next_write(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        await turns()
        take(led)
        world.persister.gate = asyncio.Event()
        answers = [say(led, 0, 0)]
        await turns()
        answers += [say(led, 1, 1), say(led, 2, 2), say(led, 4, 4)]
        await turns()
        assert [start for start, _ in world.persister.writes] == [1]
        assert answers == [[], [], [], []]
        world.persister.gate.set()
        await turns()
        assert answers == [[ErrorCode.NONE]] * 4
        assert [start for start, _ in world.persister.writes] == [1, 3]

    run(tmp_path, story)


def test_a_write_that_fails_leaves_the_records_with_their_member(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        await turns()
        take(led)
        world.persister.codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        failed = say(led, 0, 9)
        await turns()
        assert failed == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        again = say(led, 0, 9)
        await turns()
        assert again == [ErrorCode.NONE]

    run(tmp_path, story)


def test_acknowledgements_behind_a_write_that_fails_are_tried_all_the_same(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        await turns()
        take(led)
        world.persister.codes = [ErrorCode.UNKNOWN_SERVER_ERROR]
        world.persister.gate = asyncio.Event()
        first = say(led, 0, 1)
        await turns()
        second = say(led, 2, 3)
        world.persister.gate.set()
        await turns()
        assert (first, second) == ([ErrorCode.UNKNOWN_SERVER_ERROR], [ErrorCode.NONE])

    run(tmp_path, story)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
def test_who_is_superseded_gives_up(tmp_path: Path, code: ErrorCode) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        await turns()
        take(led)
        world.persister.codes = [code]
        answers = say(led, 0, 9)
        await turns()
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert world.lost == [led]
        assert say(led, 0, 9) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(tmp_path, story)


def test_who_is_lost_in_the_middle_of_a_write_answers(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        await turns()
        take(led)
        world.persister.gate = asyncio.Event()
        answers = say(led, 0, 9)
        await turns()
        led.lose(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await turns()
        assert world.lost == [led]

    run(tmp_path, story)


def test_a_share_partition_ends_with_the_leader_epoch_in_which_it_was_read(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        led = world.lead()
        await turns()
        take(led)
        world.follow_and_lead_again()
        assert not led.is_led
        with pytest.raises(ApiError, match="t-0 has had another leader"):
            take(led)
        say(led, 0, 9)  # what it writes all the same must not pass for a write of the leader that came after it
        await turns()
        assert world.persister.epochs == [0, 0]

    run(tmp_path, story)


def test_the_state_is_read_again_after_another_leader(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partitions = SharePartitions(
            BrokerConfig({}),
            Mock(group_settings=lambda group_id: world.settings),
            Mock(leader=lambda topic_id, partition: world.replica, threads=Mock(reads=world.readers)),
            Mock(read=world.persister.read, write=world.persister.write),
            world.clock,
            world.loop,
        )
        partition = KEY.topic_id, KEY.partition
        member = MemberKey("g", "m")
        partitions.sessions.open(member, [partition], 1)
        before = partitions.lead("g", partition)
        await turns()
        assert partitions.lead("g", partition) is before
        world.follow_and_lead_again()
        answers: list[ErrorCode] = []
        partitions.acknowledge(member, partition, [Acknowledgement(0, 1, (ACCEPT,))], answers.append)
        assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert partitions.lead("g", partition) is not before
        await turns()
        assert world.persister.epochs == [0, 2]

    run(tmp_path, story)


def test_a_lock_that_expires_wakes_who_waits(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.settings = GroupSettings(share_record_lock_duration_ms=20)
        led = world.lead()
        await turns()
        take(led)
        woken = asyncio.Event()
        waiter = Mock()
        waiter.wake.side_effect = woken.set
        led.waiters[waiter] = None
        world.clock.advance(ms=20)
        await asyncio.wait_for(woken.wait(), 5)
        taken = take(led, "other")
        assert taken is not None
        assert taken.acquired == [(0, 9, 2)]

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("reset", "first"),
    [(OffsetReset(EARLIEST), 0), (OffsetReset(LATEST), 10), (OffsetReset(BY_DURATION, 60_000), 0)],
)
def test_begins_where_the_group_says_and_remembers_it(tmp_path: Path, reset: OffsetReset, first: int) -> None:
    async def story(world: World) -> None:
        world.persister.state = SharePartitionState(3, -1)
        world.settings = GroupSettings(share_auto_offset_reset=reset)
        world.lead()
        while not world.persister.writes:
            await asyncio.sleep(0.01)
        assert world.persister.writes == [(first, ())]

    run(tmp_path, story)


def test_keys_are_read_in_chunks_and_kept(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.settings = GroupSettings(share_delivery_order="key")
        led = world.lead()
        await turns()
        first = take(led)
        assert first is not None
        assert first.acquired == [(0, 0, 1)], "all records have one key"
        assert take(led, "other") is None
        say(led, 0, 0)
        await turns()
        second = take(led, "other")
        assert second is not None
        assert second.acquired == [(1, 1, 1)]
        world.settings = GroupSettings()
        led.settings_changed()
        rest = take(led)
        assert rest is not None
        assert rest.acquired == [(2, 9, 1)]

    run(tmp_path, story)
