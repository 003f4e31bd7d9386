"""librdkafka's admin client."""

from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.compat.confluent.clients import consumer, drain, numbered, produce
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually


@pytest.fixture
def client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def code_of(error: pytest.ExceptionInfo[KafkaException]) -> Any:
    return error.value.args[0].code()


def settings_of(client: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    (future,) = client.describe_configs([resource]).values()
    described: dict[str, ConfigEntry] = future.result(10)
    return described


def test_create_describe_delete(client: AdminClient, new_name: NewNameFactory) -> None:
    topic = new_name()
    client.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "1234567"})])[topic].result(10)
    eventually(lambda: topic in client.list_topics(timeout=10).topics)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(10)
    assert described.name == topic
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert {partition.leader.id for partition in described.partitions} == {1}
    assert {tuple(node.id for node in partition.isr) for partition in described.partitions} == {(1,)}
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    client.delete_topics([topic])[topic].result(10)
    eventually(lambda: topic not in client.list_topics(timeout=10).topics)
    with pytest.raises(KafkaException) as gone:
        client.delete_topics([topic])[topic].result(10)
    assert code_of(gone) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "settings", "code"),
    [
        ("bad name!", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        (".", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("no-partitions", 0, 1, {}, KafkaError.INVALID_PARTITIONS),
        ("three-replicas", 1, 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("no-such-setting", 1, 1, {"no.such.setting": "1"}, KafkaError.INVALID_CONFIG),
        ("not-a-number", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("no-such-policy", 1, 1, {"cleanup.policy": "shred"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_created(
    client: AdminClient, name: str, partitions: int, replicas: int, settings: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as refused:
        client.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(10)
    assert code_of(refused) == code


def test_a_topic_exists_once(client: AdminClient, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    with pytest.raises(KafkaException) as refused:
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    assert code_of(refused) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(client: AdminClient, new_name: NewNameFactory) -> None:
    topic = new_name()
    client.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(10)
    assert topic not in client.list_topics(timeout=10).topics


def test_the_brokers_defaults_are_used(client: AdminClient, new_name: NewNameFactory) -> None:
    topic = new_name()
    client.create_topics([NewTopic(topic)])[topic].result(10)
    eventually(lambda: len(client.list_topics(topic, timeout=10).topics[topic].partitions) == 1)


def test_partitions_are_added(client: AdminClient, bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    eventually(lambda: len(client.list_topics(topic, timeout=10).topics[topic].partitions) == 5)
    produce(bootstrap, topic, numbered(3), partition=4)
    for fewer in (5, 3):
        with pytest.raises(KafkaException) as refused:
            client.create_partitions([NewPartitions(topic, fewer)])[topic].result(10)
        assert code_of(refused) == KafkaError.INVALID_PARTITIONS


def test_topic_settings_are_read_and_changed(client: AdminClient, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = settings_of(client, resource)
    assert before["retention.ms"].value == "1000000"
    assert not before["retention.ms"].is_default
    assert before["cleanup.policy"].value == "delete"
    assert before["cleanup.policy"].is_default

    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    client.incremental_alter_configs([change])[change].result(10)
    eventually(lambda: settings_of(client, resource)["segment.bytes"].value == "2000000")
    after = settings_of(client, resource)
    assert set((after["cleanup.policy"].value or "").split(",")) == {"delete", "compact"}
    assert after["retention.ms"].is_default

    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("segment.bytes", "few", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException) as refused:
        client.incremental_alter_configs([wrong])[wrong].result(10)
    assert code_of(refused) == KafkaError.INVALID_CONFIG


def test_settings_of_an_unknown_topic(client: AdminClient, new_name: NewNameFactory) -> None:
    with pytest.raises(KafkaException) as refused:
        settings_of(client, ConfigResource(ResourceType.TOPIC, new_name()))
    assert code_of(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_settings_are_read(client: AdminClient) -> None:
    settings = settings_of(client, ConfigResource(ResourceType.BROKER, "1"))
    assert settings["node.id"].value == "1"
    assert settings["node.id"].is_read_only
    assert settings["log.retention.hours"].value == "168"
    assert settings["num.partitions"].value == "1"


def test_records_are_deleted(client: AdminClient, bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(100))
    target = TopicPartition(topic, 0, 60)
    assert client.delete_records([target])[target].result(10).low_watermark == 60
    reader = consumer(bootstrap, "unused")
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (60, 100)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert drain(reader, 1)[0].offset() == 60
    reader.close()
    beyond = TopicPartition(topic, 0, 101)
    with pytest.raises(KafkaException) as refused:
        client.delete_records([beyond])[beyond].result(10)
    assert code_of(refused) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, -1)
    assert client.delete_records([everything])[everything].result(10).low_watermark == 100


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_offsets_are_listed(
    client: AdminClient, bootstrap: str, new_topic: NewTopicFactory, isolation: IsolationLevel
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(10))

    def offset(spec: OffsetSpec) -> int:
        (future,) = client.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=isolation).values()
        found: int = future.result(10).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.max_timestamp()) == 9
    assert offset(OffsetSpec.for_timestamp(1_000_004)) == 4


def test_the_cluster_is_described(client: AdminClient, bootstrap: str) -> None:
    cluster = client.describe_cluster().result(10)
    assert [node.id for node in cluster.nodes] == [1]
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == bootstrap
    assert len(cluster.cluster_id) == 22
    assert cluster.controller.id == 1
    assert client.list_topics(timeout=10).cluster_id == cluster.cluster_id


def test_a_leader_that_is_preferred_already_needs_no_election(client: AdminClient, new_topic: NewTopicFactory) -> None:
    from confluent_kafka import ElectionType

    partition = TopicPartition(new_topic(), 0)
    result = client.elect_leaders(ElectionType.PREFERRED, [partition]).result(10)
    assert result[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_metadata_of_an_unknown_topic_is_an_error(client: AdminClient, new_name: NewNameFactory) -> None:
    described = client.describe_topics(TopicCollection([name := new_name()]))[name]
    with pytest.raises(KafkaException) as refused:
        described.result(10)
    assert code_of(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART
