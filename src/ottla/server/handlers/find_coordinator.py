"""FindCoordinator (v0-v6): which broker coordinates a group. Makes `__consumer_offsets` when it is first needed.

Coordinators of transactions (key type 1) and share groups (2) are not served: INVALID_REQUEST.
"""

from typing import Final

from ottla.errors import ApiError, ErrorCode, InvalidRequest, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.server.context import RequestContext
from ottla.server.endpoints import address_of

GROUP: Final = 0
SEVERAL_SINCE: Final = 4


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= SEVERAL_SINCE:
        found = [await _find(key, request.key_type, context) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    only = await _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        if key_type != GROUP:
            raise InvalidRequest(f"coordinators of key type {key_type} are not served here, only those of groups (0)")
        return await _find_group_coordinator(key, context)
    except OttlaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error) or None
        )


async def _find_group_coordinator(group_id: str, context: RequestContext) -> Coordinator:
    broker = context.broker
    topic = broker.groups.topic
    where = TopicPartition(topic.name, topic.partition_for(group_id))
    partition = broker.metadata.image.partition(where)
    if partition is None:
        try:
            await topic.ensure()
        except OttlaError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot create {topic.name}: {error}") from error
        partition = broker.metadata.image.partition(where)
    leader = None if partition is None else broker.metadata.image.brokers.get(partition.leader)
    endpoint = None if leader is None else address_of(leader, context)
    if leader is None or endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody leads {where} at present")
    await broker.groups.until_active(where.partition)
    host, port = endpoint
    return Coordinator(key=group_id, node_id=leader.broker_id, host=host, port=port)
