"""The routing table: each route says which authorization and which quota genuine Kafka has for its API."""

import pytest

from ottla.protocol.api import ApiKey
from ottla.security.authorization import Operation, QuotaClass, ResourceType, requires
from ottla.server.inter_broker import CLAIMS
from ottla.server.routing import CLUSTER_ROUTES, OWN_ROUTES, ROUTES, Route

ALL = {**ROUTES, **CLUSTER_ROUTES, **OWN_ROUTES}
BROKERS_ONLY = requires((Operation.CLUSTER_ACTION, ResourceType.CLUSTER))
FOR_EVERYBODY = {
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
}
"""The APIs that Kafka authorizes for nobody in particular; tokens are changed by their owners and renewers."""


def operations_of(route: Route) -> set[Operation]:
    return {permission.operation for each in route.authorization for permission in each.any_of}


def test_everything_but_eight_apis_requires_an_authorization() -> None:
    assert {key for key, route in ALL.items() if not route.authorization} == FOR_EVERYBODY


@pytest.mark.parametrize("key", sorted(CLUSTER_ROUTES), ids=lambda key: key.name)
def test_a_request_of_the_cluster_requires_cluster_action_on_the_cluster(key: ApiKey) -> None:
    assert CLUSTER_ROUTES[key].authorization == (BROKERS_ONLY,)


@pytest.mark.parametrize("key", sorted(CLAIMS), ids=lambda key: key.name)
def test_a_request_that_only_brokers_send_can_be_authorized_by_cluster_action(key: ApiKey) -> None:
    """Both tables name the requests between brokers: the one by authorization, the other by proof."""
    assert any(permission == BROKERS_ONLY.any_of[0] for each in ALL[key].authorization for permission in each.any_of)


def test_cluster_action_is_for_requests_between_brokers() -> None:
    """Three of them are for clients too, name no broker, and need no proof here."""
    without_proof = {ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.ADD_PARTITIONS_TO_TXN}
    with_it = {key for key, route in ALL.items() if Operation.CLUSTER_ACTION in operations_of(route)}
    assert with_it - without_proof == set(CLAIMS)


def test_a_permission_names_what_it_is_about() -> None:
    """A transactional id is written, a group read or described, configuration altered; no row mixes them up."""
    fitting = {
        ResourceType.TOPIC: {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"},
        ResourceType.GROUP: {"READ", "DELETE", "DESCRIBE"},
        ResourceType.CLUSTER: {"CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "IDEMPOTENT_WRITE"},
        ResourceType.TRANSACTIONAL_ID: {"WRITE", "DESCRIBE"},
        ResourceType.DELEGATION_TOKEN: {"DESCRIBE"},
        ResourceType.USER: {"CREATE_TOKENS", "DESCRIBE_TOKENS"},
    }
    for resource in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER):
        fitting[resource] |= {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    for key, route in ALL.items():
        for each in route.authorization:
            assert each.any_of, key
            for operation, resource in each.any_of:
                assert operation.name in fitting[resource], (key, each)


def test_quotas_are_those_of_kafka() -> None:
    by_quota: dict[QuotaClass, set[str]] = {}
    for key, route in ALL.items():
        by_quota.setdefault(route.quota, set()).add(key.name)
    assert by_quota[QuotaClass.PRODUCE] == {"PRODUCE"}
    assert by_quota[QuotaClass.FETCH] == {"FETCH", "SHARE_FETCH"}
    assert by_quota[QuotaClass.CONTROLLER_MUTATION] == {"CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS"}
    exempt = {"WRITE_TXN_MARKERS", "LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN"}
    assert by_quota[QuotaClass.EXEMPT] == exempt | {"ALTER_PARTITION", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"}


def test_a_requirement_reads_as_a_sentence() -> None:
    either = requires(
        (Operation.CREATE, ResourceType.CLUSTER), (Operation.CREATE, ResourceType.TOPIC), when="topics to be created"
    )
    assert str(either) == "CREATE on CLUSTER or CREATE on TOPIC (topics to be created)"
    assert str(BROKERS_ONLY) == "CLUSTER_ACTION on CLUSTER"
