"""Requests about topics, settings and the cluster, in all served versions, over a real socket."""

from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.raw_client import ask
from tests.wire.admin_requests import create, metadata, produce, versions

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import create_partitions as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_records as dr
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import describe_cluster as dcl
from ottla.protocol.messages import describe_log_dirs as dl
from ottla.protocol.messages import describe_producers as dp
from ottla.protocol.messages import describe_topic_partitions as dtp
from ottla.protocol.messages import elect_leaders as el
from ottla.protocol.messages import init_producer_id as ip
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import offset_for_leader_epoch as oe
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.primitives import NULL_UUID
from ottla.testing import Broker

# -- creating, growing, deleting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_creating_topics(ottla_broker: Broker, version: int) -> None:
    made = create(ottla_broker, "orders", 3, {"retention.ms": "1000"}, version)
    assert (made.error_code, made.error_message) == (0, None)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        configs = {config.name: config for config in made.configs or []}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
        assert list(configs) == sorted(configs)
    again = create(ottla_broker, "orders", 3, {}, version)
    assert (again.error_code, again.error_message) == (36, "Topic 'orders' already exists.")
    (topic,) = metadata(ottla_broker, "orders").topics
    if version >= 7:
        assert topic.topic_id == made.topic_id
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    assert {partition.leader_id for partition in topic.partitions} == {1}


def test_creating_is_validated_without_being_done(ottla_broker: Broker) -> None:
    assert create(ottla_broker, "ghost", 2, validate_only=True).error_code == 0
    assert create(ottla_broker, "ghost", 0, validate_only=True).error_code == ErrorCode.INVALID_PARTITIONS
    answer = metadata(ottla_broker, "ghost", allow_auto_topic_creation=False)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_bad_topic_does_not_spoil_the_others(ottla_broker: Broker) -> None:
    def topic(
        name: str, count: int = -1, factor: int = -1, assignments: dict[int, list[int]] | None = None
    ) -> ct.CreatableTopic:
        return ct.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=factor,
            assignments=[
                ct.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
                for number, replicas in (assignments or {}).items()
            ],
            configs=[],
        )

    asked = [
        topic("good"),
        topic("bad name"),
        topic("none", 0, 1),
        topic("three", 1, 3),
        topic("placed", -1, -1, {0: [1], 1: [1]}),
        topic("misplaced", -1, -1, {0: [9]}),
        topic("twice"),
        topic("twice"),
        topic("__cluster_metadata"),
    ]
    answer = ask(ottla_broker.bootstrap, ct.CreateTopicsRequest(topics=asked), 7)
    assert {result.name: ErrorCode(result.error_code).name for result in answer.topics} == {
        "good": "NONE",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "none": "INVALID_PARTITIONS",
        "three": "INVALID_REPLICATION_FACTOR",
        "placed": "NONE",
        "misplaced": "INVALID_REPLICA_ASSIGNMENT",
        "twice": "INVALID_REQUEST",
        "__cluster_metadata": "INVALID_REQUEST",
    }
    assert len(answer.topics) == 8


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_deleting_topics(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 2)
    if version >= 6:
        states = [dt.DeleteTopicState(name=name, topic_id=NULL_UUID) for name in ("orders", "missing")]
        request = dt.DeleteTopicsRequest(topics=states, timeout_ms=1000)
    else:
        request = dt.DeleteTopicsRequest(topic_names=["orders", "missing"], timeout_ms=1000)
    answer = ask(ottla_broker.bootstrap, request, version)
    assert {result.name: result.error_code for result in answer.responses} == {"orders": 0, "missing": 3}
    gone = metadata(ottla_broker, "orders", allow_auto_topic_creation=False)
    assert gone.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_by_id(ottla_broker: Broker) -> None:
    made = create(ottla_broker, "orders")
    ids = [made.topic_id, UUID(int=77), NULL_UUID]
    request = dt.DeleteTopicsRequest(
        topics=[dt.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
        + [dt.DeleteTopicState(name="x", topic_id=UUID(int=78))],
        timeout_ms=1000,
    )
    answer = ask(ottla_broker.bootstrap, request, 6)
    assert {(result.name, result.topic_id, result.error_code) for result in answer.responses} == {
        ("orders", made.topic_id, 0),
        (None, UUID(int=77), ErrorCode.UNKNOWN_TOPIC_ID),
        (None, NULL_UUID, ErrorCode.INVALID_REQUEST),
        ("x", UUID(int=78), ErrorCode.INVALID_REQUEST),
    }


def test_deletion_can_be_disabled() -> None:
    with Broker(config={"delete.topic.enable": "false"}) as broker:
        create(broker, "orders")
        request = dt.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000)
        assert ask(broker.bootstrap, request, 5).responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_growing_topics(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 1)

    def grow(count: int, *, validate_only: bool = False) -> int:
        topic = cp.CreatePartitionsTopic(name="orders", count=count, assignments=None)
        request = cp.CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
        code: int = ask(ottla_broker.bootstrap, request, version).results[0].error_code
        return code

    assert grow(3, validate_only=True) == 0
    assert len(metadata(ottla_broker, "orders").topics[0].partitions) == 1
    assert grow(3) == 0
    assert grow(3) == grow(2) == ErrorCode.INVALID_PARTITIONS
    produce(ottla_broker, "orders", 5, partition=2)


