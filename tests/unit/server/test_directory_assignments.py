"""What counts as lost when a replica's files are not where the metadata log has them."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cluster.metadata_log.framed import TOPIC, broker, framed, partition, topic
from tests.unit.log.driver import SetClock

from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.metadata_log.levels import DIRECTORIES_SINCE
from ottla.cluster.metadata_log.state import ClusterState
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


def test_only_replicas_that_have_changed_are_compared_unless_a_directory_is_full_or_all_may_differ() -> None:
    story = Story()
    (directory,) = story.directories.online
    elsewhere = [UUID(int=1 << 80), UUID(int=1 << 90)]
    story.state.replay_all(framed(FeatureLevelRecord(name=METADATA_VERSION, feature_level=DIRECTORIES_SINCE)))
    story.state.replay_all(framed(partition(1, 1, 2, directories=elsewhere), partition(2, 1, 2, directories=elsewhere)))
    held = {
        number: SimpleNamespace(
            log=SimpleNamespace(log_dir=DATA, topic_id=TOPIC),
            topic_partition=TopicPartition(TopicName("t"), PartitionId(number)),
        )
        for number in range(3)
    }
    full: set[Path] = set()
    replicas: Any = SimpleNamespace(
        full_directories=lambda: full,
        partitions=lambda: list(held.values()),
        find=lambda topic_id, number: held.get(number),
    )
    metadata: Any = SimpleNamespace(broker_id=BrokerId(1), state=story.state, image=story.state.image())
    reported: list[list[int]] = []

    async def ask(request: Any, version: int) -> Any:
        parts = [part for where in request.directories for topic in where.topics for part in topic.partitions]
        reported.append(sorted(part.partition_index for part in parts))
        assert {where.id for where in request.directories} == {directory_uuid(directory.directory_id)}
        return SimpleNamespace(error_code=0, directories=[])

    async def look(partitions: list[tuple[UUID, int]] | None) -> list[int]:
        assignments = DirectoryAssignments(metadata, replicas, story.directories, ask, lambda: 1)
        reported.clear()
        assignments.look(partitions)
        assert assignments._task is not None
        await assignments._task
        return reported[0] if reported else []

    assert asyncio.run(look([(TOPIC, 1)])) == [1]
    assert asyncio.run(look([(TOPIC, 0)])) == []
    assert asyncio.run(look([(TOPIC, 7)])) == []
    assert asyncio.run(look(None)) == [1, 2]
    full.add(MORE)
    assert asyncio.run(look([])) == [1, 2]
