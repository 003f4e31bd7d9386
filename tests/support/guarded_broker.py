"""A broker with an authorizer and users, and what tests ask of it as one of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

USERS = ("alice", "bob", "admin")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ANYTHING: Any = None
EVERY = AclBindingFilter(
    ResourceType.ANY, ANYTHING, ResourcePatternType.ANY, ANYTHING, ANYTHING, AclOperation.ANY, AclPermissionType.ANY
)


@contextmanager
def guarded(environment: Mapping[str, str] | None = None, /, **more: str) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker with users, of which admin may do everything, and the address at which they log in."""
    broker = OttlaProcess(environment=environment)
    address = f"127.0.0.1:{free_port()}"
    logins = " ".join(f'user_{user}="{user}"' for user in USERS)
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.outside.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {logins};"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
            **more,
        }
    )
    with broker:
        yield broker, address


def client(address: str, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
        **more,
    }


def allow(address: str, *bindings: AclBinding) -> None:
    admin = AdminClient(client(address, "admin"))
    for created in admin.create_acls(list(bindings)).values():
        created.result(10)


def rule(
    user: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def only(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def make(address: str, *topics: str) -> None:
    admin = AdminClient(client(address, "admin"))
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(10)


def produced(address: str, user: str, topic: str, value: bytes = b"x") -> KafkaError | None:
    """Send a record; the error with which it fails."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(client(address, user, **{"message.timeout.ms": 5000}))
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(10)
    return outcomes[0]