# -- metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_in_every_version(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 2)
    every = ask(ottla_broker.bootstrap, md.MetadataRequest(topics=[] if version == 0 else None), version)
    assert [topic.name for topic in every.topics] == ["orders"]
    assert [(broker.node_id, broker.host, broker.port) for broker in every.brokers] == [
        (1, "127.0.0.1", ottla_broker.port)
    ]
    if version >= 1:
        assert every.controller_id == 1
        assert ask(ottla_broker.bootstrap, md.MetadataRequest(topics=[]), version).topics == []
    if version >= 2:
        assert len(every.cluster_id) == 22
    if version >= 7:
        assert [partition.leader_epoch for partition in every.topics[0].partitions] == [0, 0]
    made = metadata(ottla_broker, "made.by.asking", "orders", "no/name", version=version)
    codes = {topic.name: topic.error_code for topic in made.topics}
    assert codes == {"made.by.asking": 0, "orders": 0, "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    if version >= 4:
        refused = metadata(ottla_broker, "unasked", version=version, allow_auto_topic_creation=False)
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 8:
        allowed = metadata(ottla_broker, "orders", version=version, include_topic_authorized_operations=True)
        assert allowed.topics[0].topic_authorized_operations == 3576
    if 8 <= version <= 10:
        allowed = metadata(ottla_broker, version=version, include_cluster_authorized_operations=True)
        assert allowed.cluster_authorized_operations == 8096


def test_metadata_by_id(ottla_broker: Broker) -> None:
    made = create(ottla_broker, "orders")
    topics = [md.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (made.topic_id, UUID(int=77))]
    answer = ask(ottla_broker.bootstrap, md.MetadataRequest(topics=topics), 12)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    early = ask(ottla_broker.bootstrap, md.MetadataRequest(topics=topics[:1]), 10)
    assert early.topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_topics_are_not_created_when_the_broker_says_so() -> None:
    with Broker(config={"auto.create.topics.enable": "false"}) as broker:
        answer = metadata(broker, "orders")
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["__transaction_state", "__share_group_state", "__cluster_metadata"])
def test_asking_for_a_coordinators_topic_does_not_create_it(ottla_broker: Broker, name: str) -> None:
    assert metadata(ottla_broker, name).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(ottla_broker, name).topics[0].is_internal == (name != "__cluster_metadata")


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_a_broker_that_listens_everywhere_is_found_where_it_was_dialled(host: str) -> None:
    with Broker(config={"listeners": f"PLAINTEXT://{host}:0"}) as broker:
        here = ("127.0.0.1", broker.port)
        assert [(node.host, node.port) for node in metadata(broker).brokers] == [here]
        found = ask(broker.bootstrap, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6).coordinators[0]
        assert (found.host, found.port) == here


def test_what_is_advertised_is_told() -> None:
    with Broker(config={"advertised.listeners": "PLAINTEXT://box.example:19092"}) as broker:
        assert [(node.host, node.port) for node in metadata(broker).brokers] == [("box.example", 19092)]


