"""Every API without a right, and with each single right: the same authorization errors as genuine Kafka's.

The requests are filled mechanically: what they ask for is about one topic, one group and one transactional id. Only
the errors of authorization are compared; what a request that is allowed is answered is compared elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import pytest
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
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import ClosedError, RawConnection, errors_in
from tests.support.stories import batch

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import NEVER, Array, Field, Message, Struct, fields_of
from ottla.security.authorization import Permission
from ottla.server.routing import ROUTES

TOPIC: Final = "guarded"
NOT_READY: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
REFUSED: Final = {code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED")}
NAMES: Final = {
    "TOPIC": TOPIC,
    "GROUP": "guarded-group",
    "CLUSTER": "kafka-cluster",
    "TRANSACTIONAL_ID": "guarded-transaction",
}
TEXTS: Final = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "records": batch(b"value"),
    "group_id": NAMES["GROUP"],
    "group_ids": NAMES["GROUP"],
    "groups_names": NAMES["GROUP"],
    "groups": NAMES["GROUP"],
    "key": NAMES["GROUP"],
    "coordinator_keys": NAMES["GROUP"],
    "transactional_id": NAMES["TRANSACTIONAL_ID"],
    "transactional_ids": NAMES["TRANSACTIONAL_ID"],
    "v3_and_below_transactional_id": NAMES["TRANSACTIONAL_ID"],
    "member_id": "member",
    "resource_name": TOPIC,
    "principal": "User:x",
    "host": "*",
    "cluster_id": None,
}
NUMBERS: Final = {
    "resource_type": 2,
    "resource_pattern_type": 3,
    "permission_type": 3,
    "operation": 3,
    "num_partitions": 1,
    "replication_factor": 1,
    "replica_id": -1,
    "mechanism": 1,
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "iterations": 4096,
    "count": 2,
    "timeout_ms": 1000,
    "acks": -1,
}
SKIPPED: Final = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.UNREGISTER_BROKER,  # of the one broker there is
    ApiKey.DELETE_TOPICS,  # of the topic that the others need
    ApiKey.CREATE_DELEGATION_TOKEN,  # a right is needed for other owners only, and there is no key for tokens here
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,  # Kafka asks for the group first, which is not there or not ready
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,  # likewise
}
"""Those that need no right, or would end the test."""


class Asked(NamedTuple):
    """A request that is sent to both."""

    api_key: ApiKey
    version: int


def filled(message: type[Message | Struct], version: int, topic_id: UUID) -> Any:
    """A message with something in every field that has no default."""
    values: dict[str, Any] = {}
    for field in fields_of(message):
        if not field.in_version(version):
            values[field.name] = field.make_default() if field.has_default else None
        elif field.has_default and field.name not in TEXTS and field.name not in NUMBERS and not _is_list(field):
            values[field.name] = topic_id if field.name == "topic_id" else field.make_default()
        else:
            values[field.name] = _value(field, field.type, version, topic_id)
    return message(**values)


def _is_list(field: Field) -> bool:
    return isinstance(field.type, Array)


def _value(field: Field, kind: Any, version: int, topic_id: UUID, *, in_list: bool = False) -> Any:
    if isinstance(kind, Array):
        if field.name in ("protocols", "configs", "assignments", "forgotten_topics_data", "aborted_transactions"):
            return []
        return [_value(field, kind.element, version, topic_id, in_list=True)]
    if isinstance(kind, type):
        return filled(kind, version, topic_id)
    if field.name in TEXTS:
        return TEXTS[field.name]
    if field.name in NUMBERS:
        return NUMBERS[field.name]
    return _plain(field, kind, topic_id, in_list=in_list)


def _plain(field: Field, kind: Any, topic_id: UUID, *, in_list: bool) -> Any:
    name = kind.name.lower()
    if "uuid" in name:
        return topic_id
    if field.nullable_since != NEVER and field.name not in ("name", "topic", "topic_name") and not in_list:
        return None
    if "string" in name or field.name in ("name", "topic", "topic_name"):
        return TOPIC
    if "bytes" in name or "record" in name:
        return b""
    return False if "bool" in name else 0


class Guarded(NamedTuple):
    """A broker with an authorizer: where it takes everything, where clients log in, and the topic's id."""

    inside: str
    outside: str
    topic_id: UUID

    def refusals(self, asked: Asked, user: str) -> set[str]:
        """The authorization errors in the answer to a user; `closed` if there is none."""
        request = filled(request_class(asked.api_key), asked.version, self.topic_id)
        if getattr(request, "group_id", None):
            request.group_id = group_of(asked)
        with self.logged_in(user) as connection:
            try:
                answer = connection.ask(request, asked.version)
            except ClosedError:
                return {"closed"}
        return {code.name for code in errors_in(answer) & REFUSED}

    @contextmanager
    def logged_in(self, user: str) -> Iterator[RawConnection]:
        """A connection of a user."""
        with RawConnection(self.outside, timeout_s=20) as connection:
            handshake = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert handshake.error_code == 0
            login = connection.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2)
            assert login.error_code == 0, login
            yield connection


def group_of(asked: Asked) -> str:
    """The group that an API names, where a request has one group: what one API leaves behind, no other finds."""
    return f"{NAMES['GROUP']}-{asked.api_key.name}-{asked.version}"


def users() -> list[str]:
    """The users that log in: one without a right, one that may do all, and one for each single right."""
    return ["nobody", "everybody", *map(name_of, rights())]


def rights() -> list[Permission]:
    """Every right that some API asks for."""
    found = {
        permission for route in ROUTES.values() for required in route.authorization for permission in required.any_of
    }
    return sorted(right for right in found if right.resource.name in NAMES)


