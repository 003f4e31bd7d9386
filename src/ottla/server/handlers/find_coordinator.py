"""FindCoordinator (v0-v6): which broker coordinates a group, a transactional id or, since v6, a share partition.

The coordinator's topic is made when it is first needed.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinators.coordinator import Coordinator as CoordinatorOfBroker
from ottla.coordinators.share_coordinator import coordinator_key
from ottla.errors import ApiError, ErrorCode, InvalidRequest, OttlaError
from ottla.ids import TopicId, TopicPartition, uuid_from_text
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.server.context import RequestContext
from ottla.server.endpoints import address_of

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SEVERAL_SINCE: Final = 4
SHARE_SINCE: Final = 6


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    metadata: "MetadataView"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    share_state: "ShareCoordinator"
    slices: "Slices"


async def handle(parts: Parts, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= SEVERAL_SINCE:
        find = partial(_find, parts, key_type=request.key_type, context=context)
        found = await parts.slices.each(find, request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=found)
    only = await _find(parts, request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(parts: Parts, key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        return await _find_leader(parts, key, *_coordinated(parts, key, key_type, context), context)
    except OttlaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error) or None
        )


def _coordinated(
    parts: Parts, key: str, key_type: int, context: RequestContext
) -> tuple[str, CoordinatorOfBroker[Any, Any]]:
    """The key to hash, and the coordinator of this broker for it."""
    if key_type == GROUP:
        return key, parts.groups
    if key_type == TRANSACTION:
        return key, parts.transactions
    if key_type == SHARE and context.api_version >= SHARE_SINCE:
        return _share_partition(key), parts.share_state
    raise InvalidRequest(
        f"there are no coordinators of key type {key_type} in this version; "
        "0 is for groups, 1 for transactional ids, 2 (since version 6) for share partitions"
    )


def _share_partition(key: str) -> str:
    """The key as the coordinator writes it; raises InvalidRequest."""
    try:
        group_id, topic_id, partition = key.split(":")
        if not group_id.strip():
            raise ValueError("no group")
        return coordinator_key(group_id.strip(), TopicId(uuid_from_text(topic_id)), int(partition))
    except ValueError as error:
        raise InvalidRequest(f"a share partition is named group:topic id:partition, not {key!r}") from error


async def _find_leader(
    parts: Parts, key: str, hashed: str, coordinator: CoordinatorOfBroker[Any, Any], context: RequestContext
) -> Coordinator:
    metadata, topic = parts.metadata, coordinator.topic
    if not metadata.is_known:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no controller has spoken to this broker yet")
    where = TopicPartition(topic.name, topic.partition_for(hashed))
    partition = metadata.image.partition(where)
    if partition is None:
        try:
            await topic.ensure()
        except OttlaError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot create {topic.name}: {error}") from error
        partition = metadata.image.partition(where)
    leader = None if partition is None else metadata.image.brokers.get(partition.leader)
    endpoint = None if leader is None else address_of(leader, context)
    if leader is None or endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} has no leader at present")
    await coordinator.until_active(where.partition, expected=leader.broker_id == metadata.broker_id)
    host, port = endpoint
    return Coordinator(key=key, node_id=leader.broker_id, host=host, port=port)
