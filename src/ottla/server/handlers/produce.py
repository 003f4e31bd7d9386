"""Produce (v3-v13): append batches to partitions this broker leads.

acks=0 gets no answer (an error closes the connection, as in Kafka), acks=1 is answered after the append, acks=all
when the high watermark has passed it: after the group commit, unless `flush.before.ack` is off. A consumer that asks
for what acks=1 has acknowledged waits for the group commit instead (ADR 19).
What takes long to check is checked in a thread first (`ottla.server.produced_records`), then what is transactional is
verified (`ottla.server.transactional_produce`). Records that are at fault are named (v8+).
"""

import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import (
    ErrorCode,
    InvalidRecord,
    NotLeader,
    OttlaError,
    OutOfOrderSequence,
    RefusedRecords,
    UnsupportedCompressionType,
)
from ottla.ids import Offset
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records.batch import ATTRIBUTES_AT, COMPRESSION_MASK, HEADER_SIZE, Compression
from ottla.replication.delayed import DelayedProduce
from ottla.replication.refused_producers import SENT_BACK_WITH
from ottla.server.context import Deferred, RequestContext
from ottla.server.framer import BadFrame
from ottla.server.leaders import MOVED, endpoints_of, leader_of
from ottla.server.produced_records import NO_CHECKS, RecordChecks
from ottla.server.transactional_produce import (
    Parts,
    handle_many,
    handle_transactional,
    has_transactional_records,
    keep_records,
)
from ottla.slices import Steps, run_at_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ottla.log.producer_state import Verification
    from ottla.log.validation import CheckedBatches
    from ottla.records.batch import Buffer
    from ottla.replication.partition import Partition
    from ottla.replication.refused_producers import Place
    from ottla.server.produced_records import Checks
    from ottla.server.transactional_produce import Answer, Verdicts

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
LEADER_ONLY = 1
VALID_ACKS = (-1, 0, 1)
TOPIC_IDS_SINCE = 13
LEADERS_NAMED_SINCE = 10
ZSTD_SINCE = 7
MANY: Final = 200
"""Partitions; a request to more is worked on in slices."""
STEP_MASK: Final = 15
MAX_NAMED_FAULTS: Final = 4096
"""Faulty records that an answer names; a batch whose records would be too many is refused as a whole."""
NO_VERDICTS: "Final[Verdicts]" = {}


def handle(parts: Parts, request: ProduceRequest, context: RequestContext) -> "Answer | Coroutine[Any, Any, Answer]":
    """Append everything that can be appended; each partition gets its own answer."""
    _drop_repeated(request)
    checks = RecordChecks(parts, request, by_id=context.api_version >= TOPIC_IDS_SINCE)
    if not checks.are_needed:
        return _append_checked(parts, request, context, NO_CHECKS)
    found = checks.at_once()
    if found is not None:
        return _append_checked(parts, request, context, found)
    checks.keep()
    return _append_later(parts, request, context, checks, context.hold_connection())


async def _append_later(
    parts: Parts,
    request: ProduceRequest,
    context: RequestContext,
    checks: RecordChecks,
    release: "Callable[[], None]",
) -> "Answer":
    try:
        answer = _append_checked(parts, request, context, await checks.in_thread())
        if isinstance(answer, Coroutine):
            answer = await answer
    finally:
        release()
    del request, checks  # what was sent is not needed while its replicas are waited for
    return answer


def _append_checked(
    parts: Parts, request: ProduceRequest, context: RequestContext, checks: "Checks"
) -> "Answer | Coroutine[Any, Any, Answer]":
    if not context.is_large or sum(len(topic.partition_data) for topic in request.topic_data) <= MANY:
        append_all = partial(_append_all, parts, checks=checks)
        if has_transactional_records(request):
            return handle_transactional(parts, request, context, append_all)
        return append_all(request, context, NO_VERDICTS)
    keep_records(request)
    append_many = partial(_append_many, parts, checks=checks)
    if has_transactional_records(request):
        return handle_many(parts, request, context, append_many, context.hold_connection())
    return _release_after(append_many(request, context, NO_VERDICTS), context.hold_connection())


def _append_many(
    parts: Parts, request: ProduceRequest, context: RequestContext, verdicts: "Verdicts", *, checks: "Checks"
) -> "Coroutine[Any, Any, Answer]":
    return parts.slices.run(_append_steps(parts, request, context, verdicts, checks=checks))


async def _release_after(appended: "Coroutine[Any, Any, Answer]", release: "Callable[[], None]") -> "Answer":
    """Append with the connection held, so that no later request overtakes the rest of this one."""
    try:
        return await appended
    finally:
        release()


