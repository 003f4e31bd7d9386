"""Clients learn of a new topic when its leaders serve it: nobody is refused for having been quick (ADR 30)."""

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from ottla.cluster.announcements import LONGEST_S
from ottla.cluster.image import MetadataImage
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.log.fs import RealFileSystem
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.test_fencing import produce_request
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask

LEADER = 2


class SlowFiles(RealFileSystem):
    """A disk on which directories are made when a test lets them be."""

    def __init__(self) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self.has_begun = threading.Event()

    def hold(self) -> None:
        self._may_go_on.clear()
        self.has_begun.clear()

    def let_go(self) -> None:
        self._may_go_on.set()

    def make_directory(self, path: str) -> None:
        self.has_begun.set()
        assert self._may_go_on.wait(30)
        super().make_directory(path)


@pytest.fixture
def files() -> SlowFiles:
    return SlowFiles()


@pytest.fixture
def cluster(files: SlowFiles) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(files={LEADER: files}, min_insync_replicas="1") as started:
        yield started
        files.let_go()


def asked_of_the_leader(cluster: ClusterInProcess, topic_id: UUID) -> list[ErrorCode]:
    """What it answers to Produce, ListOffsets and Fetch, by the topic's name and by its id."""
    address = cluster.address(LEADER)
    produced = ask(address, produce_request("value", 1), 9)
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    listed = ask(address, ListOffsetsRequest(replica_id=-1, topics=[wanted]), 6)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    by_name = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[part])])
    by_id = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic_id=topic_id, partitions=[part])])
    return [
        ErrorCode(produced.responses[0].partition_responses[0].error_code),
        ErrorCode(listed.topics[0].partitions[0].error_code),
        ErrorCode(ask(address, by_name, 12).responses[0].partitions[0].error_code),
        ErrorCode(ask(address, by_id, 13).responses[0].partitions[0].error_code),
    ]


def decided(cluster: ClusterInProcess) -> MetadataImage:
    """What the controller knows, announced or not."""
    metadata = cluster.brokers[cluster.controller].metadata
    assert isinstance(metadata, ClusterMetadata)
    assert metadata.controller is not None
    return metadata.controller.image


def shown_by(cluster: ClusterInProcess, number: int) -> list[int]:
    """The partitions of `t` in a broker's metadata."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    (topic,) = ask(cluster.address(number), request, 12).topics
    return sorted(partition.partition_index for partition in topic.partitions)


def test_a_topic_is_shown_when_its_leader_has_made_its_files(cluster: ClusterInProcess, files: SlowFiles) -> None:
    files.hold()
    admin = cluster.admin()
    creation = admin.create_topics([NewTopic("t", 1, replica_assignment=[[LEADER, 3]])])["t"]
    assert files.has_begun.wait(20)
    assert [shown_by(cluster, number) for number in (1, 2, 3)] == [[], [], []]
    topic_id = decided(cluster).topics[TopicName("t")].topic_id
    assert asked_of_the_leader(cluster, topic_id) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4
    files.let_go()
    eventually(lambda: shown_by(cluster, 3) == [0], interval_s=0.001)
    assert asked_of_the_leader(cluster, topic_id) == [ErrorCode.NONE] * 4
    creation.result(20)


def test_new_partitions_are_shown_when_their_leader_has_made_them(cluster: ClusterInProcess, files: SlowFiles) -> None:
    cluster.create("t", [[1]])
    files.hold()
    admin = cluster.admin()
    growth = admin.create_partitions([NewPartitions("t", 2, [[LEADER]])])["t"]
    assert files.has_begun.wait(20)
    assert [shown_by(cluster, number) for number in (1, 2, 3)] == [[0], [0], [0]]
    files.let_go()
    growth.result(20)
    assert shown_by(cluster, 1) == [0, 1]


def test_a_leader_that_hangs_delays_a_topic_for_two_seconds_only(cluster: ClusterInProcess, files: SlowFiles) -> None:
    files.hold()
    admin = cluster.admin()
    creation = admin.create_topics([NewTopic("t", 2, replica_assignment=[[LEADER], [1]])])["t"]
    creation.result(LONGEST_S + 3)
    assert shown_by(cluster, 1) == [0, 1]
    files.let_go()
    eventually(lambda: cluster.brokers[LEADER].replicas.find("t", 0))


def test_a_client_that_creates_produces_and_consumes_at_once_sees_no_error(cluster: ClusterInProcess) -> None:
    """librdkafka, with no second try."""
    admin = cluster.admin()
    for number in range(10):
        topic = f"t{number}"
        admin.create_topics([NewTopic(topic, 3, 2)])[topic].result(20)
        cluster.produce(topic, [b"v"], partition=number % 3, retries=0)
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "error", "log_level": 0}
        )
        consumer.assign([TopicPartition(topic, number % 3, 0)])
        (read,) = consumer.consume(1, timeout=20)
        consumer.close()
        assert (read.error(), read.value()) == (None, b"v")
