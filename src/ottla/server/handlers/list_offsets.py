"""ListOffsets (v1-v11): the offset at a time, at either end, or of the largest timestamp.

Special times: -1 latest (last stable offset under read_committed), -2 earliest, -3 largest timestamp (KIP-734),
-4 earliest kept locally (KIP-405; here the same as -2), -5 latest in remote storage (KIP-1005; there is none: -1),
-6 earliest that remote storage does not have yet (KIP-1023; nothing is stored there: -1).
A follower asks for the end of the leader's log, committed or not. With replica id -2 the request is about this
broker's own log, whichever broker leads: that is how tools see how far replicas are apart.
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
from ottla.slices import Steps

if TYPE_CHECKING:
    import asyncio

    from ottla.log.time_lookup import FoundOffset
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition
    from ottla.slices import Slices

CONSUMER: Final = -1
ANY_REPLICA: Final = -2
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
READ_COMMITTED: Final = 1
LEADER_EPOCHS_SINCE: Final = 4
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
TIMEOUT_S: Final = 5.0
"""How long a request waits for the disk, after a crash, before it gets a retriable error."""

Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch, each -1 where there is none."""

NOTHING: Final[Found] = (-1, -1, -1)

SERVED_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The version that brought a special time; the first two have always been there."""

Searched = dict[tuple[str, int], "FoundOffset | OttlaError | None"]
"""By topic and partition, what a search by time has found, or why it failed."""


def handle(
    loop: "asyncio.AbstractEventLoop",
    replicas: "ReplicaManager",
    slices: "Slices",
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Each partition on its own; one that is asked for twice is refused, as in Kafka.

    What a crash has left is synced first: until then the end that clients knew before may not be known again; so is
    what was acknowledged with acks=1. Searches by time are for threads, since they read files.
    """
    unknown: list[Partition] = []
    searches: list[tuple[Partition, int]] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = replicas.find(topic.name, wanted.partition_index)
            if partition is None or request.replica_id >= 0:
                continue
            if request.replica_id == CONSUMER and not partition.leading:
                continue
            if _needs_end(request, wanted) and (partition.owes_visibility or not partition.has_reached_epoch_start):
                unknown.append(partition)
            if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
                searches.append((partition, wanted.timestamp))
    if unknown or searches:
        return _answer_later(loop, replicas, slices, unknown, searches, request, context)
    return slices.start(_answer(replicas, request, context, {}))


def _needs_end(request: ListOffsetsRequest, wanted: ListOffsetsPartition) -> bool:
    return request.replica_id == CONSUMER and wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL)


async def _answer_later(
    loop: "asyncio.AbstractEventLoop",
    replicas: "ReplicaManager",
    slices: "Slices",
    unknown: "list[Partition]",
    searches: "list[tuple[Partition, int]]",
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsResponse:
    if unknown:
        await _until_known(loop, unknown, context)
    threads = replicas.threads.searches
    searched = await loop.run_in_executor(threads, _search, searches) if searches else {}
    return await slices.run(_answer(replicas, request, context, searched))


async def _until_known(loop: "asyncio.AbstractEventLoop", unknown: "list[Partition]", context: RequestContext) -> None:
    waiting = []
    for partition in unknown:
        waiter = FutureCommit(loop)
        if partition.has_reached_epoch_start:
            partition.when_visible(waiter)
        else:
            partition.when_epoch_start_reached(waiter)
        waiting.append(waiter.future)
    await asyncio.wait(waiting, timeout=TIMEOUT_S)
    for future in waiting:
        if not future.cancel():
            future.exception()  # not committed after all: the response carries the error


def _search(searches: "list[tuple[Partition, int]]") -> Searched:
    searched: Searched = {}
    for partition, timestamp in searches:
        log = partition.log
        try:
            found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        except OttlaError as error:
            searched[partition.topic_partition] = error
        else:
            searched[partition.topic_partition] = found
    return searched


def _answer(
    replicas: "ReplicaManager", request: ListOffsetsRequest, context: RequestContext, searched: Searched
) -> Steps[ListOffsetsResponse]:
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
                    partition = replicas.for_fetch(
                        topic.name,
                        wanted.partition_index,
                        wanted.current_leader_epoch,
                        from_leader=request.replica_id != ANY_REPLICA,
                    )
                    answer.timestamp, answer.offset, leader_epoch = _find(
                        request, wanted, partition, version, searched.get((topic.name, wanted.partition_index))
                    )
                    if version >= LEADER_EPOCHS_SINCE:
                        answer.leader_epoch = leader_epoch
            except OttlaError as error:
                answer.error_code = error.code
            answers.append(answer)
            yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(
    request: ListOffsetsRequest,
    wanted: ListOffsetsPartition,
    partition: "Partition",
    version: int,
    found: "FoundOffset | OttlaError | None",
) -> Found:
    log = partition.log
    timestamp = wanted.timestamp
    if request.replica_id != CONSUMER and timestamp == LATEST:
        return -1, log.log_end_offset, partition.leader_epoch
    if request.replica_id == ANY_REPLICA:
        bound = log.log_end_offset
    else:
        bound = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    if timestamp < EARLIEST_PENDING_UPLOAD or version < SERVED_SINCE.get(timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in version {version}")
    if timestamp == LATEST:
        if not partition.has_reached_epoch_start:
            raise _not_yet(partition, version)
        return -1, bound, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        is_empty = log.log_start_offset == log.log_end_offset
        epoch = partition.leader_epoch if is_empty else log.leader_epochs.epoch_of(log.log_start_offset)
        return -1, log.log_start_offset, epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if isinstance(found, OttlaError):
        raise found
    if found is None or found.offset >= bound:
        if found is not None and _needs_end(request, wanted) and not partition.has_reached_epoch_start:
            raise _not_yet(partition, version)
        return NOTHING
    return found.timestamp_ms, found.offset, found.leader_epoch


def _not_yet(partition: "Partition", version: int) -> ApiError:
    """To be asked again in a moment (KIP-207): just started, and what the log ended with is being made durable."""
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= OFFSET_NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
    return ApiError(code, f"the end of {partition.topic_partition} is not known yet")
