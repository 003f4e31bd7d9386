"""One set of rules for a cluster of genuine Kafka 3.9 and Ottla: whichever broker changes them, all follow."""

import time
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.mixed_cluster import KAFKA, OTTLA, SECOND_OTTLA, MixedCluster
from tests.support.probe import free_port
from tests.support.zookeeper import ZooKeeperServer

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PATTERNS = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)


def with_users(broker: BrokerProcess, authorizer: str) -> str:
    """Give a broker an authorizer and a listener for users; the address of the latter."""
    address = f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://{address}",
            "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.outside.plain.sasl.jaas.config": f'{MODULE} user_alice="alice";',
            "authorizer.class.name": authorizer,
            "super.users": "User:ANONYMOUS",
        }
    )
    return address


def binding(topic: str, pattern: ResourcePatternType) -> AclBinding:
    name = topic if pattern is ResourcePatternType.LITERAL else topic[:-1]
    return AclBinding(
        ResourceType.TOPIC, name, pattern, "User:alice", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW
    )


def sees(address: str, topic: str) -> bool:
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice",
        "allow.auto.create.topics": False,
    }
    try:
        error = AdminClient(settings).list_topics(topic, timeout=10).topics[topic].error
    except KafkaException:
        return False
    return error is None or error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED


def hides(address: str, topic: str) -> bool:
    return not sees(address, topic)


@pytest.mark.timeout(300)
def test_rules_are_one_set(zookeeper: ZooKeeperServer) -> None:
    mixed = MixedCluster(f"{zookeeper.connect}/{uuid4()}", ottlas=2)
    addresses = {
        number: with_users(
            broker,
            "kafka.security.authorizer.AclAuthorizer"
            if number == KAFKA
            else "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        for number, broker in mixed.brokers.items()
    }
    with mixed.brokers[OTTLA], mixed.brokers[SECOND_OTTLA], mixed.brokers[KAFKA]:
        mixed.create("orders", [[KAFKA, OTTLA, SECOND_OTTLA]])
        mixed.until_in_sync("orders", KAFKA, OTTLA, SECOND_OTTLA)
        for changing in (OTTLA, KAFKA):
            admin = AdminClient({"bootstrap.servers": mixed.brokers[changing].bootstrap})
            for pattern in PATTERNS:
                right = binding("orders", pattern)
                assert not any(sees(address, "orders") for address in addresses.values())
                for created in admin.create_acls([right]).values():
                    created.result(20)
                for address in addresses.values():
                    eventually(partial(sees, address, "orders"), timeout_s=20)
                wanted = AclBindingFilter(
                    right.restype,
                    right.name,
                    right.resource_pattern_type,
                    right.principal,
                    right.host,
                    right.operation,
                    right.permission_type,
                )
                for removed in admin.delete_acls([wanted]).values():
                    assert removed.result(20) == [right]
                acknowledged = time.monotonic()
                for number in (OTTLA, SECOND_OTTLA):
                    eventually(partial(hides, addresses[number], "orders"), timeout_s=10)
                assert time.monotonic() - acknowledged < 2  # of it, connecting and logging in take most
                eventually(partial(hides, addresses[KAFKA], "orders"), timeout_s=20)
