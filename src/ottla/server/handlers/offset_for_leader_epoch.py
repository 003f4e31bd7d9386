"""OffsetForLeaderEpoch (v2-v4): where a leader epoch ends, so that divergence is noticed (KIP-101, KIP-320)."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

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
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition
    from ottla.slices import Slices

UNKNOWN: Final = -1


def handle(
    replicas: "ReplicaManager", slices: "Slices", request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    """Each partition on its own; an epoch that is not known is answered with -1 and -1."""
    return slices.start(_answer(replicas, request, context))


def _answer(
    replicas: "ReplicaManager", request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic, partitions=[])
        response.topics.append(result)
        for wanted in topic.partitions:
            result.partitions.append(_find(replicas, topic.topic, wanted, context))
            yield
    return response


def _find(
    replicas: "ReplicaManager", topic: str, wanted: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition)
    try:
        partition = replicas.for_fetch(topic, wanted.partition, wanted.current_leader_epoch)
        result.leader_epoch, result.end_offset = _end_of(partition, wanted.leader_epoch)
    except OttlaError as refused:
        result.error_code = refused.code
    return result


def _end_of(partition: "Partition", epoch: int) -> tuple[int, int]:
    """The last epoch up to `epoch` in which anything was written, and the offset after it.

    Kafka notes an epoch when it begins, Ottla with its first record: until then it begins, and ends, at the log's end.
    """
    log = partition.log
    found = log.end_offset_for_epoch(LeaderEpoch(epoch))
    if found.epoch != UNKNOWN or not 0 <= epoch <= partition.leader_epoch:
        return found.epoch, found.end_offset
    if epoch == partition.leader_epoch or log.latest_epoch == UNKNOWN:
        return epoch, log.log_end_offset
    return log.latest_epoch, log.log_end_offset
