"""ShareAcknowledge (v1-v2): accept, release or reject records, or renew locks, in a share session.

Source: KIP-932, KIP-1222.
Answered once it is written. Epoch -1 ends the session, and releases what the member still holds.
"""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.session_epochs import FINAL_EPOCH, INITIAL_EPOCH
from ottla.server.context import Deferred, RequestContext
from ottla.server.share_acknowledgements import SHARE_GROUPS_ARE_OFF, Acknowledging, member_key
from ottla.server.share_group_requests import are_offered

if TYPE_CHECKING:
    import asyncio

    from ottla.metadata.view import MetadataView
    from ottla.share_partitions.led_partitions import SharePartitions


def handle(
    loop: "asyncio.AbstractEventLoop",
    metadata: "MetadataView",
    share_partitions: "SharePartitions",
    request: ShareAcknowledgeRequest,
    context: RequestContext,
) -> "ShareAcknowledgeResponse | Deferred[ShareAcknowledgeResponse]":
    sessions = share_partitions.sessions
    if not are_offered(metadata):
        return _failure(ErrorCode.UNSUPPORTED_VERSION, SHARE_GROUPS_ARE_OFF)
    try:
        member = member_key(request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            return _failure(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session does not begin with acknowledgements"
            )
        sessions.use(member, request.share_session_epoch)
    except OttlaError as error:
        return _failure(error.code, str(error))
    deferred: Deferred[ShareAcknowledgeResponse] = Deferred()

    def answer() -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            sessions.close(member)
        lock_ms = share_partitions.lock_duration_ms(member.group_id)
        loop.call_soon(lambda: deferred.complete(_response(acknowledging, lock_ms)))

    acknowledging = Acknowledging(
        share_partitions,
        member,
        request.topics,
        answer,
        may_renew=request.is_renew_ack,
        access=context.access,
    )
    return deferred


def _failure(code: ErrorCode, message: str) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message, responses=[], node_endpoints=[])


def _response(acknowledging: Acknowledging, lock_ms: int) -> ShareAcknowledgeResponse:
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, partition), code in acknowledging.results.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            PartitionData(
                partition_index=partition,
                error_code=code,
                error_message=None if code is ErrorCode.NONE else code.name,
                current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            )
        )
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=[],
    )
