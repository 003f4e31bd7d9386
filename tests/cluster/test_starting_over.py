"""A replica that would have to truncate committed records keeps them, and what it begins instead is not counted on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, LeaderEpoch, TopicName
from ottla.log.directories import LogDirectories
from ottla.log.refill_marks import MARK
from ottla.metadata.quorum import answers
from ottla.replication import manager, starting_over
from ottla.replication.fetchers import ReplicaFetchers
from ottla.replication.partition import Partition
from ottla.server import quorum_opening
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.quorum_in_process import QuorumInProcess
from tests.support.whole_topic import read_all

IN_SYNC = "until the leader has dropped this broker from the in-sync set"
AGAIN = "the leader's log is inconsistent"


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess() as started:
        yield started


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def held(cluster: ClusterInProcess, number: int) -> Partition | None:
    return cluster.brokers[number].replicas.find("t", 0)


def until_in_sync(cluster: ClusterInProcess, *replicas: int) -> None:
    eventually(lambda: set(cluster.partition("t").isr) == set(replicas), timeout_s=30)


def strays(cluster: ClusterInProcess, number: int) -> list[Path]:
    return list((cluster.directory / str(number)).glob("t-0.*-stray"))


def start_over(cluster: ClusterInProcess, number: int) -> None:
    async def begin() -> None:
        found = held(cluster, number)
        assert found is not None
        cluster.brokers[number].replicas.start_over(found, "the leader seems to have less")

    cluster.run(begin())


def test_followers_in_sync_keep_what_their_leader_has_forgotten_and_one_of_them_leads(
    cluster: ClusterInProcess, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("t", [[3, 1, 2]])
    cluster.produce("t", values(0, 10))
    cluster.stop(3)
    eventually(lambda: cluster.partition("t").leader in (1, 2), timeout_s=30)
    cluster.produce("t", values(10, 10))
    cluster.start(3)
    until_in_sync(cluster, 1, 2, 3)
    leader = cluster.partition("t").leader
    followers = {1, 2, 3} - {leader}

    async def forget() -> None:
        found = held(cluster, leader)
        assert found is not None
        epochs = found.log.leader_epochs
        epochs.truncate_end(10)
        epochs.assign(found.leader_epoch + 1, 10)

    cluster.run(forget())
    eventually(lambda: caplog.text.count(IN_SYNC) >= 2, timeout_s=30)
    assert not any(strays(cluster, number) for number in (1, 2, 3))
    cluster.lose_session(leader)
    eventually(lambda: all(cluster.partition_at(number, "t").leader in followers for number in followers), timeout_s=30)
    cluster.begin_session(leader)
    until_in_sync(cluster, 1, 2, 3)
    assert read_all(cluster.bootstrap, "t", 20) == values(0, 20)


def test_no_replica_in_sync_is_emptied_whatever_the_reason(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[3, 1]])
    cluster.produce("t", values(0, 10))
    with pytest.raises(KafkaStorageError, match=IN_SYNC):
        start_over(cluster, 1)
    kept = held(cluster, 1)
    assert kept is not None
    assert kept.log.log_end_offset == 10


def _refused(partition: PartitionImage) -> bool:
    """Whether broker 2 has been elected, and has refused to lead."""
    return (partition.leader, partition.eligible) == (NO_LEADER, (1,))


def test_a_replica_that_is_filled_again_does_not_lead_since_the_log_of_the_quorum_once_had_it_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its broker has lost the end of that log in a power failure, and reads it anew."""
    with QuorumInProcess() as cluster:
        cluster.create("t", [[1, 2]])
        cluster.produce("t", values(0, 10))
        monkeypatch.setattr(cluster.brokers[2].replicas.fetchers, "follow", Mock())
        cluster.stop_copying(2, "t")
        cluster.produce_without_waiting("t", values(10, 1))
        eventually(lambda: cluster.partition_at(2, "t").isr == (1,))
        start_over(cluster, 2)
        cluster.stop(2)
        cluster.stop(1)
        assert cluster.partition("t").eligible == (1, 2)
        shutil.rmtree(cluster.directory / "2" / "__cluster_metadata-0")
        monkeypatch.setattr(answers, "MAX_BATCH_BYTES", 1)
        monkeypatch.setattr(quorum_opening, "POLL_S", 1e-6)
        cluster.start(2)
        eventually(lambda: _refused(cluster.partition("t")), timeout_s=20)
        cluster.start(1)
        assert read_all(cluster.bootstrap, "t", 11) == values(0, 11)


