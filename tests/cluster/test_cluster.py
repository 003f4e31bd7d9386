"""Brokers that share topics: leaders, the records of followers, and the answers to clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import NewTopic

from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.protocol.messages import alter_partition_reassignments as reassign
from ottla.protocol.messages import fetch, list_offsets, list_partition_reassignments
from ottla.protocol.messages import produce as produce_messages
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.records.record import Record, encode_batch
from tests.compat.cli.program import OttlaProgram
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(racks={1: "a", 2: "b", 3: "c"}, replica_selector_class=RACK_AWARE) as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", "-").replace("]", "")


def values(count: int) -> list[bytes]:
    return [f"{number}".encode() for number in range(count)]


def read(cluster: ClusterInProcess, topic: str, count: int, **settings: object) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "r", "log_level": 0, **settings})
    consumer.assign([At(topic, 0, 0)])
    found: list[bytes] = []

    def read_some() -> bool:
        found.extend(message.value() or b"" for message in consumer.consume(100, timeout=0.5) if not message.error())
        return len(found) >= count

    try:
        eventually(read_some, interval_s=0)
    finally:
        consumer.close()
    return found


def test_followers_hold_the_bytes_of_their_leader(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[2, 3, 1]])
    cluster.produce(topic, values(500))
    leaders = cluster.log_bytes(2, topic)
    assert leaders
    eventually(lambda: cluster.log_bytes(1, topic) == leaders == cluster.log_bytes(3, topic))
    assert read(cluster, topic, 500) == values(500)
    eventually(lambda: set(cluster.partition(topic).isr) == {1, 2, 3})


def test_every_broker_tells_the_same_of_the_cluster(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2], [2, 3], [3, 1]])
    first, *others = (
        {
            name: (known.topic_id, [part._replace(adding=(), removing=()) for part in known.partitions])
            for name, known in cluster.image(number).topics.items()
        }
        for number in cluster.brokers
    )
    assert topic in first
    assert others == [first, first]
    assert [part.leader for part in cluster.image(3).topics[TopicName(topic)].partitions] == [1, 2, 3]


def test_more_replicas_than_brokers_are_refused(cluster: ClusterInProcess, topic: str) -> None:
    admin = cluster.admin()
    with pytest.raises(KafkaException, match="only 3 broker"):
        admin.create_topics([NewTopic(topic, 1, 4)])[topic].result(20)


def batch(value: bytes = b"v") -> bytes:
    return bytes(encode_batch([Record(0, 1_700_000_000_000, None, value)]))


def test_who_produces_to_a_follower_is_told_who_leads_and_where(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[2, 1]])
    topic_id = cluster.image(1).topics[TopicName(topic)].topic_id
    request = produce_messages.ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            produce_messages.TopicProduceData(
                topic_id=topic_id,
                partition_data=[produce_messages.PartitionProduceData(index=0, records=batch())],
            )
        ],
    )
    response = ask(cluster.address(1), request, 13)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "127.0.0.1", cluster.brokers[2].port)
    assert ask(cluster.address(2), request, 13).responses[0].partition_responses[0].error_code == 0


def fetch_request(cluster: ClusterInProcess, topic: str, *, rack: str = "", epoch: int = -1) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        rack_id=rack,
        topics=[
            fetch.FetchTopic(
                topic_id=cluster.image(1).topics[TopicName(topic)].topic_id,
                partitions=[
                    fetch.FetchPartition(
                        partition=0, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_may_read_there(
    cluster: ClusterInProcess, topic: str
) -> None:
    cluster.create(topic, [[1, 2, 3]])
    cluster.produce(topic, values(10))
    near = ask(cluster.address(1), fetch_request(cluster, topic, rack="c"), 17).responses[0].partitions[0]
    assert (near.preferred_read_replica, near.records) == (3, b"")
    for rack in ("a", "", "nowhere"):
        own = ask(cluster.address(1), fetch_request(cluster, topic, rack=rack), 17).responses[0].partitions[0]
        assert own.preferred_read_replica == -1
        assert own.records

    def read_at_follower() -> bool:
        told = ask(cluster.address(3), fetch_request(cluster, topic, rack="c"), 17).responses[0].partitions[0]
        return told.error_code == 0 and told.high_watermark == 10 and bytes(told.records) == cluster.log_bytes(1, topic)

    eventually(read_at_follower)
    assert read(cluster, topic, 10, **{"client.rack": "c"}) == values(10)
    fenced = ask(cluster.address(3), fetch_request(cluster, topic, epoch=9), 17).responses[0].partitions[0]
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def moved(cluster: ClusterInProcess, topic: str, replicas: list[int] | None) -> reassign.ReassignablePartitionResponse:
    request = reassign.AlterPartitionReassignmentsRequest(
        topics=[
            reassign.ReassignableTopic(
                name=topic, partitions=[reassign.ReassignablePartition(partition_index=0, replicas=replicas)]
            )
        ]
    )
    response = ask(cluster.address(cluster.controller), request, 0)
    return response.responses[0].partitions[0]


def test_a_partition_moves_to_other_brokers_with_all_it_holds(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2]])
    cluster.produce(topic, values(300))
    records = cluster.log_bytes(1, topic)
    assert moved(cluster, topic, [3, 2]).error_code == 0
    eventually(lambda: cluster.partition(topic).replicas == (3, 2))
    assert cluster.partition(topic).leader == 3
    assert cluster.log_bytes(3, topic) == records
    eventually(lambda: not (cluster.directory / "1" / f"{topic}-0").exists())
    cluster.produce(topic, values(10))
    assert read(cluster, topic, 310) == [*values(300), *values(10)]
    nothing = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    assert ask(cluster.address(cluster.controller), nothing, 0).topics == []


def test_reassignments_that_make_no_sense_are_refused(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2]])
    assert moved(cluster, topic, [1, 9]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert moved(cluster, topic, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    follower = next(number for number in cluster.brokers if number != cluster.controller)
    request = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    assert ask(cluster.address(follower), request, 0).error_code == ErrorCode.NOT_CONTROLLER


def test_deleted_topics_go_from_every_broker(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2, 3]])
    cluster.produce(topic, values(5))
    admin = cluster.admin()
    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: all(topic not in cluster.image(number).topics for number in cluster.brokers))
    eventually(lambda: not list(cluster.directory.glob(f"*/{topic}-0")))
    cluster.create(topic, [[3, 2]])
    cluster.produce(topic, [b"anew"])
    assert read(cluster, topic, 1) == [b"anew"]


def test_a_topic_is_made_by_whichever_broker_is_asked_for_it(cluster: ClusterInProcess, topic: str) -> None:
    for number in cluster.brokers:
        name = f"{topic}-{number}"
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        answer = ask(cluster.address(number), request, 9).topics[0]
        assert answer.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)
        assert len(answer.partitions[0].replica_nodes) == 3


def test_requests_of_a_controller_of_the_past_are_refused(cluster: ClusterInProcess) -> None:
    stale: dict[str, Any] = {"controller_id": 1, "controller_epoch": 0, "topic_states": []}
    told = LeaderAndIsrRequest(live_leaders=[], **stale)
    assert ask(cluster.address(2), told, 7).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (
        ask(cluster.address(2), UpdateMetadataRequest(live_brokers=[], **stale), 8).error_code
        == ErrorCode.STALE_CONTROLLER_EPOCH
    )


def test_a_broker_of_the_past_is_sent_nothing(cluster: ClusterInProcess) -> None:
    told = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=1 << 20, broker_epoch=0, topic_states=[], live_leaders=[]
    )
    assert ask(cluster.address(2), told, 7).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_settings_reach_every_broker(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2, 3]])
    cluster.alter(topic, "retention.ms", "4711")

    def everywhere() -> bool:
        return all(
            broker.metadata.log_config(TopicName(topic)).retention_ms == 4711 for broker in cluster.brokers.values()
        )

    eventually(everywhere)


def test_tools_learn_where_the_log_of_each_replica_ends(cluster: ClusterInProcess, topic: str) -> None:
    """Committed or not: that is how far a follower is behind (`ottla cluster watch`)."""
    cluster.create(topic, [[1, 2, 3]], min_insync_replicas="1")
    cluster.produce(topic, values(5))
    cluster.stop_copying(3, topic)
    cluster.produce_without_waiting(topic, values(5))

    def end_at(broker: int, replica: int) -> tuple[int, int]:
        wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])]
        answer = ask(cluster.address(broker), list_offsets.ListOffsetsRequest(replica_id=replica, topics=topics), 7)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    assert end_at(1, -2) == (0, 10)
    eventually(lambda: end_at(2, -2) == (0, 10))
    assert end_at(3, -2) == (0, 5)
    assert end_at(3, -1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.resume_copying(3, topic)
    eventually(lambda: end_at(3, -2) == (0, 10))


def test_a_cluster_without_a_quorum_names_its_zookeeper(cluster: ClusterInProcess) -> None:
    said = OttlaProgram(cluster.bootstrap)("quorum", "status", code=1).stderr
    assert "this cluster has no quorum of controllers: its metadata is in ZooKeeper at in-memory; `ottla" in said
