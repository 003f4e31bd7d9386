"""The one table of what this broker serves: API, versions, handler.

ApiVersions and the list in docs/apis.md are read from it; an API that is not in it is not served.
A handler is `ottla.server.handlers.<api>.handle`, imported when its API is first asked for, so that a broker that
only produces and fetches never loads the rest.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from ottla.protocol.api import ApiKey
from ottla.protocol.schema import Message
from ottla.server.context import Deferred, RequestContext

Answer = Message | Awaitable[Message | Deferred[Any] | None] | Deferred[Any] | None
"""At once, from a coroutine, later through a `Deferred`, or never (acks=0)."""

Handler = Callable[[Any, RequestContext], Answer]


class Route(NamedTuple):
    """One served API; versions are inclusive, and those that Kafka 4.3 serves."""

    api_key: ApiKey
    min_version: int
    max_version: int

    @property
    def handler_module(self) -> str:
        return f"ottla.server.handlers.{self.api_key.name.lower()}"


ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (
        Route(ApiKey.PRODUCE, 3, 13),
        Route(ApiKey.FETCH, 4, 18),
        Route(ApiKey.LIST_OFFSETS, 1, 11),
        Route(ApiKey.METADATA, 0, 13),
        Route(ApiKey.OFFSET_COMMIT, 2, 10),
        Route(ApiKey.OFFSET_FETCH, 1, 10),
        Route(ApiKey.FIND_COORDINATOR, 0, 6),
        Route(ApiKey.JOIN_GROUP, 0, 9),
        Route(ApiKey.HEARTBEAT, 0, 4),
        Route(ApiKey.LEAVE_GROUP, 0, 5),
        Route(ApiKey.SYNC_GROUP, 0, 5),
        Route(ApiKey.DESCRIBE_GROUPS, 0, 6),
        Route(ApiKey.LIST_GROUPS, 0, 5),
        Route(ApiKey.API_VERSIONS, 0, 4),
        Route(ApiKey.CREATE_TOPICS, 2, 7),
        Route(ApiKey.DELETE_TOPICS, 1, 6),
        Route(ApiKey.DELETE_RECORDS, 0, 2),
        Route(ApiKey.INIT_PRODUCER_ID, 0, 5),
        Route(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
        Route(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5),
        Route(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
        Route(ApiKey.END_TXN, 0, 5),
        Route(ApiKey.WRITE_TXN_MARKERS, 1, 2),
        Route(ApiKey.TXN_OFFSET_COMMIT, 0, 5),
        Route(ApiKey.DESCRIBE_CONFIGS, 1, 4),
        Route(ApiKey.ALTER_CONFIGS, 0, 2),
        Route(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
        Route(ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
        Route(ApiKey.CREATE_PARTITIONS, 0, 3),
        Route(ApiKey.DELETE_GROUPS, 0, 2),
        Route(ApiKey.ELECT_LEADERS, 0, 2),
        Route(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
        Route(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1),
        Route(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0),
        Route(ApiKey.OFFSET_DELETE, 0, 0),
        Route(ApiKey.UPDATE_FEATURES, 0, 2),
        Route(ApiKey.DESCRIBE_CLUSTER, 0, 2),
        Route(ApiKey.DESCRIBE_PRODUCERS, 0, 0),
        Route(ApiKey.UNREGISTER_BROKER, 0, 0),
        Route(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
        Route(ApiKey.LIST_TRANSACTIONS, 0, 2),
        Route(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
        Route(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
        Route(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0),
        Route(ApiKey.PUSH_TELEMETRY, 0, 0),
        Route(ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
        Route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
        Route(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1),
        Route(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1),
        Route(ApiKey.SHARE_FETCH, 1, 2),
        Route(ApiKey.SHARE_ACKNOWLEDGE, 1, 2),
        Route(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0),
        Route(ApiKey.READ_SHARE_GROUP_STATE, 0, 0),
        Route(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1),
        Route(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0),
        Route(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1),
        Route(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0),
        Route(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0),
        Route(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1),
        Route(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0),
        Route(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0),
    )
}

CLUSTER_ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (
        Route(ApiKey.LEADER_AND_ISR, 5, 7),
        Route(ApiKey.STOP_REPLICA, 3, 4),
        Route(ApiKey.UPDATE_METADATA, 5, 8),
        Route(ApiKey.CONTROLLED_SHUTDOWN, 2, 3),
        Route(ApiKey.ALTER_PARTITION, 2, 3),
        Route(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0),
    )
}
"""The APIs that a broker in a cluster serves besides; the versions are those of Kafka 3.9."""

OWN_ROUTES: Final[dict[ApiKey, Route]] = {
    route.api_key: route
    for route in (Route(ApiKey.DESCRIBE_GROUP_HISTORY, 0, 0), Route(ApiKey.DESCRIBE_TELEMETRY, 0, 0))
}
"""APIs that Kafka does not have. Served to every client, and listed only for clients that know Ottla: others may fail
on
an unknown API key."""

_handlers: Final[dict[int, Handler]] = {}


def handler_of(api_key: ApiKey) -> Handler:
    """The handler of a served API, imported on first use."""
    found = _handlers.get(api_key)
    if found is None:
        route = ROUTES.get(api_key) or CLUSTER_ROUTES.get(api_key) or OWN_ROUTES[api_key]
        module = import_module(route.handler_module)
        found = _handlers[api_key] = cast("Handler", module.handle)
    return found