def test_a_leader_that_has_forgotten_an_epoch_has_its_follower_start_over_once(
    cluster: ClusterInProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", [[1, 2]], min_insync_replicas="1")
    cluster.produce("t", values(0, 10))
    cluster.stop(1)
    eventually(lambda: cluster.partition("t").leader == 2, timeout_s=30)
    cluster.produce("t", values(10, 10))
    cluster.start(1)
    until_in_sync(cluster, 1, 2)
    cluster.stop(1)
    until_in_sync(cluster, 2)
    cluster.stop(2)
    epochs = cluster.directory / "2" / "t-0" / "leader-epoch-checkpoint"
    known = epochs.read_text().splitlines()[2:]
    left = [line for line in known if int(line.split()[1]) != 10]
    assert len(left) < len(known)
    epochs.write_text("".join(f"{line}\n" for line in ("0", str(len(left)), *left)))
    cluster.start(2)
    eventually(lambda: cluster.partition("t").leader == 2, timeout_s=30)
    attempts: list[str] = []
    begin = manager.ReplicaManager.start_over

    def counted(self: manager.ReplicaManager, partition: Partition, reason: str) -> None:
        attempts.append(reason)
        begin(self, partition, reason)

    monkeypatch.setattr(manager.ReplicaManager, "start_over", counted)
    cluster.start(1)
    eventually(lambda: AGAIN in caplog.text, timeout_s=30)
    seen = len(attempts)
    eventually(lambda: len(attempts) >= seen + 3, timeout_s=30)
    assert len(strays(cluster, 1)) == 1
    assert caplog.text.count(AGAIN) == 1
    assert read_all(cluster.bootstrap, "t", 20) == values(0, 20)


def test_what_starts_over_is_tried_until_it_can_be_held_and_does_not_lead_before_it_is_in_sync(
    cluster: ClusterInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", [[2, 1]], min_insync_replicas="1")
    cluster.produce("t", values(0, 10))
    cluster.stop_copying(1, "t")
    cluster.produce_without_waiting("t", values(10, 1))
    until_in_sync(cluster, 2)
    eventually(lambda: cluster.partition_at(1, "t").isr == (2,), timeout_s=30)
    monkeypatch.setattr(starting_over, "REFILL_AGAIN_S", 0.05)
    create_log = LogDirectories.create_log
    is_full = True
    tries = 0

    def create(self: LogDirectories, *arguments: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        if is_full:
            raise KafkaStorageError("no space left")
        return create_log(self, *arguments, **named)

    monkeypatch.setattr(LogDirectories, "create_log", create)
    start_over(cluster, 1)
    eventually(lambda: tries >= 3)
    assert held(cluster, 1) is None
    replicas, state = cluster.brokers[1].replicas, cluster.partition_at(1, "t")
    topic = cluster.image(1).topics[TopicName("t")]
    leads = state._replace(leader=BrokerId(1), leader_epoch=LeaderEpoch(state.leader_epoch + 1))

    async def lead() -> None:
        replicas.become(topic.name, topic.topic_id, leads, is_new=False)

    with pytest.raises(KafkaStorageError, match="was set aside"):
        cluster.run(lead())
    assert replicas.is_refilling
    is_full = False
    until_in_sync(cluster, 1, 2)
    eventually(lambda: not replicas.is_refilling)
    (kept,) = strays(cluster, 1)
    assert (kept / f"{0:020d}.log").stat().st_size > 0


@pytest.mark.parametrize("is_made_anew", [True, False], ids=["while it is filled", "before it is made anew"])
def test_what_starts_over_does_not_lead_after_a_restart_in_the_middle(
    cluster: ClusterInProcess, monkeypatch: pytest.MonkeyPatch, is_made_anew: bool
) -> None:
    cluster.create("t", [[2, 1]], min_insync_replicas="1")
    cluster.produce("t", values(0, 10))
    cluster.stop_copying(1, "t")
    cluster.produce_without_waiting("t", values(10, 1))
    until_in_sync(cluster, 2)
    eventually(lambda: cluster.partition_at(1, "t").isr == (2,), timeout_s=30)
    monkeypatch.setattr(ReplicaFetchers, "follow", lambda self, partition, topic_id: None)
    with monkeypatch.context() as patched:
        if not is_made_anew:
            patched.setattr(LogDirectories, "create_log", Mock(side_effect=KafkaStorageError("no space left")))
        start_over(cluster, 1)
        (kept,) = strays(cluster, 1)
        cluster.stop(1)
    (cluster.directory / "1" / ".kafka_cleanshutdown").unlink()
    cluster.start(1)
    eventually(lambda: held(cluster, 1) is not None, timeout_s=30)
    replicas, state = cluster.brokers[1].replicas, cluster.partition_at(1, "t")
    topic = cluster.image(1).topics[TopicName("t")]
    leads = state._replace(leader=BrokerId(1), leader_epoch=LeaderEpoch(state.leader_epoch + 1))

    async def lead() -> None:
        replicas.become(topic.name, topic.topic_id, leads, is_new=False)

    with pytest.raises(KafkaStorageError, match="another replica has to lead"):
        cluster.run(lead())
    monkeypatch.undo()
    cluster.stop(1)
    cluster.start(1)
    until_in_sync(cluster, 1, 2)
    eventually(lambda: not cluster.brokers[1].replicas.is_refilling)
    eventually(lambda: not list((cluster.directory / "1").glob(f"*/{MARK}")))  # removed by a thread
    assert (kept / f"{0:020d}.log").stat().st_size > 0


@pytest.mark.parametrize(
    ("policy", "advice"),
    [("delete", "find out what the leader has lost"), ("compact", "compaction may have left the leader no record")],
)
def test_the_reason_is_compaction_perhaps_where_the_topic_is_compacted(
    cluster: ClusterInProcess, policy: str, advice: str
) -> None:
    cluster.create(policy, [[2, 1]], cleanup_policy=policy)
    replicas = cluster.brokers[1].replicas
    partition = replicas.find(policy, 0)
    assert partition is not None

    async def start_over() -> None:
        replicas.start_over(partition, "it parts from the leader's log")

    with pytest.raises(KafkaStorageError, match=advice):
        cluster.run(start_over())
