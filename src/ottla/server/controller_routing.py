"""The table of what a controller of a quorum serves: those of Kafka 4.3's APIs whose listener is the controller's.

Authorization is that of Kafka 4.3's `ControllerApis`. A broker forwards what clients may ask for in an Envelope
(KIP-590), with the client's principal; the guard of the request within is asked about that principal.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol.api import ApiKey
from ottla.security.authorization import QuotaClass, requires
from ottla.server.routing import ALTER_CLUSTER, BROKERS_ONLY, CLUSTER, DESCRIBE, ROUTES, Route

if TYPE_CHECKING:
    from ottla.server.access.access import Access, Guard, Verdict
    from ottla.server.context import RequestContext

_PACKAGE: Final = "ottla.server.controller_handlers"
_SHARED: Final = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
)
"""Served by the handlers of brokers."""
_EXEMPT: Final = QuotaClass.EXEMPT
_OWN: Final = (
    Route(ApiKey.FETCH, 4, 18, (BROKERS_ONLY,), _EXEMPT, _PACKAGE),
    Route(ApiKey.API_VERSIONS, 0, 4, (), QuotaClass.REQUEST, _PACKAGE),
    Route(ApiKey.ENVELOPE, 0, 0, (BROKERS_ONLY,), _EXEMPT, _PACKAGE),
    Route(ApiKey.DESCRIBE_CLUSTER, 0, 2, (ALTER_CLUSTER,), QuotaClass.REQUEST, _PACKAGE),
    Route(ApiKey.BROKER_REGISTRATION, 0, 4, (BROKERS_ONLY,), _EXEMPT, _PACKAGE),
    Route(ApiKey.BROKER_HEARTBEAT, 0, 2, (BROKERS_ONLY,), _EXEMPT, _PACKAGE),
    Route(ApiKey.UNREGISTER_BROKER, 0, 0, (ALTER_CLUSTER,), QuotaClass.REQUEST, _PACKAGE),
    Route(ApiKey.CONTROLLER_REGISTRATION, 0, 0, (BROKERS_ONLY,), _EXEMPT, _PACKAGE),
    Route(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, (BROKERS_ONLY,), _EXEMPT, _PACKAGE),
    Route(ApiKey.ALTER_PARTITION, 2, 3, (BROKERS_ONLY,), _EXEMPT),
    Route(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, (BROKERS_ONLY,), _EXEMPT),
    Route(ApiKey.VOTE, 0, 2, (BROKERS_ONLY,), _EXEMPT),
    Route(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, (BROKERS_ONLY,), _EXEMPT),
    Route(ApiKey.END_QUORUM_EPOCH, 0, 1, (BROKERS_ONLY,), _EXEMPT),
    Route(ApiKey.DESCRIBE_QUORUM, 0, 2, (requires((DESCRIBE, CLUSTER)),)),
    Route(ApiKey.FETCH_SNAPSHOT, 0, 1, (BROKERS_ONLY,), _EXEMPT),
    Route(ApiKey.ADD_RAFT_VOTER, 0, 1, (ALTER_CLUSTER,)),
    Route(ApiKey.REMOVE_RAFT_VOTER, 0, 0, (ALTER_CLUSTER,)),
    Route(ApiKey.UPDATE_RAFT_VOTER, 0, 0, (BROKERS_ONLY,), _EXEMPT),
)

CONTROLLER_ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in sorted((*(ROUTES[key] for key in _SHARED), *_OWN), key=lambda route: route.api_key)
}

FORWARDABLE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""The APIs that an Envelope may carry, as in Kafka's `ApiKeys`."""


def controllers_guards() -> "Mapping[ApiKey, Guard]":
    """The guards of a controller's APIs, which are those of brokers apart from the nodes' own and DescribeCluster."""
    from ottla.security.authorization import Operation
    from ottla.server.access import admin
    from ottla.server.access.guards import GUARDS
    from ottla.server.access.whole import cluster

    nodes_only, may_alter = cluster(Operation.CLUSTER_ACTION), cluster(Operation.ALTER)

    def describe_cluster(access: "Access", request: Any, context: "RequestContext") -> "Verdict":
        """Requires ALTER, and shows what else the client may do."""
        return may_alter(access, request, context) or admin.describe_cluster(access, request, context)

    own = {route.api_key: nodes_only for route in _OWN if route.authorization == (BROKERS_ONLY,)}
    return {
        **{key: GUARDS[key] for key in (*_SHARED, ApiKey.API_VERSIONS, ApiKey.UNREGISTER_BROKER)},
        **own,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.DESCRIBE_QUORUM: cluster(Operation.DESCRIBE),
        ApiKey.ADD_RAFT_VOTER: may_alter,
        ApiKey.REMOVE_RAFT_VOTER: may_alter,
    }
