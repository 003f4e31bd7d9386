"""What counts as lost when a replica's files are not where the metadata log has them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cluster.metadata_log.framed import TOPIC, broker, framed, partition, topic
from tests.unit.log.driver import SetClock

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
