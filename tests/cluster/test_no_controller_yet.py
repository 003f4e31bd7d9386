"""A broker to which no controller has spoken knows of no topic, and says of none that it does not exist."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Delete, Update
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.primitives import NULL_UUID
from ottla.records.record import Record, encode_batch
from ottla.testing.memory_store import MemoryStore
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, ask

NODE = b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}'


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    """One broker of two, restarted while the controller is one that says nothing."""
    with ClusterInProcess(1, min_insync_replicas="1", zookeeper_session_timeout_ms="200") as started:
        started.create("t", [[1]])
        started.produce("t", [b"v"])
        started.stop(1)
        silent = MemoryStore(started.tree)

        async def take_over() -> None:
            await silent.open()
            await silent.commit([Create(layout.CONTROLLER_PATH, NODE, session_bound=True)])

        started.run(take_over())
        started.start(1)
        yield started
        started.run(silent.close())


def test_clients_are_asked_to_come_back(cluster: ClusterInProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    address = cluster.address(1)
    monkeypatch.setattr("ottla.server.handlers.metadata.KNOWN_WITHIN_S", 0.05)
    by_name = MetadataRequestTopic(topic_id=NULL_UUID, name="t")
    by_id = MetadataRequestTopic(topic_id=uuid4(), name=None)
    for topics in ([by_name], [by_id], None):
        with pytest.raises(ClosedError):
            ask(address, MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
    latest = ask(address, MetadataRequest(topics=[by_name]), 13)
    assert (latest.error_code, latest.topics) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert (
        ask(address, DescribeClusterRequest(include_cluster_authorized_operations=False), 1).error_code
        == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    described = ask(address, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    assert described.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    found = ask(address, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    batch = encode_batch([Record(0, 1, None, b"v")])
    for version, name, topic_id in ((9, "t", NULL_UUID), (13, "", uuid4())):
        data = TopicProduceData(
            name=name, topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        produced = ask(address, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), version)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    wanted = FetchTopic(topic_id=uuid4(), partitions=[partition])
    fetched = ask(address, FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[wanted]), 13)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_it_answers_as_soon_as_a_controller_has_spoken(
    cluster: ClusterInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.handlers.metadata.KNOWN_WITHIN_S", 20.0)

    async def give_way() -> None:
        node = cluster.tree.nodes[layout.CONTROLLER_PATH]
        await cluster.stores[1].commit([Delete(layout.CONTROLLER_PATH, node.version)])

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, cluster.address(1), MetadataRequest(topics=None), 12)
        with pytest.raises(TimeoutError):
            answer.result(0.1)
        cluster.run(give_way())
        assert [topic.name for topic in answer.result(20).topics] == ["t"]
    cluster.produce("t", [b"w"])


def test_a_store_that_has_lost_its_data_is_not_believed(cluster: ClusterInProcess) -> None:
    """Settings read from it would let records go, and a controller without topics would have all replicas deleted."""
    metadata = cluster.brokers[1].metadata
    assert isinstance(metadata, ClusterMetadata)
    known = metadata.image.cluster_id

    async def become(cluster_id: str) -> None:
        node = cluster.tree.nodes[layout.CLUSTER_ID_PATH]
        await cluster.stores[1].commit([Update(node_path, layout.cluster_id_node(cluster_id), node.version)])

    node_path = layout.CLUSTER_ID_PATH
    cluster.run(become("another"))
    cluster.lose_session(1)
    cluster.begin_session(1)
    registered = f"{layout.BROKERS_PATH}/1"
    with pytest.raises(AssertionError):
        eventually(lambda: registered in cluster.tree.nodes, timeout_s=1)
    cluster.run(become(known))
    eventually(lambda: registered in cluster.tree.nodes)
