"""ConsumerGroupHeartbeat (v0-v1): a member of a consumer group (KIP-848) joins, lives, gets its assignment, leaves.

Errors that are visible in the request itself are refused here, in Kafka's words; the group decides the rest.
Other than in Kafka, the interval until the next heartbeat is shorter than the setting while partitions move (ADR 10).
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiError, ErrorCode, InvalidRequest
from ottla.groups.consumer.events import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerBeat,
    ConsumerHeartbeat,
    Partitions,
)
from ottla.groups.kinds import GroupKind
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.security.authorization import ResourceType
from ottla.server.context import Deferred, RequestContext, when_done

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.metadata.view import MetadataView

OWN_MEMBER_ID_SINCE: Final = 1


def handle(
    config: "BrokerConfig",
    metadata: "MetadataView",
    groups: "GroupCoordinator",
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    if not is_offered(
        config,
        metadata,
    ):
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    try:
        _check(request, context.api_version, config.group_consumer_assignors)
    except (InvalidRequest, ApiError) as refused:
        return _refused(refused.code, str(refused))
    reply = groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=GroupId(request.group_id),
            member_id=MemberId(request.member_id),
            member_epoch=request.member_epoch,
            instance_id=None if request.instance_id is None else InstanceId(request.instance_id),
            rack_id=request.rack_id,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",  # as Java prints an address, and genuine tools show it
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=None
            if request.subscribed_topic_names is None
            else frozenset(TopicName(name) for name in request.subscribed_topic_names),
            topic_regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
        ),
        None if context.access is None else partial(context.access.sees, ResourceType.TOPIC),
    )
    return when_done(reply, _response)


def _response(beat: ConsumerBeat) -> ConsumerGroupHeartbeatResponse:
    if beat.error:
        return _refused(beat.error, beat.message)
    return ConsumerGroupHeartbeatResponse(
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        assignment=None if beat.assignment is None else _assignment(beat.assignment),
    )


def is_offered(
    config: "BrokerConfig",
    metadata: "MetadataView",
) -> bool:
    """Are there consumer groups here? Settings and the feature `group.version` decide."""
    return GroupKind.CONSUMER in config.group_coordinator_rebalance_protocols and metadata.feature("group.version") > 0


def _check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    epoch = request.member_epoch
    if version >= OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVING:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVING_FOR_A_WHILE:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE:
        raise InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise InvalidRequest(f"{name} can't be empty.")


def _refused(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _owned(topics: list[TopicPartitions]) -> Partitions:
    owned: dict[TopicId, set[int]] = {}
    for topic in topics:
        if topic.partitions:
            owned.setdefault(TopicId(topic.topic_id), set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()
        ]
    )
