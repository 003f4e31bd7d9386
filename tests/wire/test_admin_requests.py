"""Requests about topics, settings and the cluster, in all served versions, over a real socket."""

from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import alter_configs as ac
from ottla.protocol.messages import create_partitions as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_records as dr
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import describe_cluster as dcl
from ottla.protocol.messages import describe_configs as dc
from ottla.protocol.messages import describe_log_dirs as dl
from ottla.protocol.messages import describe_producers as dp
from ottla.protocol.messages import describe_topic_partitions as dtp
from ottla.protocol.messages import elect_leaders as el
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import init_producer_id as ip
from ottla.protocol.messages import list_config_resources as lc
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import offset_for_leader_epoch as oe
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.primitives import NULL_UUID
from ottla.server.routing import ROUTES
from ottla.testing import Broker

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def versions(api: ApiKey) -> range:
    route = ROUTES[api]
    return range(route.min_version, route.max_version + 1)


def create(
    broker: Broker,
    name: str,
    partitions: int = 1,
    configs: dict[str, str | None] | None = None,
    version: int = 7,
    **more: Any,
) -> ct.CreatableTopicResult:
    topic = ct.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    return ask(broker.bootstrap, ct.CreateTopicsRequest(topics=[topic], **more), version).topics[0]


def metadata(broker: Broker, *names: str, version: int = 13, **more: Any) -> md.MetadataResponse:
    topics = [md.MetadataRequestTopic(name=name) for name in names]
    return ask(broker.bootstrap, md.MetadataRequest(topics=topics, **more), version)


def described(broker: Broker, kind: int, name: str, *keys: str, version: int = 4, **more: Any) -> Any:
    resource = dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return ask(broker.bootstrap, dc.DescribeConfigsRequest(resources=[resource], **more), version).results[0]


def changed(
    broker: Broker, kind: int, name: str, *edits: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    resource = ic.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            ic.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in edits
        ],
    )
    request = ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return ask(broker.bootstrap, request, 1).responses[0]


def value_of(broker: Broker, kind: int, name: str, key: str) -> str | None:
    (entry,) = described(broker, kind, name, key).configs
    return entry.value


