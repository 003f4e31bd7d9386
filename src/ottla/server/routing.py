"""The one table of what this broker serves: API, versions, handler, required authorization, quota.

ApiVersions and the list in docs/apis.md are read from it; an API that is not in it is not served.
Authorization and quota are those of Kafka 4.3 (`KafkaApis`, `ControllerApis`; for requests of a controller with
ZooKeeper, Kafka 3.9). Where there is an authorizer, the guards of
`ottla.server.access` enforce the authorization.
A handler is `ottla.server.handlers.<api>.handle`, bound to the parts of the broker that it names (`binding`). It is
imported when its API is first asked for, so that a broker that only produces and fetches never loads the rest.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.schema import Message
from ottla.security.authorization import Operation, QuotaClass, Requirement, ResourceType, requires
from ottla.server.binding import bind
from ottla.server.context import Deferred, RequestContext, Services

if TYPE_CHECKING:
    from ottla.security.acls import StandardAuthorizer
    from ottla.server.access.access import Guard
    from ottla.server.access.refusals import RefusalLog
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.cluster_member import ClusterMember
    from ottla.server.controller_services import ControllerCluster, ControllerServices

Answer = Message | Awaitable[Message | Deferred[Any] | None] | Deferred[Any] | None
"""At once, from a coroutine, later through a `Deferred`, or never (acks=0)."""

Handler = Callable[[Any, RequestContext], Answer]


READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.USER

READ_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC = requires((READ, TOPIC)), requires((WRITE, TOPIC)), requires((DESCRIBE, TOPIC))
READ_GROUP, DESCRIBE_GROUP = requires((READ, GROUP)), requires((DESCRIBE, GROUP))
ALTER_CLUSTER, DESCRIBE_CLUSTER = requires((ALTER, CLUSTER)), requires((DESCRIBE, CLUSTER))
BROKERS_ONLY = requires((CLUSTER_ACTION, CLUSTER))
WRITE_TRANSACTIONAL_ID = requires((WRITE, TRANSACTIONAL_ID))
WRITE_OWN_TRANSACTIONAL_ID = requires((WRITE, TRANSACTIONAL_ID), when="with a transactional id")
CONFIGS_DESCRIBED, CONFIGS_ALTERED = (
    (
        requires((operation, TOPIC), when="topics"),
        requires((operation, GROUP), when="groups"),
        requires((operation, CLUSTER), when="brokers, loggers and client metrics"),
    )
    for operation in (DESCRIBE_CONFIGS, ALTER_CONFIGS)
)


class Route(NamedTuple):
    """One served API; versions are inclusive, and those that Kafka 4.3 serves."""

    api_key: ApiKey
    min_version: int
    max_version: int
    authorization: tuple[Requirement, ...]
    """All that apply are to be met; empty for what everybody may do."""
    quota: QuotaClass = QuotaClass.REQUEST
    """What the request counts against (`ottla.server.client_quotas`)."""
    package: str = "ottla.server.handlers"
    """Where its handler is."""

    @property
    def handler_module(self) -> str:
        return f"{self.package}.{self.api_key.name.lower()}"


ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (
        Route(ApiKey.PRODUCE, 3, 13, (WRITE_OWN_TRANSACTIONAL_ID, WRITE_TOPIC), QuotaClass.PRODUCE),
        Route(
            ApiKey.FETCH,
            4,
            18,
            (requires((READ, TOPIC), when="consumers"), requires((CLUSTER_ACTION, CLUSTER), when="followers")),
            QuotaClass.FETCH,
        ),
        Route(ApiKey.LIST_OFFSETS, 1, 11, (DESCRIBE_TOPIC,)),
        Route(
            ApiKey.METADATA,
            0,
            13,
            (DESCRIBE_TOPIC, requires((CREATE, CLUSTER), (CREATE, TOPIC), when="topics to be created")),
        ),
        Route(ApiKey.OFFSET_COMMIT, 2, 10, (READ_GROUP, READ_TOPIC)),
        Route(ApiKey.OFFSET_FETCH, 1, 10, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        Route(
            ApiKey.FIND_COORDINATOR,
            0,
            6,
            (
                requires((DESCRIBE, GROUP), when="groups"),
                requires((DESCRIBE, TRANSACTIONAL_ID), when="transactions"),
                requires((CLUSTER_ACTION, CLUSTER), when="state of share groups"),
            ),
        ),
        Route(ApiKey.JOIN_GROUP, 0, 9, (READ_GROUP,)),
        Route(ApiKey.HEARTBEAT, 0, 4, (READ_GROUP,)),
        Route(ApiKey.LEAVE_GROUP, 0, 5, (READ_GROUP,)),
        Route(ApiKey.SYNC_GROUP, 0, 5, (READ_GROUP,)),
        Route(ApiKey.DESCRIBE_GROUPS, 0, 6, (DESCRIBE_GROUP,)),
        Route(ApiKey.LIST_GROUPS, 0, 5, (requires((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)),)),
        Route(ApiKey.SASL_HANDSHAKE, 0, 1, (), QuotaClass.EXEMPT),
        Route(ApiKey.API_VERSIONS, 0, 4, ()),
        Route(
            ApiKey.CREATE_TOPICS,
            2,
            7,
            (
                requires((CREATE, CLUSTER), (CREATE, TOPIC)),
                requires((DESCRIBE_CONFIGS, TOPIC), when="settings in the answer"),
            ),
            QuotaClass.CONTROLLER_MUTATION,
        ),
        Route(
            ApiKey.DELETE_TOPICS,
            1,
            6,
            (
                requires((DELETE, CLUSTER), (DELETE, TOPIC)),
                requires((DELETE, CLUSTER), (DESCRIBE, TOPIC), when="topics in the answer"),
            ),
            QuotaClass.CONTROLLER_MUTATION,
        ),
        Route(ApiKey.DELETE_RECORDS, 0, 2, (requires((DELETE, TOPIC)),)),
        Route(
            ApiKey.INIT_PRODUCER_ID,
            0,
            5,
            (
                WRITE_OWN_TRANSACTIONAL_ID,
                requires((IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC), when="without a transactional id"),
            ),
        ),
        Route(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, (requires((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),)),
        Route(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            0,
            5,
            (
                requires((WRITE, TRANSACTIONAL_ID), when="up to v3"),
                requires((WRITE, TOPIC), when="up to v3"),
                requires((CLUSTER_ACTION, CLUSTER), when="from v4 on"),
            ),
        ),
        Route(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, (WRITE_TRANSACTIONAL_ID, READ_GROUP)),
        Route(ApiKey.END_TXN, 0, 5, (WRITE_TRANSACTIONAL_ID,)),
        Route(
            ApiKey.WRITE_TXN_MARKERS, 1, 2, (requires((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),), QuotaClass.EXEMPT
        ),
        Route(ApiKey.TXN_OFFSET_COMMIT, 0, 5, (WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC)),
        Route(ApiKey.DESCRIBE_ACLS, 1, 3, (DESCRIBE_CLUSTER,)),
        Route(ApiKey.CREATE_ACLS, 1, 3, (ALTER_CLUSTER,)),
        Route(ApiKey.DELETE_ACLS, 1, 3, (ALTER_CLUSTER,)),
        Route(ApiKey.DESCRIBE_CONFIGS, 1, 4, (*CONFIGS_DESCRIBED,)),
        Route(ApiKey.ALTER_CONFIGS, 0, 2, (*CONFIGS_ALTERED,)),
        Route(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, (ALTER_CLUSTER,)),
        Route(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, (DESCRIBE_CLUSTER,)),
        Route(ApiKey.SASL_AUTHENTICATE, 0, 2, (), QuotaClass.EXEMPT),
        Route(ApiKey.CREATE_PARTITIONS, 0, 3, (requires((ALTER, TOPIC)),), QuotaClass.CONTROLLER_MUTATION),
        Route(
            ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, (requires((Operation.CREATE_TOKENS, USER), when="for other owners"),)
        ),
        Route(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, ()),
        Route(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, ()),
        Route(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            1,
            3,
            (
                requires(
                    (DESCRIBE, ResourceType.DELEGATION_TOKEN),
                    (Operation.DESCRIBE_TOKENS, USER),
                    when="tokens of others",
                ),
            ),
        ),
        Route(ApiKey.DELETE_GROUPS, 0, 2, (requires((DELETE, GROUP)),)),
        Route(ApiKey.ELECT_LEADERS, 0, 2, (ALTER_CLUSTER,)),
        Route(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, (*CONFIGS_ALTERED,)),
        Route(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, (ALTER_CLUSTER,)),
        Route(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, (DESCRIBE_CLUSTER,)),
        Route(ApiKey.OFFSET_DELETE, 0, 0, (requires((DELETE, GROUP)), READ_TOPIC)),
        Route(ApiKey.UPDATE_FEATURES, 0, 2, (ALTER_CLUSTER,)),
        Route(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, (requires((DESCRIBE_CONFIGS, CLUSTER)),)),
        Route(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, (requires((ALTER_CONFIGS, CLUSTER)),)),
        Route(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, (DESCRIBE_CLUSTER,)),
        Route(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, (ALTER_CLUSTER,)),
        Route(ApiKey.DESCRIBE_CLUSTER, 0, 2, ()),
        Route(ApiKey.DESCRIBE_PRODUCERS, 0, 0, (READ_TOPIC,)),
        Route(ApiKey.UNREGISTER_BROKER, 0, 0, (ALTER_CLUSTER,)),
        Route(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, (requires((DESCRIBE, TRANSACTIONAL_ID)), DESCRIBE_TOPIC)),
        Route(ApiKey.LIST_TRANSACTIONS, 0, 2, (requires((DESCRIBE, TRANSACTIONAL_ID)),)),
        Route(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, (READ_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, ()),
        Route(ApiKey.PUSH_TELEMETRY, 0, 0, ()),
        Route(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, (requires((DESCRIBE_CONFIGS, CLUSTER)),)),
        Route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, (DESCRIBE_TOPIC,)),
        Route(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, (READ_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.SHARE_FETCH, 1, 2, (READ_GROUP, READ_TOPIC), QuotaClass.FETCH),
        Route(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, (READ_GROUP, READ_TOPIC)),
        Route(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, (BROKERS_ONLY,)),
        Route(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, (BROKERS_ONLY,)),
        Route(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, (BROKERS_ONLY,)),
        Route(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, (BROKERS_ONLY,)),
        Route(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, (BROKERS_ONLY,)),
        Route(
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            0,
            0,
            (
                READ_GROUP,
                DESCRIBE_TOPIC,
                requires((CREATE, CLUSTER), (CREATE, TOPIC), when="internal topics to be created"),
            ),
        ),
        Route(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, (READ_GROUP, READ_TOPIC)),
        Route(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, (requires((DELETE, GROUP)), READ_TOPIC)),
    )
}

CLUSTER_ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (
        Route(ApiKey.LEADER_AND_ISR, 5, 7, (BROKERS_ONLY,), QuotaClass.EXEMPT),
        Route(ApiKey.STOP_REPLICA, 3, 4, (BROKERS_ONLY,), QuotaClass.EXEMPT),
        Route(ApiKey.UPDATE_METADATA, 5, 8, (BROKERS_ONLY,), QuotaClass.EXEMPT),
        Route(ApiKey.CONTROLLED_SHUTDOWN, 2, 3, (BROKERS_ONLY,), QuotaClass.EXEMPT),
        Route(ApiKey.ALTER_PARTITION, 2, 3, (BROKERS_ONLY,), QuotaClass.EXEMPT),
        Route(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, (BROKERS_ONLY,)),
    )
}
"""The APIs that a broker in a cluster serves besides; the versions are those of Kafka 3.9."""

QUORUM_ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (
        Route(ApiKey.DESCRIBE_QUORUM, 0, 2, (DESCRIBE_CLUSTER,)),
        Route(ApiKey.ADD_RAFT_VOTER, 0, 1, (ALTER_CLUSTER,)),
        Route(ApiKey.REMOVE_RAFT_VOTER, 0, 0, (ALTER_CLUSTER,)),
    )
}
"""The APIs that a broker under a quorum of controllers forwards to them besides."""

OWN_ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (
        Route(ApiKey.DESCRIBE_GROUP_HISTORY, 0, 0, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
        Route(ApiKey.DESCRIBE_TELEMETRY, 0, 0, (DESCRIBE_CLUSTER,)),
        Route(ApiKey.DESCRIBE_QUOTA_USAGE, 0, 0, (requires((DESCRIBE_CONFIGS, CLUSTER)),)),
    )
}
"""APIs that Kafka does not have, with the authorization of the nearest that it has. Served to every client, and listed
only for clients that know Ottla: others may fail on an unknown API key."""


ALL_ROUTES: Final = ROUTES | CLUSTER_ROUTES | QUORUM_ROUTES | OWN_ROUTES


def served_by(services: Services) -> dict[ApiKey, Route]:
    """What a broker serves: alone, with ZooKeeper, or under a quorum of controllers."""
    served = ROUTES | OWN_ROUTES
    if services.cluster is None:
        return served
    return served | (QUORUM_ROUTES if services.membership is None else CLUSTER_ROUTES)


EXEMPT: Final = frozenset(
    route.api_key
    for route in (*ROUTES.values(), *CLUSTER_ROUTES.values())
    if route.quota is QuotaClass.EXEMPT or route.authorization == (BROKERS_ONLY,)
)
"""APIs that use nobody's quota: those of brokers, and those of clients that log in."""


