"""A broker that returns with another disk than it had leads nothing that others have, and they keep what they have."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.records.batch import iter_batches
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.raw_client import ask
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

UNCLEAN = 1
ELECT_LEADERS = 2
LOST = "is not here, and a log directory that this broker had is missing"


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess() as started:
        yield started


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def disk(cluster: ClusterInProcess, number: int, name: str = "") -> Path:
    return cluster.directory / str(number) / name


def empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def elect_uncleanly(cluster: ClusterInProcess, topic: str, partition: int = 0) -> int:
    """The error of the partition."""
    request = ElectLeadersRequest(
        election_type=UNCLEAN,
        topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
        timeout_ms=10_000,
    )
    response = ask(cluster.address(cluster.controller), request, ELECT_LEADERS)
    return int(response.replica_election_results[0].partition_result[0].error_code)


def until_in_sync(cluster: ClusterInProcess, topic: str, *replicas: int) -> None:
    eventually(lambda: set(cluster.partition(topic).isr) == set(replicas), timeout_s=30)


def until_lost(cluster: ClusterInProcess, topic: str, number: int) -> None:
    """Wait until the controller knows that a broker has lost its replica, and nobody leads."""
    replica = (number, topic, 0)
    eventually(
        lambda: cluster.partition(topic).leader == -1 and replica in cluster.image(cluster.controller).failed_replicas,
        timeout_s=30,
    )


def end_of(cluster: ClusterInProcess, number: int, topic: str) -> int:
    found = cluster.brokers[number].replicas.find(topic, 0)
    return -1 if found is None else found.log.log_end_offset


# -- with processes ------------------------------------------------------------------------------------------------


def fill(cluster: OttlaCluster, topic: str) -> set[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    problems: list[object] = []
    sent = values(0, 1200)
    for number, value in enumerate(sent):
        producer.produce(topic, value, partition=number % 6, on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(40) == 0
    assert problems == [None] * 1200
    return set(sent)


@pytest.fixture
def processes(zookeeper: ZooKeeperServer) -> Iterator[OttlaCluster]:
    with OttlaCluster(f"{zookeeper.connect}/{uuid4()}") as started:
        yield started


@pytest.mark.timeout(240)
def test_all_are_stopped_in_order_and_the_last_one_gets_a_new_disk(processes: OttlaCluster) -> None:
    processes.create("t", partitions=6)
    sent = fill(processes, "t")
    for broker in processes.brokers.values():
        broker.stop()
    shutil.rmtree(processes.brokers[3].log_dir)
    for broker in processes.brokers.values():
        broker.start(wait=False)
    for broker in processes.brokers.values():
        broker.wait_until_ready()
    processes.until_in_sync("t", 1, 2, 3)
    found = read_all(processes.bootstrap, "t", len(sent))
    assert len(found) == len(sent)
    assert set(found) == sent
    assert "drops offsets" not in "".join(broker.log_file.read_text() for broker in processes.brokers.values())


@pytest.mark.timeout(240)
def test_all_are_killed_and_one_with_a_new_disk_is_back_first(processes: OttlaCluster) -> None:
    processes.create("t", partitions=6)
    sent = fill(processes, "t")
    for broker in processes.brokers.values():
        broker.kill()
    shutil.rmtree(processes.brokers[2].log_dir)
    processes.brokers[2].start()
    eventually(lambda: LOST in processes.brokers[2].log_file.read_text(), timeout_s=30)
    for number in (1, 3):
        processes.brokers[number].start()
    processes.until_in_sync("t", 1, 2, 3)
    found = read_all(processes.bootstrap, "t", len(sent))
    assert len(found) == len(sent)
    assert set(found) == sent


# -- in one process ------------------------------------------------------------------------------------------------


def test_the_last_one_in_sync_loses_its_disk_and_the_one_that_left_last_leads(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[3, 1, 2]])
    cluster.produce("t", values(0, 20))
    cluster.stop(1)
    cluster.produce("t", values(20, 20))  # which 1 does not have
    cluster.stop(2)
    cluster.stop(3)
    empty(disk(cluster, 3))
    for number in (3, 1):
        cluster.start(number)
    until_lost(cluster, "t", 3)
    eventually(lambda: end_of(cluster, 1, "t") == 20)
    cluster.start(2)
    until_in_sync(cluster, "t", 1, 2, 3)
    assert read_all(cluster.bootstrap, "t", 40) == values(0, 40)


def test_a_partition_whose_only_replica_is_lost_waits_until_an_operator_gives_it_up(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[2]])
    cluster.produce("t", values(0, 5))
    for _ in range(2):  # what is lost stays lost when the broker is started once more
        cluster.stop(2)
        shutil.rmtree(disk(cluster, 2))
        cluster.start(2)
        until_lost(cluster, "t", 2)
    cluster.stop(2)
    cluster.start(2)
    until_lost(cluster, "t", 2)
    assert elect_uncleanly(cluster, "t") == 0
    eventually(lambda: cluster.partition("t").leader == 2, timeout_s=30)
    cluster.produce("t", values(5, 5))
    assert read_all(cluster.bootstrap, "t", 5) == values(5, 5)
    cluster.stop(2)
    cluster.start(2)
    eventually(lambda: cluster.partition("t").leader == 2, timeout_s=30)
    assert read_all(cluster.bootstrap, "t", 5) == values(5, 5)


def test_what_all_have_lost_is_begun_anew_only_if_somebody_wants_it(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3]])
    cluster.produce("t", values(0, 5))
    for number in (1, 2, 3):
        cluster.stop(number)
    for number in (1, 2, 3):
        empty(disk(cluster, number))
    for number in (1, 2, 3):
        cluster.start(number)
    for number in (1, 2, 3):
        until_lost(cluster, "t", number)
    assert elect_uncleanly(cluster, "t") == 0
    until_in_sync(cluster, "t", 1, 2, 3)
    cluster.produce("t", values(5, 5))
    assert read_all(cluster.bootstrap, "t", 5) == values(5, 5)


def test_the_leader_of_an_old_copy_of_its_disk_is_another(cluster: ClusterInProcess) -> None:
    """The same directory, restored from a backup: shorter logs."""
    cluster.create("t", [[3, 1, 2]])
    cluster.produce("t", values(0, 20))
    cluster.stop(3)
    shutil.copytree(disk(cluster, 3), cluster.directory / "backup")
    cluster.start(3)
    until_in_sync(cluster, "t", 1, 2, 3)
    cluster.produce("t", values(20, 20))
    for number in (1, 2, 3):
        cluster.stop(number)
    shutil.rmtree(disk(cluster, 3))
    (cluster.directory / "backup").rename(disk(cluster, 3))
    for number in (3, 1, 2):
        cluster.start(number)
    until_in_sync(cluster, "t", 1, 2, 3)
    assert read_all(cluster.bootstrap, "t", 40) == values(0, 40)
    eventually(lambda: end_of(cluster, 3, "t") == 40)


def test_the_directory_of_a_partition_is_removed_by_hand(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[3, 1, 2]])
    cluster.produce("t", values(0, 20))
    for number in (1, 2, 3):
        cluster.stop(number)
    shutil.rmtree(disk(cluster, 3) / "t-0")
    for number in (3, 1, 2):
        cluster.start(number)
    until_in_sync(cluster, "t", 1, 2, 3)
    assert read_all(cluster.bootstrap, "t", 20) == values(0, 20)
    eventually(lambda: end_of(cluster, 3, "t") == 20)


def test_one_of_two_disks_is_replaced() -> None:
    """What was on the other one is led as before."""
    with ClusterInProcess(log_directories=("a", "b")) as cluster:
        cluster.create("t", [[3]] * 4)
        for number in range(4):
            cluster.produce("t", values(10 * number, 10), partition=number)
        cluster.stop(3)
        kept = {number for number in range(4) if (disk(cluster, 3, "a") / f"t-{number}").exists()}
        assert 0 < len(kept) < 4
        empty(disk(cluster, 3, "b"))
        cluster.start(3)
        eventually(
            lambda: {number for number in range(4) if cluster.partition("t", number).leader == 3} == kept, timeout_s=30
        )
        for number in set(range(4)) - kept:
            eventually(
                lambda at=number: (3, "t", at) in cluster.image(cluster.controller).failed_replicas, timeout_s=30
            )
            assert elect_uncleanly(cluster, "t", number) == 0
        eventually(lambda: all(cluster.partition("t", number).leader == 3 for number in range(4)), timeout_s=30)
        record = cluster.tree.nodes["/ottla/log_directories/3"]
        eventually(lambda: cluster.tree.nodes["/ottla/log_directories/3"].data != record.data, timeout_s=30)


def test_a_new_topic_is_no_lost_one(cluster: ClusterInProcess) -> None:
    """A broker that is in doubt about its disk holds what is made while it is."""
    cluster.create("old", [[3]])
    cluster.produce("old", values(0, 5))
    cluster.stop(3)
    empty(disk(cluster, 3))
    cluster.start(3)
    until_lost(cluster, "old", 3)
    cluster.create("t", [[3, 1, 2]])
    cluster.produce("t", values(0, 5))
    assert cluster.partition("t").leader == 3
    cluster.stop(3)
    cluster.start(3)
    until_in_sync(cluster, "t", 1, 2, 3)
    assert end_of(cluster, 3, "old") == -1
    assert cluster.brokers[3].replicas.directories.lacks(TopicPartition(TopicName("old"), PartitionId(0)))


def test_what_an_unclean_election_gives_up_is_kept_in_files(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[3, 1]], min_insync_replicas="1")
    cluster.produce("t", values(0, 10))
    cluster.stop(1)
    cluster.produce("t", values(10, 10))
    cluster.stop(3)
    cluster.start(1)
    eventually(lambda: cluster.partition("t").leader == -1, timeout_s=30)
    assert elect_uncleanly(cluster, "t") == 0
    eventually(lambda: cluster.partition("t").leader == 1, timeout_s=30)
    cluster.start(3)
    until_in_sync(cluster, "t", 1, 3)
    assert read_all(cluster.bootstrap, "t", 10) == values(0, 10)
    (kept,) = disk(cluster, 3).glob("t-0.*-stray")
    batches = iter_batches((kept / f"{0:020d}.log").read_bytes())
    assert max(batch.next_offset for batch in batches) == 20