def _drop_repeated(request: ProduceRequest) -> None:
    """The last records count of a partition that is named more than once, as in Kafka; it gets one answer."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return
    last = {(topic.name, topic.topic_id, data.index): data for topic in topics for data in topic.partition_data}
    if len(last) == sum(len(topic.partition_data) for topic in topics):
        return
    for topic in topics:
        topic.partition_data = [
            data for data in topic.partition_data if last[topic.name, topic.topic_id, data.index] is data
        ]
    request.topic_data = [topic for topic in topics if topic.partition_data]


def _append_all(
    parts: Parts, request: ProduceRequest, context: RequestContext, verdicts: "Verdicts", *, checks: "Checks"
) -> "Answer":
    return run_at_once(_append_steps(parts, request, context, verdicts, checks=checks))


def _append_steps(
    parts: Parts, request: ProduceRequest, context: RequestContext, verdicts: "Verdicts", *, checks: "Checks"
) -> "Steps[Answer]":
    """A partition that is waited for is registered in the step that appended: its waiters stand in the log's order."""
    acks = request.acks
    answers: list[PartitionProduceResponse] = []
    waiting: dict[int, Partition] = {}
    deferred: Deferred[ProduceResponse | None] = Deferred()
    topics: list[TopicProduceResponse] = []
    response = ProduceResponse(responses=topics)
    named_faults = MAX_NAMED_FAULTS
    replicas = parts.replicas

    def finish(uncommitted: dict[int, ErrorCode]) -> None:
        for key, code in uncommitted.items():
            answer = answers[key]
            answer.error_code = code
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            if code in MOVED:
                _name_leader(parts, answer, waiting[key].topic_partition.topic, context)
        _name_endpoints(parts, response, answers, context)
        deferred.complete(response)

    delayed: DelayedProduce | None = None
    for number, topic in enumerate(request.topic_data):
        name = replicas.topic_name(topic.topic_id) if context.api_version >= TOPIC_IDS_SINCE else topic.name
        of_topic = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(
                index=data.index, error_code=ErrorCode.NONE, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
            )
            verdict = verdicts.get((number, data.index)) if verdicts else None
            checked = checks.get((number, data.index)) if checks else None
            place = (topic.topic_id if context.api_version >= TOPIC_IDS_SINCE else topic.name, data.index)
            try:
                if isinstance(verdict, OttlaError):
                    raise verdict
                if acks not in VALID_ACKS:
                    answer.error_code = ErrorCode.INVALID_REQUIRED_ACKS
                elif name is None:
                    is_known = parts.metadata.is_known
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER
                    replicas.sent_back.add(place, data.records, parts.loop.time())
                else:
                    partition, end = _append(parts, name, place, data, request, context, answer, verdict, checked)
                    if acks == ALL_IN_SYNC:
                        if partition.high_watermark < end:
                            waiting[len(answers)] = partition
                            delayed = delayed or DelayedProduce(
                                None, request.timeout_ms / 1000, replicas.timeouts, finish
                            )
                            delayed.expect(len(answers))
                            partition.when_committed(end, len(answers), delayed)
                    elif acks == LEADER_ONLY:
                        partition.acknowledged_end = end
            except OttlaError as error:
                answer.error_code = error.code
                answer.error_message = str(error)
                if isinstance(error, RefusedRecords) and len(error.records) <= named_faults:
                    named_faults -= len(error.records)
                    answer.record_errors = [
                        BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=why)
                        for record, why in error.records
                    ]
                if error.code in MOVED and name is not None:
                    _name_leader(parts, answer, name, context)
                if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    log.exception("produce to %s-%d failed", name, data.index)
            of_topic.append(answer)
            answers.append(answer)
            if len(answers) & STEP_MASK == 0:
                yield
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=of_topic))
    if acks == 0:
        for answer in answers:
            if answer.error_code:
                raise BadFrame(
                    f"a produce with acks=0 failed with {ErrorCode(answer.error_code).name}: {answer.error_message}"
                )
        return None
    if delayed is None:
        _name_endpoints(parts, response, answers, context)
        return response
    delayed.complete()
    return deferred


def _is_zstd(records: "Buffer") -> bool:
    return len(records) >= HEADER_SIZE and records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == Compression.ZSTD


def _name_leader(parts: Parts, answer: PartitionProduceResponse, topic: str, context: RequestContext) -> None:
    """Name the leader in the response, so that the client need not ask for metadata first (KIP-951)."""
    found = leader_of(parts.metadata, topic, answer.index) if context.api_version >= LEADERS_NAMED_SINCE else None
    if found is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.leader_epoch)


def _name_endpoints(
    parts: Parts, response: ProduceResponse, answers: list[PartitionProduceResponse], context: RequestContext
) -> None:
    leaders = {answer.current_leader.leader_id for answer in answers if answer.current_leader is not None}
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=leader, host=host, port=port, rack=rack)
            for leader, host, port, rack in endpoints_of(parts.metadata, leaders, context)
        ]


def _check_sent_back(parts: Parts, partition: "Partition", place: "Place", data: PartitionProduceData) -> None:
    """Raise `NotLeader` for a batch behind one that was sent back a moment ago, and is to come again."""
    sent_back, now = parts.replicas.sent_back, parts.loop.time()
    if sent_back.is_missing(place, data.records, partition.log.producer_state.producers, now):
        raise NotLeader(
            f"{partition.topic_partition} could not take the batch before this one: both are to be sent again"
        )


def _append(
    parts: Parts,
    topic: str,
    place: "Place",
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    answer: PartitionProduceResponse,
    verification: "Verification | None",
    checked: "CheckedBatches | OttlaError | None",
) -> "tuple[Partition, Offset]":
    replicas = parts.replicas
    try:
        partition = replicas.for_produce(topic, data.index, request.acks, context.client_id)
    except OttlaError as error:
        if error.code in SENT_BACK_WITH:
            replicas.sent_back.add(place, data.records, parts.loop.time())
        raise
    if replicas.sent_back:
        _check_sent_back(parts, partition, place, data)
    if data.records is None:
        raise InvalidRecord("no record batch was sent")
    if context.api_version < ZSTD_SINCE and _is_zstd(data.records):
        raise UnsupportedCompressionType(f"produce requests may hold zstd from version {ZSTD_SINCE} on")
    if isinstance(checked, OttlaError):
        raise checked
    try:
        info = partition.append(
            data.records,
            verification=verification,
            require_verification=parts.verifier.verifies,
            checked=checked,
        )
    except OutOfOrderSequence as gap:
        if replicas.holds_session():
            raise
        # what is missing here another broker may have, which leads by now: a producer would take it for lost
        raise NotLeader(f"broker {parts.config.node_id} no longer leads {topic}-{data.index}") from gap
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = info.log_start_offset
    return partition, Offset(info.last_offset + 1)