def test_topics_in_pieces(ottla_broker: Broker) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        create(ottla_broker, name, count)

    def pieces(limit: int, names: tuple[str, ...] = ()) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        cursor = None
        for _ in range(20):
            request = dtp.DescribeTopicPartitionsRequest(
                topics=[dtp.TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
            )
            answer = ask(ottla_broker.bootstrap, request, 0)
            part = [
                (topic.name, partition.partition_index) for topic in answer.topics for partition in topic.partitions
            ]
            assert len(part) <= limit
            found += part
            cursor = answer.next_cursor
            if cursor is None:
                return found
        raise AssertionError("the pieces do not end")

    every = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    for limit in (1, 2, 3, 5, 6, 100):
        assert pieces(limit) == every
        assert pieces(limit, ("c", "b")) == every[2:]


def test_the_cluster(ottla_broker: Broker) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        request = dcl.DescribeClusterRequest(include_cluster_authorized_operations=version == 2)
        answer = ask(ottla_broker.bootstrap, request, version)
        assert answer.cluster_id == metadata(ottla_broker).cluster_id
        assert [broker.port for broker in answer.brokers] == [ottla_broker.port]
        assert answer.cluster_authorized_operations == (8096 if version == 2 else -0x8000_0000)
    for endpoint, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        request = dcl.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint)
        assert ask(ottla_broker.bootstrap, request, 1).error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_elections_are_not_needed(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders")
    asked = [el.TopicPartitions(topic="orders", partitions=[0, 5]), el.TopicPartitions(topic="missing", partitions=[0])]
    answer = ask(ottla_broker.bootstrap, el.ElectLeadersRequest(topic_partitions=asked), version)
    codes = [[part.error_code for part in topic.partition_result] for topic in answer.replica_election_results]
    assert codes == [[ErrorCode.ELECTION_NOT_NEEDED, 3], [3]]
    every = ask(ottla_broker.bootstrap, el.ElectLeadersRequest(topic_partitions=None), version)
    assert [(topic.topic, topic.partition_result) for topic in every.replica_election_results] == [("orders", [])]


# -- records and producers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_deleting_records(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 2)
    produce(ottla_broker, "orders", 10)

    def delete(offset: int, partition: int = 0, topic: str = "orders") -> tuple[int, int]:
        asked = dr.DeleteRecordsTopic(
            name=topic, partitions=[dr.DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        answer = ask(ottla_broker.bootstrap, dr.DeleteRecordsRequest(topics=[asked], timeout_ms=1000), version)
        (result,) = answer.topics[0].partitions
        return result.low_watermark, result.error_code

    assert delete(4) == (4, 0)
    assert delete(2) == (4, 0)
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": "x"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=10) == (4, 10)
    finally:
        consumer.close()
    assert delete(11) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(-2) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(-1) == (10, 0)
    assert delete(0, partition=7) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(0, topic="missing") == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for number, (policy, error) in enumerate((("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0))):
        create(ottla_broker, f"compacted-{number}", configs={"cleanup.policy": policy})
        assert delete(0, topic=f"compacted-{number}") == (-1 if error else 0, error)


@pytest.mark.parametrize("offset", [10, -1], ids=["named", "to-the-end"])
def test_records_acknowledged_before_their_sync_can_be_deleted(ottla_broker: Broker, offset: int) -> None:
    create(ottla_broker, "orders")
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap, "acks": 1})
    wanted = dr.DeleteRecordsTopic(
        name="orders", partitions=[dr.DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    for round_number in range(1, 11):
        for number in range(10):
            producer.produce("orders", str(number))
        assert producer.flush(10) == 0
        if offset != -1:
            wanted.partitions[0].offset = 10 * round_number
        answer = ask(ottla_broker.bootstrap, dr.DeleteRecordsRequest(topics=[wanted], timeout_ms=5000), 2)
        (result,) = answer.topics[0].partitions
        assert (result.low_watermark, result.error_code) == (10 * round_number, 0)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_producer_ids(ottla_broker: Broker, version: int) -> None:
    def init(transactional_id: str | None = None, **more: Any) -> ip.InitProducerIdResponse:
        request = ip.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000, **more)
        return ask(ottla_broker.bootstrap, request, version)

    given = [init() for _ in range(3)]
    assert {(answer.error_code, answer.producer_epoch) for answer in given} == {(0, 0)}
    assert len({answer.producer_id for answer in given}) == 3
    assert init("").error_code == ErrorCode.INVALID_REQUEST
    refused = init("t")  # no client has looked for its coordinator, so that there is no topic for its state yet
    assert (refused.error_code, refused.producer_id) == (ErrorCode.NOT_COORDINATOR, -1)
    if version >= 3:
        assert init(producer_id=5, producer_epoch=3).error_code == 0
        assert init(producer_id=5).error_code == ErrorCode.INVALID_REQUEST
        assert init(producer_epoch=5).error_code == ErrorCode.INVALID_REQUEST


def test_describing_producers(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    produce(ottla_broker, "orders", 7, **{"enable.idempotence": True})
    request = dp.DescribeProducersRequest(
        topics=[
            dp.TopicRequest(name="orders", partition_indexes=[0, 1]),
            dp.TopicRequest(name="no/name", partition_indexes=[0]),
        ]
    )
    orders, bad = ask(ottla_broker.bootstrap, request, 0).topics
    (producer,) = orders.partitions[0].active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset) == (0, 6, -1)
    assert orders.partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bad.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_ends_of_leader_epochs(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 2)
    produce(ottla_broker, "orders", 5)

    def end(partition: int, epoch: int, current: int = -1) -> tuple[int, int, int]:
        asked = oe.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        topic = oe.OffsetForLeaderTopic(topic="orders", partitions=[asked])
        request = oe.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        (found,) = ask(ottla_broker.bootstrap, request, version).topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    assert end(0, 0) == end(0, 0, current=0) == (0, 0, 5)
    assert end(1, 0) == (0, 0, 0)
    assert end(0, 7) == (0, -1, -1)
    assert end(0, -1) == (0, -1, -1)
    assert end(0, 0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end(9, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_log_directories(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 2)
    produce(ottla_broker, "orders", 5)
    every = ask(ottla_broker.bootstrap, dl.DescribeLogDirsRequest(topics=None), version)
    (directory,) = every.results
    assert directory.log_dir == str(ottla_broker.directory)
    sizes = {part.partition_index: part.partition_size for topic in directory.topics for part in topic.partitions}
    assert set(sizes) == {0, 1}
    assert sizes[0] > 61
    assert sizes[1] == 0
    if version >= 4:
        assert directory.total_bytes > directory.usable_bytes > 0
    asked = [dl.DescribableLogDirTopic(topic="orders", partitions=[1, 9])]
    some = ask(ottla_broker.bootstrap, dl.DescribeLogDirsRequest(topics=asked), version)
    assert [part.partition_index for topic in some.results[0].topics for part in topic.partitions] == [1]
