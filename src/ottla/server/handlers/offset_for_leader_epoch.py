"""OffsetForLeaderEpoch (v2-v4): where a leader epoch ends, so that divergence is noticed (KIP-101, KIP-320)."""

from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.server.context import RequestContext


def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    """Each partition on its own; an epoch that is not known is answered with -1 and -1."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find(topic.topic, wanted, context) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(topic: str, wanted: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition)
    try:
        partition = context.broker.replicas.for_fetch(topic, wanted.partition, wanted.current_leader_epoch)
        found = partition.log.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch))
        result.leader_epoch, result.end_offset = found.epoch, found.end_offset
    except OttlaError as refused:
        result.error_code = refused.code
    return result
