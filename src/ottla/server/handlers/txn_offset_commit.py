"""TxnOffsetCommit (v0-v5): positions of a group that come into force with a producer's transaction (KIP-98, KIP-447).

Offsets are kept with the id of their topic, as those of OffsetCommit are.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.coordinators.verification import ABORTABLE, FIRST, SECOND, Generation
from ottla.errors import ErrorCode, OttlaError
from ottla.groups.events import CommitOffsets, OffsetsCommitted, OffsetToCommit
from ottla.ids import GroupId, InstanceId, MemberId, PartitionId, ProducerIdAndEpoch, TopicName
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.server.context import RequestContext
from ottla.server.producer_connections import To

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.coordinators.verification import TransactionVerifier
    from ottla.metadata.view import MetadataView
    from ottla.server.producer_connections import ProducerConnections

KNOWS_LOADING_SINCE: Final = 2
ABORTABLE_SINCE: Final = 4
SECOND_SINCE: Final = 5


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    metadata: "MetadataView"
    groups: "GroupCoordinator"
    verifier: "TransactionVerifier"
    producer_connections: "ProducerConnections"


def handle(
    parts: Parts, request: TxnOffsetCommitRequest, context: RequestContext
) -> Awaitable[TxnOffsetCommitResponse]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if context.api_version < SECOND_SINCE:
        parts.producer_connections.refuse_late(To.GROUP_COORDINATOR, producer, context.connection_id)
    return _answer(parts, request, producer, context)


async def _answer(
    parts: Parts, request: TxnOffsetCommitRequest, producer: ProducerIdAndEpoch, context: RequestContext
) -> TxnOffsetCommitResponse:
    image = parts.metadata.image
    to_commit: list[OffsetToCommit] = []
    accepted: list[TxnOffsetCommitResponsePartition] = []
    answers: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        known = image.topics.get(TopicName(topic.name))
        partitions: list[TxnOffsetCommitResponsePartition] = []
        for requested in topic.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=requested.partition_index)
            partitions.append(answer)
            if known is None or not 0 <= requested.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            accepted.append(answer)
            to_commit.append(
                OffsetToCommit(
                    known.name,
                    PartitionId(requested.partition_index),
                    requested.committed_offset,
                    requested.committed_metadata or "",
                    requested.committed_leader_epoch,
                    known.topic_id,
                )
            )
        answers.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    if to_commit:
        committed = await _commit(parts, request, producer, context, tuple(to_commit))
        if context.api_version < SECOND_SINCE and not any(committed.errors):
            parts.producer_connections.accepted(To.GROUP_COORDINATOR, producer, context.connection_id)
        for answer, outcome in zip(accepted, committed.errors, strict=True):
            answer.error_code = outcome
    return TxnOffsetCommitResponse(topics=answers)


async def _commit(
    parts: Parts,
    request: TxnOffsetCommitRequest,
    producer: ProducerIdAndEpoch,
    context: RequestContext,
    to_commit: tuple[OffsetToCommit, ...],
) -> OffsetsCommitted:
    event = CommitOffsets(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        generation=request.generation_id,
        offsets=to_commit,
        producer=producer,
    )
    try:
        return await parts.groups.commit_offsets_in_transaction(
            event, request.transactional_id, parts.verifier, _generation_of(context.api_version)
        )
    except OttlaError as error:
        code = error.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < KNOWS_LOADING_SINCE:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients before Kafka 2.0 fail on the exact error
    return OffsetsCommitted((code,) * len(to_commit))


def _generation_of(version: int) -> Generation:
    if version >= SECOND_SINCE:
        return SECOND
    return ABORTABLE if version >= ABORTABLE_SINCE else FIRST
