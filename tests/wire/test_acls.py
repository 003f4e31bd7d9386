"""A broker with an authorizer: the rights of users, rules that change while it runs, kills, other people's clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ResourcePatternType, ResourceType
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern
from kafka.admin import ACLResourcePatternType as PatternType
from kafka.admin import ResourceType as Kind
from tests.support.authorizers import install
from tests.support.eventually import eventually
from tests.support.guarded_broker import (
    ALL,
    DESCRIBE,
    EVERY,
    GROUP,
    READ,
    WRITE,
    allow,
    client,
    guarded,
    make,
    only,
    produced,
    rule,
)
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask

from ottla.protocol.messages.describe_acls import DescribeAclsRequest


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OttlaProcess, str]]:
    with guarded() as started:
        yield started


def consumed(address: str, user: str, topic: str, group: str, count: int) -> list[bytes]:
    """Read from the beginning. Raises `KafkaException` for what is refused."""
    consumer = Consumer(client(address, user, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        for _ in range(40):
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            values.append(message.value() or b"")
            if len(values) == count:
                return values
        return values
    finally:
        consumer.close()


def test_a_producer_and_a_consumer_with_no_more_than_they_need(running: tuple[OttlaProcess, str]) -> None:
    broker, address = running
    make(address, "orders")
    refused = produced(address, "alice", "orders")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    eventually(lambda: "'User:alice' from 127.0.0.1 was refused DESCRIBE on TOPIC 'orders'" in broker.log_text())
    allow(address, rule("alice", WRITE, "orders"))
    assert produced(address, "alice", "orders", b"first") is None
    with pytest.raises(KafkaException):
        consumed(address, "bob", "orders", "readers", 1)
    allow(address, rule("bob", READ, "orders"))
    with pytest.raises(KafkaException) as without_group:
        consumed(address, "bob", "orders", "readers", 1)
    assert without_group.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(address, rule("bob", READ, "read", GROUP, ResourcePatternType.PREFIXED))
    assert consumed(address, "bob", "orders", "readers", 1) == [b"first"]
    assert produced(address, "bob", "orders") is not None


def test_a_transaction_needs_its_id_its_topics_and_its_group(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    make(address, "paid")

    def begin(producer: Producer) -> None:
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("paid", b"x")
        producer.send_offsets_to_transaction([], Consumer({"group.id": "g"}).consumer_group_metadata(), 10)

    settings = client(address, "alice", **{"transactional.id": "payments"})
    with pytest.raises(KafkaException) as refused:
        begin(Producer(settings))
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow(address, rule("alice", WRITE, "payments", ResourceType.TRANSACTIONAL_ID), rule("alice", WRITE, "paid"))
    producer = Producer(settings)
    begin(producer)
    producer.commit_transaction(10)


def test_nothing_reveals_what_its_caller_may_not_describe(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    make(address, "secret", "public")
    allow(address, rule("alice", DESCRIBE, "public"))
    alice = AdminClient(client(address, "alice"))
    seen = alice.list_topics(timeout=10).topics
    assert "public" in seen
    assert "secret" not in seen
    errors = [alice.list_topics(name, timeout=10).topics[name].error for name in ("secret", "nowhere")]
    assert [None if error is None else error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
    bob = Consumer(client(address, "bob", **{"group.id": "g"}))
    with pytest.raises(KafkaException):
        bob.get_watermark_offsets(TopicPartition("secret", 0), timeout=5)
    bob.close()


def test_a_right_that_is_taken_away_ends_a_session_that_has_begun(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    make(address, "taken")
    right = rule("alice", READ, "taken")
    allow(address, right, rule("alice", READ, "watchers", GROUP))
    consumer = Consumer(client(address, "alice", **{"group.id": "watchers", "fetch.wait.max.ms": 30_000}))
    consumer.assign([TopicPartition("taken", 0, 0)])
    assert produced(address, "admin", "taken", b"before") is None
    first = eventually(lambda: consumer.poll(1.0))
    assert first.value() == b"before"
    admin = AdminClient(client(address, "admin"))
    for removed in admin.delete_acls([only(right)]).values():
        assert removed.result(10) == [right]
    assert produced(address, "admin", "taken", b"after") is None
    error = eventually(lambda: consumer.poll(1.0)).error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_rules_survive_a_kill() -> None:
    with guarded() as (broker, address):
        allow(address, *(rule("alice", WRITE, f"t{number}") for number in range(50)), rule("bob", READ, "t0"))
        admin = AdminClient(client(address, "admin"))
        for removed in admin.delete_acls([only(rule("bob", READ, "t0"))]).values():
            assert len(removed.result(10)) == 1
        broker.restart(kill=True)
        admin = AdminClient(client(address, "admin"))
        kept = eventually(lambda: admin.describe_acls(EVERY).result(10))
        assert {(acl.name, acl.principal) for acl in kept} == {(f"t{number}", "User:alice") for number in range(50)}


def test_only_those_with_alter_on_the_cluster_change_rules(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    mine = rule("alice", ALL, "*")
    alice = AdminClient(client(address, "alice"))
    for created in alice.create_acls([mine]).values():
        with pytest.raises(KafkaException) as refused:
            created.result(10)
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert alice.describe_acls(EVERY).result(10) == []  # librdkafka keeps the error to itself
    for removed in alice.delete_acls([EVERY]).values():
        with pytest.raises(KafkaException):
            removed.result(10)


def test_kafka_python_manages_rules(running: tuple[OttlaProcess, str]) -> None:
    broker, _ = running
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    acl = ACL(
        principal="User:carol",
        host="10.0.0.1",
        operation=ACLOperation.READ,
        permission_type=ACLPermissionType.DENY,
        resource_pattern=ResourcePattern(Kind.TOPIC, "carols-", PatternType.PREFIXED),
    )
    admin.create_acls([acl])
    wanted = ACLFilter(
        principal="User:carol",
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePattern(Kind.TOPIC, "carols-", PatternType.PREFIXED),
    )
    found, _ = admin.describe_acls(wanted)
    assert found == [acl]
    admin.delete_acls([wanted])
    assert admin.describe_acls(wanted)[0] == []
    admin.close()


def test_without_an_authorizer_rules_are_refused_in_kafkas_words() -> None:
    with OttlaProcess() as broker:
        asked = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        answer = ask(broker.bootstrap, asked, 3)
        assert (answer.error_code, answer.error_message) == (54, "No Authorizer is configured.")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_acls([rule("alice", READ, "x")]).values():
            with pytest.raises(KafkaException):
                created.result(10)


def test_a_super_user_that_is_none_stops_the_start() -> None:
    with pytest.raises(Exception, match=r"super\.users: 'admin' is no principal"), guarded(**{"super.users": "admin"}):
        pass


def test_an_authorizer_of_the_operators_decides_after_the_rules(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(install(tmp_path))}
    settings = {"authorizer.class.name": "payroll", "payroll.network": "10.99."}
    with guarded(environment, **settings) as (broker, address):
        make(address, "payroll.may", "orders")
        allow(address, rule("alice", WRITE, "payroll.may"), rule("alice", WRITE, "orders"))
        assert produced(address, "alice", "orders") is None
        assert produced(address, "bob", "orders") is not None
        refused = produced(address, "alice", "payroll.may")
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert produced(address, "admin", "payroll.may") is None
        many = [f"m{number}" for number in range(30)]
        make(address, *many)
        allow(address, *(rule("alice", DESCRIBE, name) for name in many))
        seen = AdminClient(client(address, "alice")).list_topics(timeout=10).topics
        assert set(seen) == {*many, "orders"}
        assert "ERROR" not in broker.log_text()
