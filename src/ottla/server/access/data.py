"""Guards of requests that read and write records, offsets and transactions."""

from typing import TYPE_CHECKING, Any

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.security.authorization import Operation, ResourceType
from ottla.server.access.access import Access, Verdict, take_out
from ottla.server.access.whole import MESSAGES, refusal
from ottla.server.framer import BadFrame
from ottla.server.transactional_produce import has_transactional_records

if TYPE_CHECKING:
    from ottla.server.context import RequestContext

TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BROKERS_ADD_SINCE = 4
"""The version of AddPartitionsToTxn since which brokers send it."""


def produce(access: Access, request: ProduceRequest, context: "RequestContext") -> Verdict:
    """WRITE on each topic, and on the transactional id if there are transactional records."""
    if has_transactional_records(request):
        transactional_id = request.transactional_id
        if transactional_id is None or not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            refused, request.topic_data = request.topic_data, []
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _refused_produce(refused, code, request)

    def may(topic: TopicProduceData) -> bool:
        name = access.name_of(topic.name, topic.topic_id)
        return name is None or access.may_topic(Operation.WRITE, name)

    refused = take_out(request.topic_data, may)
    if not refused:
        return None
    if not request.topic_data:
        return _refused_produce(refused, TOPIC_REFUSED, request)
    answers = _refused_produce(refused, TOPIC_REFUSED, request).responses

    def complete(answer: ProduceResponse) -> None:
        answer.responses.extend(answers)

    return complete


def _refused_produce(refused: list[TopicProduceData], code: ErrorCode, request: ProduceRequest) -> ProduceResponse:
    """The answers of the topics that are refused. Raises `BadFrame` if the client waits for none: that closes."""
    if request.acks == 0:
        raise BadFrame(f"records without a right to write them, sent with acks=0 ({code.name})")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1, error_message=MESSAGES[code]
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in refused
        ]
    )


def fetch(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """READ on each topic of the session, or CLUSTER_ACTION for a follower: the handler asks whenever it looks."""
    context.access = access
    return None


def list_offsets(access: Access, request: ListOffsetsRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each topic."""
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.DESCRIBE, topic.name))
    if not refused:
        return None
    answers = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=TOPIC_REFUSED)
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]

    def complete(answer: ListOffsetsResponse) -> None:
        answer.topics.extend(answers)

    return complete


def offset_for_leader_epoch(access: Access, request: OffsetForLeaderEpochRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each topic, or CLUSTER_ACTION."""
    if access.has_cluster(Operation.CLUSTER_ACTION):
        return None
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.DESCRIBE, topic.topic))
    if not refused:
        return None
    answers = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                EpochEndOffset(partition=partition.partition, error_code=TOPIC_REFUSED)
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]

    def complete(answer: OffsetForLeaderEpochResponse) -> None:
        answer.topics.extend(answers)

    return complete


def delete_records(access: Access, request: DeleteRecordsRequest, context: "RequestContext") -> Verdict:
    """DELETE on each topic."""
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.DELETE, topic.name))
    if not refused:
        return None
    answers = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index, low_watermark=-1, error_code=TOPIC_REFUSED
                )
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]

    def complete(answer: DeleteRecordsResponse) -> None:
        answer.topics.extend(answers)

    return complete


def init_producer_id(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE, or WRITE on any topic."""
    if request.transactional_id is not None:
        if access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return None
        return refusal(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if access.may_any_topic(Operation.WRITE) or access.may_cluster(Operation.IDEMPOTENT_WRITE):
        return None
    return refusal(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def add_partitions_to_txn(access: Access, request: AddPartitionsToTxnRequest, context: "RequestContext") -> Verdict:
    """CLUSTER_ACTION of a broker; of a client WRITE on the transactional id, and on each topic: all or none."""
    if context.api_version >= BROKERS_ADD_SINCE:
        if access.may_cluster(Operation.CLUSTER_ACTION):
            return None
        return refusal(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = request.v3_and_below_topics
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _added({topic.name: code for topic in topics}, topics)
    refused = [
        topic.name
        for topic in topics
        if topic.name in INTERNAL_TOPICS or not access.may_topic(Operation.WRITE, topic.name)
    ]
    if not refused:
        return None
    known = access.metadata.image.topics
    codes = {
        topic.name: TOPIC_REFUSED
        if topic.name in refused
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        if TopicName(topic.name) in known
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in topics
    }
    return _added(codes, topics)


def _added(codes: dict[str, ErrorCode], topics: list[AddPartitionsToTxnTopic]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=codes[topic.name])
                    for number in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def add_offsets_to_txn(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """WRITE on the transactional id, and READ on the group."""
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refusal(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not access.may_group(Operation.READ, request.group_id):
        return refusal(context, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return None


def end_txn(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """WRITE on the transactional id."""
    if access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return None
    return refusal(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
