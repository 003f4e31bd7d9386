"""Ways around access rules that were tried: names with the ids of other topics, requests for everything, floods."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from tests.support.bystander import bystander
from tests.support.guarded_broker import DESCRIBE, GROUP, allow, guarded, make, rule
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ClosedError, RawConnection, ask
from tests.support.stories import batch

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_group_history import DescribeGroupHistoryRequest
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SECRET = "open-sesame"
JAAS = "listener.name.outside.plain.sasl.jaas.config"
LONGEST_DELAY_S = 0.1
"""Without waits for a processor. No request has more than 25,000 elements."""


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[tuple[OttlaProcess, str]]:
    """A broker, and where users log in."""
    providers = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    with guarded({"HOUSE_SECRET": SECRET}, **providers) as found:
        yield found


@pytest.fixture(scope="module")
def guarded_topics(guarded_broker: tuple[OttlaProcess, str]) -> tuple[str, dict[str, UUID]]:
    """The topics `open`, which alice may describe, and `secret`: where users log in, and the ids."""
    broker, address = guarded_broker
    make(address, "open", "secret")
    allow(address, rule("alice", DESCRIBE, "open"), rule("alice", DESCRIBE, "g", GROUP))
    return address, ids_of(broker)


def ids_of(broker: OttlaProcess) -> dict[str, UUID]:
    return {topic.name: topic.topic_id for topic in ask(broker.bootstrap, MetadataRequest(topics=None), 12).topics}


def logged_in(address: str, user: str) -> RawConnection:
    connection = RawConnection(address)
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2)
    assert answer.error_code == 0
    return connection


def test_the_right_to_one_topic_gives_nothing_by_the_id_of_another(
    guarded_topics: tuple[str, dict[str, UUID]],
) -> None:
    address, ids = guarded_topics
    with logged_in(address, "alice") as alice:
        for version in (12, 13):
            both = MetadataRequestTopic(name="open", topic_id=ids["secret"])
            (answer,) = alice.ask(MetadataRequest(topics=[both]), version).topics
            assert (answer.error_code, answer.name, answer.partitions) == (REFUSED, None, [])
            (unknown,) = alice.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name="open", topic_id=uuid4())]), version
            ).topics
            assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        states = [
            DeleteTopicState(name="open", topic_id=ids["secret"]),
            DeleteTopicState(name=None, topic_id=ids["secret"]),
        ]
        deleted = alice.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses
        assert {answer.error_code for answer in deleted} == {REFUSED}
        assert deleted[1].name is None


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
def test_a_request_for_everything_gets_what_its_sender_may_describe(
    guarded_topics: tuple[str, dict[str, UUID]], version: int
) -> None:
    address, _ = guarded_topics
    everything = MetadataRequest(topics=None if version else [])
    with logged_in(address, "alice") as alice, logged_in(address, "bob") as bob:
        assert [topic.name for topic in alice.ask(everything, version).topics] == ["open"]
        assert bob.ask(everything, version).topics == []
        for cursor in (None, Cursor(topic_name="secret", partition_index=0)):
            assert bob.ask(DescribeTopicPartitionsRequest(topics=[], cursor=cursor), 0).topics == []
        assert bob.ask(OffsetFetchRequest(group_id="g", topics=None), 7).error_code == (
            ErrorCode.GROUP_AUTHORIZATION_FAILED
        )


def test_the_history_of_a_group_needs_the_right_to_the_group(guarded_topics: tuple[str, dict[str, UUID]]) -> None:
    address, _ = guarded_topics
    asked = DescribeGroupHistoryRequest(group_ids=["g", "other"])
    with logged_in(address, "alice") as alice:
        codes = {group.group_id: group.error_code for group in alice.ask(asked, 0).groups}
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert codes.pop("g") != refused
    assert codes == {"other": refused}


def test_records_without_a_right_and_without_an_answer_close_the_connection(
    guarded_topics: tuple[str, dict[str, UUID]],
) -> None:
    address, _ = guarded_topics
    records = [TopicProduceData(name="secret", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])]
    with logged_in(address, "bob") as bob, pytest.raises(ClosedError):
        bob.ask(ProduceRequest(acks=0, timeout_ms=100, topic_data=records), 9)


def test_twenty_thousand_decisions_delay_nobody_else(guarded_broker: tuple[OttlaProcess, str]) -> None:
    broker, address = guarded_broker
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(20_000)]
    with logged_in(address, "bob") as bob, bystander(broker) as seen:
        answer = bob.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 4)
    assert {topic.error_code for topic in answer.topics} == {REFUSED}
    assert len(answer.topics) == len(topics)
    assert seen.suffered.worst_s < LONGEST_DELAY_S


def test_the_right_to_change_settings_makes_nobody_a_super_user(guarded_topics: tuple[str, dict[str, UUID]]) -> None:
    address, _ = guarded_topics
    change = AlterableConfig(name="super.users", config_operation=0, value="User:alice")
    for broker in ("1", ""):
        resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        with logged_in(address, "admin") as admin:
            (answer,) = admin.ask(request, 1).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "super.users is read when the broker starts" in answer.error_message


def altered(connection: RawConnection, name: str, value: str) -> tuple[ErrorCode, str]:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    asked = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    (answer,) = connection.ask(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), 1).responses
    return ErrorCode(answer.error_code), answer.error_message or ""


def replaced(connection: RawConnection, **settings: str) -> ErrorCode:
    changes = [ReplacedConfig(name=name, value=value) for name, value in settings.items()]
    asked = ReplacedResource(resource_type=4, resource_name="1", configs=changes)
    (answer,) = connection.ask(AlterConfigsRequest(resources=[asked], validate_only=False), 2).responses
    return ErrorCode(answer.error_code)


def test_the_right_to_change_settings_gives_no_login(guarded_topics: tuple[str, dict[str, UUID]]) -> None:
    address, _ = guarded_topics
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    allow(address, rule("bob", AclOperation.ALTER_CONFIGS, "kafka-cluster", ResourceType.BROKER))
    with logged_in(address, "bob") as bob, logged_in(address, "admin") as admin:
        assert altered(bob, "log.retention.ms", "86400000")[0] == ErrorCode.NONE
        for name, value in (
            (JAAS, f'{module} user_admin="mine";'),
            ("listener.name.outside.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"),
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"),
        ):
            assert altered(bob, name, value)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, name
        assert altered(admin, "listener.name.outside.ssl.client.auth", "required")[0] == ErrorCode.NONE
        assert replaced(bob) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "which would remove it"
        assert replaced(admin) == ErrorCode.NONE


def test_what_a_setting_stands_for_is_in_no_refusal(guarded_topics: tuple[str, dict[str, UUID]]) -> None:
    address, _ = guarded_topics
    with logged_in(address, "admin") as admin:
        for name, value in (
            ("listener.name.outside.sasl.enabled.mechanisms", "${env:HOUSE_SECRET}"),
            (JAAS, 'org.${env:HOUSE_SECRET} required user_a="b";'),
        ):
            code, message = altered(admin, name, value)
            assert code == ErrorCode.INVALID_REQUEST
            assert SECRET not in message
            assert name in message