def brokers_guards() -> "Mapping[ApiKey, Guard]":
    """The guards of a broker's APIs."""
    from ottla.server.access.guards import GUARDS

    return GUARDS


class Handlers:
    """The handlers of one node. Each is imported, and bound to the parts it uses, at the first request of its API."""

    def __init__(
        self,
        services: "Services | ControllerServices",
        routes: Mapping[ApiKey, Route] = ALL_ROUTES,
        guards: "Callable[[], Mapping[ApiKey, Guard]]" = brokers_guards,
    ) -> None:
        """`guards` are asked for where there is an authorizer."""
        self._services = services
        self._routes = routes
        self._guards = guards
        self._bound: dict[int, Handler] = {}
        self._refusals: RefusalLog | None = None

    def __getitem__(self, api_key: ApiKey) -> Handler:
        """The handler of a served API."""
        found = self._bound.get(api_key)
        if found is None:
            route = self._routes[ApiKey(api_key)]
            cluster: ClusterMember | ControllerCluster | None = self._services.cluster
            own = partial(self._own, route)
            found = None if cluster is None else cluster.forwards(route.api_key, own)
            if found is None:
                found = own()
            if self._services.acls is not None:
                found = self._guarded(route.api_key, found, self._services.acls.authorizer)
            if self._services.audit is not None:
                found = self._audited(route.api_key, found, self._services.audit)
            self._bound[api_key] = found
        return found

    def _own(self, route: Route) -> Handler:
        return bind(import_module(route.handler_module), self._services)

    def _guarded(self, api_key: ApiKey, handler: Handler, authorizer: "StandardAuthorizer") -> Handler:
        """The handler behind the guard of its API; without a guard, nobody may use it."""
        from ottla.server.access.access import guarded  # big, and not needed where everybody may do everything
        from ottla.server.access.refusals import RefusalLog

        if self._refusals is None:
            self._refusals = RefusalLog(self._services.clock.monotonic, self._services.audit)
        return guarded(handler, self._guards()[api_key], authorizer, self._services.metadata, self._refusals)

    def _audited(self, api_key: ApiKey, handler: Handler, audit: "AuditLog") -> Handler:
        """The handler, with a note of what it changes."""
        from ottla.server.audit.audited import audited  # only a broker with an audit log pays for it
        from ottla.server.audit.changes import WATCHES

        watch = WATCHES.get(api_key)
        return handler if watch is None else audited(handler, watch, audit, self._services.metadata)
