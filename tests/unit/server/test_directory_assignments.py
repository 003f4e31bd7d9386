"""What counts as lost when a replica's files are not where the metadata log has them."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cluster.metadata_log.framed import TOPIC, broker, change, framed, partition, topic
from tests.unit.log.driver import SetClock

from ottla.client.errors import AuthenticationFailed
from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.metadata_log.levels import DIRECTORIES_SINCE
from ottla.cluster.metadata_log.partitions import LOST, marked_full
from ottla.cluster.metadata_log.state import ClusterState
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, Offset, PartitionId, TopicName, TopicPartition
from ottla.log import checkpoints
from ottla.log.directories import LogDirectories
from ottla.log.meta_properties import directory_uuid
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.metadata_records import FeatureLevelRecord
from ottla.server.directory_assignments import DirectoryAssignments
from ottla.testing.faulty_fs import FaultyFS, Survival

DATA, MORE = Path("/data"), Path("/more")
T0 = TopicPartition(TopicName("t"), PartitionId(0))


class Story:
    """A broker whose partition the log has in its only directory, and whose processes come and go."""

    def __init__(self) -> None:
        self.fs = FaultyFS(seed=1)
        self.fs.make_directory(str(DATA))
        self.fs.sync_directory("/")
        self.state = ClusterState("c")
        self.processes = 0
        self.paths = [DATA]
        self.directories = self.start()
        (directory,) = self.directories.online
        where = directory_uuid(directory.directory_id)
        self.state.replay_all(framed(topic(), partition(0, 1, 2, directories=[where, UUID(int=1 << 90)])))

    def mark_full(self) -> None:
        """The log has the replica in the broker's directory, which is full."""
        (directory,) = self.directories.online
        self.report(marked_full(directory_uuid(directory.directory_id)))

    def report(self, where: UUID) -> None:
        """The log has the replica in this directory of the broker."""
        self.state.replay_all(framed(change(0, directories=[where, UUID(int=1 << 90)])))

    def start(self, *, notes: bool = True, registers: bool = True) -> LogDirectories:
        """Another process has the directory, and registers."""
        self.processes += 1
        self.directories = LogDirectories(self.paths, fs=self.fs, clock=SetClock())
        self.directories.acquire(cluster_id="c", node_id=BrokerId(1))
        self.directories.load_all(lambda _topic: pytest.fail("there is no log"))
        incarnation = UUID(int=self.processes)
        if notes:
            self.directories.note_incarnation(incarnation)
        if registers:
            self.state.replay_all(framed(broker(1, incarnation_id=incarnation, broker_epoch=self.processes)))
        return self.directories

    def counts_as_lost(self) -> bool:
        """Whether the broker takes its replica, whose files are not there, for lost."""
        metadata: Any = SimpleNamespace(broker_id=BrokerId(1), state=self.state)
        replicas: Any = SimpleNamespace()
        assignments = DirectoryAssignments(metadata, replicas, self.directories, lambda *_: None, lambda: 1)
        state = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=0, leader=1, leader_epoch=0, isr=[1], partition_epoch=0, replicas=[1, 2]
        )
        asked = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC, partition_states=[state])
        assignments.mark_new(
            LeaderAndIsrRequest(
                controller_id=-1, controller_epoch=0, broker_epoch=1, type=2, topic_states=[asked], live_leaders=[]
            )
        )
        assert not state.is_new
        return self.directories.lacks(T0)


def test_a_replica_that_was_made_before_a_power_failure_and_never_synced_is_not_lost() -> None:
    story = Story()
    story.fs.make_directory("/data/t-0")
    story.fs.crash(Survival.NOTHING)
    story.start()
    assert not story.counts_as_lost()
    story.fs.crash(Survival.NOTHING)
    story.start(registers=False)
    story.fs.crash(Survival.NOTHING)
    story.start()
    assert not story.counts_as_lost(), "a process that ended before it had registered is no other directory"


def test_a_replica_in_a_full_directory_is_lost_as_any_other() -> None:
    story = Story()
    story.mark_full()
    story.fs.end_process()
    story.start()
    assert not story.counts_as_lost(), "nothing of it had been synced, and the directory is the same"
    story.fs.end_process()
    story.fs.remove("/data/ottla.incarnations")
    story.start()
    assert story.counts_as_lost()


def test_a_replica_that_had_synced_records_is_lost() -> None:
    story = Story()
    checkpoints.write(story.fs, "/data/recovery-point-offset-checkpoint", checkpoints.encode_offsets({T0: Offset(3)}))
    story.fs.end_process()
    story.start()
    assert story.counts_as_lost()


def test_a_replica_is_lost_with_an_old_copy() -> None:
    story = Story()
    copy = story.fs.read_bytes("/data/ottla.incarnations")
    story.fs.end_process()
    story.start()
    story.fs.end_process()
    story.fs.write_bytes("/data/ottla.incarnations", copy, sync=True)
    story.start()
    assert story.counts_as_lost()


@pytest.mark.parametrize("damaged", [None, b"", b"no id\n", b"\xff"])
def test_a_replica_is_lost_in_a_directory_that_does_not_say_which_processes_had_it(damaged: bytes | None) -> None:
    story = Story()
    story.fs.end_process()
    if damaged is None:
        story.fs.remove("/data/ottla.incarnations")
    else:
        story.fs.write_bytes("/data/ottla.incarnations", damaged, sync=True)
    story.start()
    assert story.counts_as_lost()


def test_a_replica_is_lost_with_a_replaced_disk() -> None:
    story = Story()
    story.fs.end_process()
    for name, _, _ in story.fs.names("/data"):
        story.fs.remove(f"/data/{name}")
    story.start()
    assert story.counts_as_lost()


