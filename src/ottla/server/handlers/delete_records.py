"""DeleteRecords (v0-v2): move the beginning of a partition up; what lies below goes with the next retention check.

Answered once all replicas that are in sync begin there (the low watermark), so that no failover brings records back.
Only what is committed can be deleted. Records that a producer wrote with acks=0 or 1 may still wait for the sync they
share with others: a request that names them waits with them. All of it within the request's timeout.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ApiError, ErrorCode, InvalidTopic, OffsetOutOfRange, OttlaError
from ottla.ids import Offset
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.delayed import DelayedProduce
from ottla.server.context import Deferred, RequestContext
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition
    from ottla.slices import Slices

_Answer = DeleteRecordsResponse | Deferred[DeleteRecordsResponse]
TO_THE_END: Final = -1
"""Asks for everything that is there."""
NO_OFFSET: Final = -1


def handle(
    replicas: "ReplicaManager", slices: "Slices", request: DeleteRecordsRequest, context: RequestContext
) -> "_Answer | Coroutine[Any, Any, _Answer]":
    """Each partition on its own."""
    return slices.start(_begin(replicas, request, context))


def _begin(replicas: "ReplicaManager", request: DeleteRecordsRequest, context: RequestContext) -> "Steps[_Answer]":
    response = DeleteRecordsResponse(topics=[])
    waiting: list[tuple[Partition, Offset, DeleteRecordsPartitionResult]] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            yield
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=NO_OFFSET)
            results.append(result)
            try:
                partition, before = _find(replicas, topic.name, wanted.partition_index, wanted.offset, context)
                if not partition.high_watermark < before <= partition.log.log_end_offset:
                    partition.delete_records_before(before)
                    if partition.low_watermark >= before:
                        result.low_watermark = partition.low_watermark
                        continue
                waiting.append((partition, before, result))
            except OttlaError as refused:
                result.error_code = refused.code
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if not waiting:
        return response

    deferred: Deferred[DeleteRecordsResponse] = Deferred()

    def finish(missing: dict[int, ErrorCode]) -> None:
        for key, (partition, _, result) in enumerate(waiting):
            if key in missing:
                result.error_code = missing[key]
            else:
                result.low_watermark = partition.low_watermark
        deferred.complete(response)

    timeouts = replicas.timeouts
    delayed = DelayedProduce(set(range(len(waiting))), request.timeout_ms / 1000, timeouts, finish)
    for key, (partition, before, _) in enumerate(waiting):
        _Deletion(partition, before, delayed).begin(key)
        yield
    return deferred


class _Deletion:
    """One partition's part of a request: committed up to `before`, then deleted here, then by the replicas in sync."""

    __slots__ = ("_before", "_delayed", "_partition")

    def __init__(self, partition: "Partition", before: Offset, delayed: DelayedProduce) -> None:
        self._partition = partition
        self._before = before
        self._delayed = delayed

    def begin(self, key: int) -> None:
        partition = self._partition
        if partition.high_watermark >= self._before:
            self.committed(key)
        else:
            partition.mark_dirty()
            partition.when_committed(Offset(partition.log.log_end_offset), key, self)

    def committed(self, key: int) -> None:
        """The records may be deleted now."""
        try:
            self._partition.delete_records_before(self._before)
        except OttlaError as refused:
            self._delayed.failed(key, refused.code)
        else:
            self._partition.when_deleted(self._before, key, self._delayed)

    def failed(self, key: int, code: ErrorCode) -> None:
        """They are not committed by this broker."""
        self._delayed.failed(key, code)


def _find(
    replicas: "ReplicaManager", topic: str, number: int, offset: int, context: RequestContext
) -> "tuple[Partition, Offset]":
    partition = replicas.leader(topic, number)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
    if not partition.log.config.delete:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"records of {partition.topic_partition} cannot be deleted: its cleanup.policy has no 'delete'",
        )
    if offset == TO_THE_END:
        return partition, partition.log.log_end_offset
    if offset < 0:
        raise OffsetOutOfRange(f"offset {offset} of {partition.topic_partition} is negative")
    return partition, Offset(offset)
