"""Produce (v3-v13): append batches to partitions this broker leads.

acks=0 gets no answer (an error closes the connection, as in Kafka), acks=1 is answered after the append, acks=all
when the high watermark has passed it: after the group commit, unless `flush.before.ack` is off. A consumer that asks
for what acks=1 has acknowledged waits for the group commit instead (ADR 19).
What is transactional is verified first (`ottla.server.transactional_produce`).
"""

import logging
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, InvalidRecord, NotLeader, OttlaError, OutOfOrderSequence
from ottla.ids import Offset
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.replication.delayed import DelayedProduce
from ottla.server.connection import BadFrame
from ottla.server.context import Deferred, RequestContext
from ottla.server.leaders import MOVED, endpoints_of, leader_of
from ottla.server.transactional_produce import handle_transactional, has_transactional_records

if TYPE_CHECKING:
    from ottla.log.producer_state import Verification
    from ottla.replication.partition import Partition
    from ottla.server.transactional_produce import Answer, Verdicts

log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
LEADER_ONLY = 1
VALID_ACKS = (-1, 0, 1)
TOPIC_IDS_SINCE = 13
LEADERS_NAMED_SINCE = 10
NO_VERDICTS: "Final[Verdicts]" = {}


def handle(request: ProduceRequest, context: RequestContext) -> "Answer":
    """Append everything that can be appended; each partition gets its own answer."""
    if has_transactional_records(request):
        return handle_transactional(request, context, _append_all)
    return _append_all(request, context, NO_VERDICTS)


def _append_all(request: ProduceRequest, context: RequestContext, verdicts: "Verdicts") -> "Answer":
    acks = request.acks
    answers: list[PartitionProduceResponse] = []
    waiting: dict[int, tuple[Partition, Offset]] = {}
    topics: list[TopicProduceResponse] = []
    replicas = context.broker.replicas
    for number, topic in enumerate(request.topic_data):
        name = replicas.topic_name(topic.topic_id) if context.api_version >= TOPIC_IDS_SINCE else topic.name
        of_topic = []
        for data in topic.partition_data:
            answer = PartitionProduceResponse(
                index=data.index, error_code=ErrorCode.NONE, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
            )
            verdict = verdicts.get((number, data.index)) if verdicts else None
            try:
                if isinstance(verdict, OttlaError):
                    raise verdict
                if acks not in VALID_ACKS:
                    answer.error_code = ErrorCode.INVALID_REQUIRED_ACKS
                elif name is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    partition, end = _append(name, data, request, context, answer, verdict)
                    if acks == ALL_IN_SYNC:
                        if partition.high_watermark < end:
                            waiting[len(answers)] = (partition, end)
                    elif acks == LEADER_ONLY:
                        partition.acknowledged_end = end
            except OttlaError as error:
                answer.error_code = error.code
                answer.error_message = str(error)
                if error.code in MOVED and name is not None:
                    _name_leader(answer, name, context)
                if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    log.exception("produce to %s-%d failed", name, data.index)
            of_topic.append(answer)
            answers.append(answer)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=of_topic))
    if acks == 0:
        for answer in answers:
            if answer.error_code:
                raise BadFrame(
                    f"a produce with acks=0 failed with {ErrorCode(answer.error_code).name}: {answer.error_message}"
                )
        return None
    response = ProduceResponse(responses=topics)
    if not waiting:
        _name_endpoints(response, answers, context)
        return response

    deferred: Deferred[ProduceResponse | None] = Deferred()

    def finish(uncommitted: dict[int, ErrorCode]) -> None:
        for key, code in uncommitted.items():
            answer = answers[key]
            answer.error_code = code
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            if code in MOVED:
                _name_leader(answer, waiting[key][0].topic_partition.topic, context)
        _name_endpoints(response, answers, context)
        deferred.complete(response)

    delayed = DelayedProduce(set(waiting), request.timeout_ms / 1000, context.broker.loop, finish)
    for key, (partition, end) in waiting.items():
        partition.when_committed(end, key, delayed)
    return deferred


def _name_leader(answer: PartitionProduceResponse, topic: str, context: RequestContext) -> None:
    """Say in the answer who leads, so that the client need not ask for metadata first (KIP-951)."""
    found = leader_of(topic, answer.index, context) if context.api_version >= LEADERS_NAMED_SINCE else None
    if found is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.leader_epoch)


def _name_endpoints(
    response: ProduceResponse, answers: list[PartitionProduceResponse], context: RequestContext
) -> None:
    leaders = {answer.current_leader.leader_id for answer in answers if answer.current_leader is not None}
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=leader, host=host, port=port, rack=rack)
            for leader, host, port, rack in endpoints_of(leaders, context)
        ]


def _append(
    topic: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    answer: PartitionProduceResponse,
    verification: "Verification | None",
) -> "tuple[Partition, Offset]":
    replicas = context.broker.replicas
    partition = replicas.for_produce(topic, data.index, request.acks, context.client_id)
    if data.records is None:
        raise InvalidRecord("no record batch was sent")
    try:
        info = partition.append(
            data.records, verification=verification, require_verification=context.broker.verifier.verifies
        )
    except OutOfOrderSequence as gap:
        if replicas.holds_session():
            raise
        # what is missing here another broker may have, which leads by now: a producer would take it for lost
        raise NotLeader(f"broker {context.broker.config.node_id} may lead {topic}-{data.index} no more") from gap
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = info.log_start_offset
    return partition, Offset(info.last_offset + 1)