def test_a_replica_may_have_been_in_another_directory_that_is_replaced() -> None:
    story = Story()
    story.paths.append(MORE)
    story.fs.end_process()
    story.start()
    assert story.counts_as_lost(), "the process before did not have both"
    story.fs.end_process()
    story.start()
    assert not story.counts_as_lost()


def test_a_replica_is_lost_where_a_snapshot_hides_which_process_was_the_last() -> None:
    story = Story()
    story.fs.end_process()
    story.start()
    story.state.former_incarnations.clear()
    assert story.counts_as_lost()


def test_the_processes_that_are_remembered_are_few() -> None:
    story = Story()
    for _ in range(20):
        story.fs.end_process()
        story.start()
    assert len(story.fs.read_bytes("/data/ottla.incarnations").split()) == 8
    assert not story.counts_as_lost()


class Compared:
    """A broker that holds three replicas, of which the log has two in directories that it does not have."""

    def __init__(self, level: int = DIRECTORIES_SINCE) -> None:
        self.story = Story()
        (directory,) = self.story.directories.online
        self.directory = directory_uuid(directory.directory_id)
        self.elsewhere = [UUID(int=1 << 80), UUID(int=1 << 90)]
        self.set_level(level)
        self.story.state.replay_all(framed(*(partition(n, 1, 2, directories=self.elsewhere) for n in (1, 2))))
        self.held = {
            number: SimpleNamespace(
                log=SimpleNamespace(log_dir=DATA, topic_id=TOPIC),
                topic_partition=TopicPartition(TopicName("t"), PartitionId(number)),
            )
            for number in range(3)
        }
        self.expected = self.directory
        """The directory that is reported."""
        self.full: set[Path] = set()
        self.failures: list[Exception] = []
        self.reported: list[list[int]] = []
        self.assignments = self.begin()

    def set_level(self, level: int) -> None:
        self.story.state.replay_all(framed(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)))

    def begin(self) -> DirectoryAssignments:
        replicas: Any = SimpleNamespace(
            full_directories=lambda: self.full,
            partitions=lambda: list(self.held.values()),
            find=lambda topic_id, number: self.held.get(number),
        )
        state = self.story.state
        metadata: Any = SimpleNamespace(broker_id=BrokerId(1), state=state, image=state.image())
        self.assignments = DirectoryAssignments(metadata, replicas, self.story.directories, self.ask, lambda: 1)
        return self.assignments

    async def ask(self, request: Any, version: int) -> Any:
        if self.failures:
            raise self.failures.pop()
        parts = [part for where in request.directories for topic in where.topics for part in topic.partitions]
        self.reported.append(sorted(part.partition_index for part in parts))
        assert {where.id for where in request.directories} == {self.expected}
        return SimpleNamespace(error_code=0, directories=[])

    async def look(self, partitions: list[tuple[UUID, int]] | None) -> list[int]:
        """Which replicas are reported when these may have changed."""
        self.reported.clear()
        self.assignments.look(partitions)
        assert self.assignments._task is not None
        await asyncio.wait([self.assignments._task])
        return self.reported[0] if self.reported else []


def test_only_replicas_that_have_changed_are_compared_unless_a_directory_is_full_or_all_may_differ() -> None:
    async def check() -> None:
        broker = Compared()
        assert await broker.look([(TOPIC, 1)]) == [1]
        assert await broker.look([(TOPIC, 0)]) == []
        assert await broker.look([(TOPIC, 7)]) == []
        assert await broker.look(None) == [1, 2]
        broker.full.add(MORE)
        assert await broker.look([]) == [1, 2]

    asyncio.run(check())


def test_a_replica_that_is_lost_is_reported_though_the_log_has_it_in_a_full_directory() -> None:
    async def check() -> None:
        broker = Compared()
        await broker.look(None)
        broker.held.clear()
        broker.story.mark_full()
        broker.expected = LOST
        broker.assignments.note({(TOPIC, 0): ErrorCode.KAFKA_STORAGE_ERROR})
        assert await broker.look([]) == [0]

    asyncio.run(check())


def test_a_replica_that_may_not_lead_is_reported_as_lost_once_and_where_it_is_once_it_follows() -> None:
    """Such as one that is filled again: its broker holds it, and refuses to lead with it."""

    async def check() -> None:
        broker = Compared()
        await broker.look(None)
        broker.expected = LOST
        broker.assignments.note({(TOPIC, 0): ErrorCode.KAFKA_STORAGE_ERROR})
        assert await broker.look([(TOPIC, 0)]) == [0]
        broker.story.report(LOST)
        assert await broker.look([(TOPIC, 0)]) == []
        broker.expected = broker.directory
        broker.assignments.note({(TOPIC, 0): ErrorCode.NONE})
        assert await broker.look([(TOPIC, 0)]) == [0]

    asyncio.run(check())


def test_all_replicas_are_compared_once_the_log_has_directories() -> None:
    async def check() -> None:
        broker = Compared(DIRECTORIES_SINCE - 1)
        assert await broker.look([(TOPIC, 1), (TOPIC, 2)]) == []
        broker.set_level(DIRECTORIES_SINCE)
        assert await broker.look([]) == [1, 2]

    asyncio.run(check())


def test_all_replicas_are_compared_after_a_report_that_failed() -> None:
    async def check() -> None:
        broker = Compared()
        broker.failures.append(AuthenticationFailed("not now"))
        assert await broker.look([(TOPIC, 1)]) == []
        assert await broker.look([]) == [1, 2]

    asyncio.run(check())