def produce(broker: Broker, topic: str, count: int, partition: int = 0, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", **config})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(10) == 0


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

    def grow(count: int, validate_only: bool = False) -> int:
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


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describing_a_topics_settings(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 1, {"retention.ms": "1000"})
    every = described(ottla_broker, TOPIC, "orders", version=version, include_synonyms=True)
    found = {entry.name: entry for entry in every.configs}
    assert len(found) == 34
    own, inherited = found["retention.ms"], found["cleanup.policy"]
    assert (own.value, own.config_source, own.read_only) == ("1000", 1, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in own.synonyms] == [("retention.ms", "1000", 1)]
    assert [(synonym.name, synonym.source) for synonym in inherited.synonyms] == [("log.cleanup.policy", 5)]
    if version >= 3:
        assert (own.config_type, inherited.config_type) == (5, 7)
        assert own.documentation is None
        (told,) = described(
            ottla_broker, TOPIC, "orders", "retention.ms", version=version, include_documentation=True
        ).configs
        assert told.documentation.startswith("Remove segments")


def test_describing_what_is_not_there(ottla_broker: Broker) -> None:
    assert described(ottla_broker, TOPIC, "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(ottla_broker, TOPIC, "no/name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert described(ottla_broker, BROKER, "2").error_code == ErrorCode.INVALID_REQUEST
    assert described(ottla_broker, 99, "x").error_code == ErrorCode.INVALID_REQUEST


def test_describing_a_broker(ottla_broker: Broker) -> None:
    found = {entry.name: entry for entry in described(ottla_broker, BROKER, "1", include_synonyms=True).configs}
    assert found["listeners"].value == "PLAINTEXT://127.0.0.1:0"
    assert (found["listeners"].read_only, found["listeners"].config_source) == (False, 4)
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == (None, False)
    assert found["num.partitions"].value == "1"
    assert (found["num.io.threads"].value, found["num.io.threads"].read_only) == ("8", False), "it has no effect"
    assert (found["ssl.key.password"].value, found["ssl.key.password"].is_sensitive) == (None, True)
    assert described(ottla_broker, BROKER, "").configs == []


def test_changing_a_topics_settings(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    edits: list[tuple[tuple[str, int, str | None], int, str | None]] = [
        (("cleanup.policy", APPEND, "compact"), 0, "delete,compact"),
        (("cleanup.policy", APPEND, "compact"), 0, "delete,compact"),
        (("cleanup.policy", SUBTRACT, "delete"), 0, "compact"),
        (("cleanup.policy", SET, "shred"), ErrorCode.INVALID_CONFIG, "compact"),
        (("cleanup.policy", DELETE, None), 0, "delete"),
        (("cleanup.policy", SET, None), ErrorCode.INVALID_REQUEST, "delete"),
        (("cleanup.policy", 9, "compact"), ErrorCode.INVALID_REQUEST, "delete"),
        (("nope", SET, "1"), ErrorCode.INVALID_CONFIG, "delete"),
    ]
    for edit, code, value in edits:
        assert changed(ottla_broker, TOPIC, "orders", edit).error_code == code, edit
        assert value_of(ottla_broker, TOPIC, "orders", "cleanup.policy") == value, edit
    assert changed(ottla_broker, TOPIC, "orders", ("retention.ms", APPEND, "1")).error_code == ErrorCode.INVALID_CONFIG
    assert changed(ottla_broker, TOPIC, "missing", ("retention.ms", SET, "1")).error_code == 3
    assert changed(ottla_broker, TOPIC, "", ("retention.ms", SET, "1")).error_code == ErrorCode.INVALID_REQUEST
    assert changed(ottla_broker, TOPIC, "orders", ("retention.ms", SET, "7"), validate_only=True).error_code == 0
    assert value_of(ottla_broker, TOPIC, "orders", "retention.ms") == "604800000"
    twice = changed(ottla_broker, TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_replacing_a_topics_settings(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 1, {"retention.ms": "1000"})
    resource = ac.AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=[ac.AlterableConfig(name="segment.ms", value="5000")]
    )
    for validate_only, retention in ((True, "1000"), (False, "604800000")):
        request = ac.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        assert ask(ottla_broker.bootstrap, request, version).responses[0].error_code == 0
        assert value_of(ottla_broker, TOPIC, "orders", "retention.ms") == retention
    assert value_of(ottla_broker, TOPIC, "orders", "segment.ms") == "5000"
    both = ac.AlterConfigsRequest(resources=[resource, resource], validate_only=False)
    codes = [response.error_code for response in ask(ottla_broker.bootstrap, both, version).responses]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_changing_a_brokers_settings_while_it_runs(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    assert changed(ottla_broker, BROKER, "", ("log.retention.ms", SET, "100000")).error_code == 0
    assert value_of(ottla_broker, TOPIC, "orders", "retention.ms") == "100000"
    assert changed(ottla_broker, BROKER, "1", ("log.retention.ms", SET, "200000")).error_code == 0
    (entry,) = described(ottla_broker, TOPIC, "orders", "retention.ms", include_synonyms=True).configs
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("log.retention.ms", "200000", 2),
        ("log.retention.ms", "100000", 3),
        ("log.retention.hours", "168", 5),
    ]
    assert (entry.value, entry.config_source) == ("200000", 2)
    for key, value in (
        ("node.id", "3"),
        ("num.io.threads", "3"),
        ("num.io.threads", "17"),
        ("ssl.client.auth", "required"),
        ("ssl.keystore.location", "/x"),
        ("listener.name.plaintext.ssl.keystore.location", "/x"),
        ("listeners", "PLAINTEXT://192.0.2.1:1"),
        ("log.segment.bytes", "3"),
        ("log.retention.ms", "0"),
    ):
        assert changed(ottla_broker, BROKER, "1", (key, SET, value)).error_code == ErrorCode.INVALID_REQUEST, key
    assert changed(ottla_broker, BROKER, "2", ("log.retention.ms", SET, "1")).error_code == ErrorCode.INVALID_REQUEST
    refused = changed(ottla_broker, BROKER, "1", ("num.partitions", SET, "3"))
    assert refused.error_message == "Cannot update these configs dynamically: [num.partitions]"


def test_a_smaller_limit_holds_at_once(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    assert changed(ottla_broker, TOPIC, "orders", ("max.message.bytes", SET, "200")).error_code == 0
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce("orders", b"x" * 1000, on_delivery=lambda error, _: refused.append(error and error.code()))
    assert producer.flush(10) == 0
    assert refused == [ErrorCode.MESSAGE_TOO_LARGE]


def test_levels_of_loggers(ottla_broker: Broker) -> None:
    names = [entry.name for entry in described(ottla_broker, LOGGER, "1").configs]
    assert names[0] == "root"
    assert "ottla.server.connection" in names
    name = "ottla.server.connection"
    before = value_of(ottla_broker, LOGGER, "1", name)
    try:
        assert changed(ottla_broker, LOGGER, "1", (name, SET, "ERROR")).error_code == 0
        assert value_of(ottla_broker, LOGGER, "1", name) == "ERROR"
    finally:
        assert changed(ottla_broker, LOGGER, "1", (name, DELETE, None)).error_code == 0
    assert value_of(ottla_broker, LOGGER, "1", name) == before
    assert changed(ottla_broker, LOGGER, "1", ("nobody", SET, "INFO")).error_code == ErrorCode.INVALID_CONFIG
    assert changed(ottla_broker, LOGGER, "1", (name, SET, "LOUD")).error_code == ErrorCode.INVALID_CONFIG
    assert changed(ottla_broker, LOGGER, "1", ("root", DELETE, None)).error_code == ErrorCode.INVALID_REQUEST
    assert changed(ottla_broker, LOGGER, "1", (name, APPEND, "INFO")).error_code == ErrorCode.INVALID_REQUEST


def test_changing_a_groups_settings(ottla_broker: Broker) -> None:
    name = "share.delivery.order"
    assert [(entry.name, entry.value) for entry in described(ottla_broker, GROUP, "g", name).configs] == [(name, "any")]
    assert changed(ottla_broker, GROUP, "g", (name, SET, "key"), validate_only=True).error_code == 0
    assert described(ottla_broker, GROUP, "g", name).configs[0].value == "any"
    assert changed(ottla_broker, GROUP, "g", (name, SET, "key")).error_code == 0
    (entry,) = described(ottla_broker, GROUP, "g", name).configs
    assert (entry.value, entry.config_source, entry.read_only) == ("key", 8, False)
    assert described(ottla_broker, GROUP, "h", name).configs[0].value == "any"
    refused = changed(ottla_broker, GROUP, "g", (name, SET, "none"), ("share.isolation.level", SET, "read_committed"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    of_streams = changed(ottla_broker, GROUP, "g", ("streams.session.timeout.ms", SET, "1"))
    assert of_streams.error_code == ErrorCode.INVALID_CONFIG
    settings = {entry.name: entry.value for entry in described(ottla_broker, GROUP, "g").configs}
    assert settings["share.isolation.level"] == "read_uncommitted"
    assert settings[name] == "key"


def test_what_can_have_settings(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")

    def listed(version: int, *kinds: int) -> set[tuple[str, int]]:
        answer = ask(ottla_broker.bootstrap, lc.ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert answer.error_code == 0
        return {(resource.resource_name, resource.resource_type) for resource in answer.config_resources}

    assert listed(0) == set()
    assert listed(1) == {("orders", TOPIC), ("1", BROKER), ("1", LOGGER)}
    assert listed(1, TOPIC) == {("orders", TOPIC)}
    assert listed(1, 16, 32) == set()
    assert changed(ottla_broker, GROUP, "a/b", ("share.delivery.order", SET, "key")).error_code == 0
    assert listed(1, GROUP) == {("a/b", GROUP)}
    assert changed(ottla_broker, GROUP, "a/b", ("share.delivery.order", DELETE, None)).error_code == 0
    assert listed(1, GROUP) == set()
    unknown = ask(ottla_broker.bootstrap, lc.ListConfigResourcesRequest(resource_types=[99]), 1)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION


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
