"""ListOffsets (v1-v10): the offset at a time, at either end, or of the largest timestamp.

Special times: -1 latest (last stable offset under read_committed), -2 earliest, -3 largest timestamp (KIP-734),
-4 earliest kept locally (KIP-405; here the same as -2), -5 latest in remote storage (KIP-1005; there is none: -1).
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.delayed import FutureCommit
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
READ_COMMITTED: Final = 1
LEADER_EPOCHS_SINCE: Final = 4
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
PATIENCE_SECONDS: Final = 5.0
"""How long a request waits for the disk, after a crash, before it is told to ask again."""

Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch, each -1 where there is none."""

NOTHING: Final[Found] = (-1, -1, -1)


def handle(
    request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Each partition on its own; one that is asked for twice is refused, as in Kafka.

    What a crash has left is synced first: until then the end that clients knew before may not be known again.
    """
    unknown = [
        partition
        for topic in request.topics
        for wanted in topic.partitions
        if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL)
        and (partition := context.broker.replicas.find(topic.name, wanted.partition_index)) is not None
        and not partition.knows_its_end
    ]
    if unknown:
        return _handle_when_known(unknown, request, context)
    return _answer(request, context)


async def _handle_when_known(
    unknown: "list[Partition]", request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    waiting = []
    for partition in unknown:
        waiter = FutureCommit(context.broker.loop)
        partition.when_end_known(waiter)
        waiting.append(waiter.future)
    await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
    for future in waiting:
        if future.done():
            future.exception()  # not committed after all: the answer says so
    return _answer(request, context)


def _answer(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    asked = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    version = context.api_version
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)
            try:
                if asked[topic.name, wanted.partition_index] > 1:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                else:
                    partition = context.broker.replicas.for_fetch(
                        topic.name, wanted.partition_index, wanted.current_leader_epoch
                    )
                    answer.timestamp, answer.offset, leader_epoch = _find(request, wanted, partition, version)
                    if version >= LEADER_EPOCHS_SINCE:
                        answer.leader_epoch = leader_epoch
            except OttlaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(request: ListOffsetsRequest, wanted: ListOffsetsPartition, partition: "Partition", version: int) -> Found:
    log = partition.log
    bound = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    timestamp = wanted.timestamp
    if timestamp == LATEST:
        if not partition.knows_its_end:
            raise _not_yet(partition, version)
        return -1, bound, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.leader_epochs.epoch_of(log.log_start_offset)
    if timestamp == LATEST_TIERED:
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp()
    elif timestamp >= 0:
        found = log.offset_for_timestamp(timestamp)
    else:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in ListOffsets")
    if found is None or found.offset >= bound:
        if found is not None and not partition.knows_its_end:
            raise _not_yet(partition, version)
        return NOTHING
    return found.timestamp_ms, found.offset, found.leader_epoch


def _not_yet(partition: "Partition", version: int) -> ApiError:
    """To be asked again in a moment (KIP-207): just started, and what the log ended with is being made durable."""
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= OFFSET_NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
    return ApiError(code, f"the end of {partition.topic_partition} is not known yet")