def name_of(right: Permission) -> str:
    return f"{right.operation.name}-{right.resource.name}".lower().replace("_", "-")


def pattern_of(kind: str) -> ResourcePatternType:
    """The rules for groups hold for those of all APIs."""
    return ResourcePatternType.PREFIXED if kind == "GROUP" else ResourcePatternType.LITERAL


def settings(kind: str, inside: str, outside: str, controller: int) -> dict[str, str]:
    logins = " ".join(f'user_{user}="{user}"' for user in users())
    own = {
        "listeners": f"PLAINTEXT://{inside},OUTSIDE://{outside}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outside.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {logins};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "inter.broker.listener.name": "PLAINTEXT",
        "auto.create.topics.enable": "false",
    }
    if kind == "genuine":
        own["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
        own["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        own["advertised.listeners"] = f"PLAINTEXT://{inside},OUTSIDE://{outside}"
        own["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
    return own


def prepare(inside: str, outside: str) -> Guarded:
    admin = AdminClient({"bootstrap.servers": inside})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    bindings = [
        AclBinding(
            ResourceType.BROKER if right.resource.name == "CLUSTER" else ResourceType[right.resource.name],
            NAMES[right.resource.name],
            pattern_of(right.resource.name),
            f"User:{name_of(right)}",
            "*",
            AclOperation[right.operation.name],
            AclPermissionType.ALLOW,
        )
        for right in rights()
    ]
    bindings += [
        AclBinding(
            ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind],
            name,
            pattern_of(kind),
            "User:everybody",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name in NAMES.items()
    ]
    for created in admin.create_acls(bindings).values():
        created.result(30)
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    eventually(lambda: len(admin.describe_acls(every).result(10)) == len(bindings))
    with RawConnection(inside) as connection:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[NAMES["GROUP"]])
        eventually(lambda: connection.ask(find, 6).coordinators[0].error_code == 0, timeout_s=30)
        # A partition of groups that is still being loaded answers so, before rights to topics are looked up.
        describe = DescribeGroupsRequest(groups=[NAMES["GROUP"], *map(group_of, asked())])
        eventually(lambda: not errors_in(connection.ask(describe, 6)) & NOT_READY, timeout_s=30)
        topics = connection.ask(MetadataRequest(topics=None), 12).topics
    topic_id = next(topic.topic_id for topic in topics if topic.name == TOPIC)
    assert topic_id != NULL_UUID
    return Guarded(inside, outside, topic_id)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Guarded, Guarded]]:
    with_all = partial(settings, controller=free_port())
    outside = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    genuine, ottla = GenuineKafka(), OttlaProcess()
    genuine.properties.update(with_all("genuine", genuine.bootstrap, outside[0]))
    ottla.properties.update(with_all("ottla", ottla.bootstrap, outside[1]))
    with genuine, ottla:
        yield prepare(genuine.bootstrap, outside[0]), prepare(ottla.bootstrap, outside[1])


def asked() -> list[Asked]:
    """The newest version of every API, and older ones where a client is refused differently."""
    newest = [Asked(key, route.max_version) for key, route in ROUTES.items() if key not in SKIPPED]
    older = {
        ApiKey.PRODUCE: 12,
        ApiKey.OFFSET_COMMIT: 9,
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ELECT_LEADERS: 0,
        ApiKey.METADATA: 9,
        ApiKey.FETCH: 12,
    }
    return newest + [Asked(key, version) for key, version in older.items()]


@pytest.mark.parametrize("request_", asked(), ids=lambda each: f"{each.api_key.name}-v{each.version}")
def test_refusals_are_those_of_kafka(pair: tuple[Guarded, Guarded], request_: Asked) -> None:
    genuine, ottla = pair
    answers = {user: (genuine.refusals(request_, user), ottla.refusals(request_, user)) for user in users()}
    different = {user: both for user, both in answers.items() if both[0] != both[1]}
    assert not different, "genuine Kafka's refusals, and Ottla's"


def assigned_by(connection: RawConnection, group: str) -> set[UUID]:
    """The topics of which a member gets partitions that subscribes to everything that begins as the topic does."""
    member: dict[str, Any] = {"group_id": group, "member_id": "m"}
    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_regex": f"{TOPIC}.*",
        "topic_partitions": [],
    }
    answer = connection.ask(ConsumerGroupHeartbeatRequest(**member, **joining, member_epoch=0), 1)
    assert answer.error_code == 0, answer

    def beat() -> Any:
        nonlocal answer
        answer = connection.ask(ConsumerGroupHeartbeatRequest(**member, member_epoch=answer.member_epoch), 1)
        assert answer.error_code == 0, answer
        return answer.assignment and answer.assignment.topic_partitions

    found = {topic.topic_id for topic in eventually(beat, interval_s=0.2)}
    connection.ask(ConsumerGroupHeartbeatRequest(**member, member_epoch=-1), 1)
    return found


def until_two_are_assigned(connection: RawConnection) -> None:
    """Wait until the coordinator knows the topic that was made last."""
    group = f"{NAMES['GROUP']}-all"
    eventually(lambda: len(assigned_by(connection, f"{group}-{uuid4()}")) == 2)


def test_an_expression_stands_for_no_topic_that_the_member_may_not_describe(pair: tuple[Guarded, Guarded]) -> None:
    for broker in pair:
        hidden = f"{TOPIC}-hidden"
        admin = AdminClient({"bootstrap.servers": broker.inside})
        admin.create_topics([NewTopic(hidden, 1, 1)])[hidden].result(30)
        with RawConnection(broker.inside) as connection:
            until_two_are_assigned(connection)
        with broker.logged_in("everybody") as connection:
            assert assigned_by(connection, f"{NAMES['GROUP']}-some") == {broker.topic_id}
