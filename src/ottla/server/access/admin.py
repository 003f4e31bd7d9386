"""Guards of requests about topics, settings, transactions and the cluster."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message
from ottla.security.acls import CLUSTER_NAME
from ottla.security.authorization import Operation, ResourceType
from ottla.server.access.access import Access, Verdict, take_out
from ottla.server.access.whole import MESSAGES, refusal
from ottla.server.failures import failed_items, failed_share_state

if TYPE_CHECKING:
    from ottla.server.context import RequestContext

TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NULL_ASKS_FOR_ALL_SINCE = 1
TOPIC_IDS_SINCE = 6
"""The version of DeleteTopics since which topics have ids."""
RESULT_CODE_SINCE = 1
"""The version of ElectLeaders since which its answer has an error of its own."""


# -- metadata ------------------------------------------------------------------------------------------------------


def metadata(access: Access, request: MetadataRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each topic, and CREATE on those that are to be created. A request for all gets what it may see."""
    asked = request.topics
    if asked is None or (not asked and context.api_version < NULL_ASKS_FOR_ALL_SINCE):
        request.topics = [
            MetadataRequestTopic(name=name)
            for name in access.metadata.image.topics
            if access.sees(ResourceType.TOPIC, name)
        ]
        if not request.topics and context.api_version < NULL_ASKS_FOR_ALL_SINCE:
            # An empty list would ask for all: ask for none by a name that is not one.
            request.topics = [MetadataRequestTopic(name="")]
            return _with_operations(access, request, [], nothing_else=True)
        return _with_operations(access, request, [])

    def may(topic: MetadataRequestTopic) -> bool:
        name = access.name_of(topic.name, topic.topic_id)
        return name is None or (access.may_topic(Operation.DESCRIBE, name) and not _creates(access, request, name))

    refused = [
        MetadataResponseTopic(
            error_code=TOPIC_REFUSED,
            name=topic.name if topic.topic_id == NULL_UUID else None,
            topic_id=topic.topic_id,
            is_internal=topic.topic_id == NULL_UUID and topic.name in INTERNAL_TOPICS,
            partitions=[],
        )
        for topic in take_out(asked, may)
    ]
    if not asked and context.api_version < NULL_ASKS_FOR_ALL_SINCE:
        request.topics = [MetadataRequestTopic(name="")]
        return _with_operations(access, request, refused, nothing_else=True)
    return _with_operations(access, request, refused)


def _creates(access: Access, request: MetadataRequest, name: str) -> bool:
    """Whether the request would create a topic, and the client has no right to."""
    return (
        request.allow_auto_topic_creation
        and access.metadata.config.auto_create_topics_enable
        and TopicName(name) not in access.metadata.image.topics
        and not access.may_create(name)
    )


def _with_operations(
    access: Access, request: MetadataRequest, refused: list[MetadataResponseTopic], *, nothing_else: bool = False
) -> Verdict:
    def complete(answer: MetadataResponse) -> None:
        if nothing_else:
            answer.topics = []
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = _cluster_operations(access)
        if request.include_topic_authorized_operations:
            for topic in answer.topics:
                if topic.name is not None and topic.error_code == ErrorCode.NONE:
                    topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        answer.topics.extend(refused)

    return complete


def _cluster_operations(access: Access) -> int:
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME) if access.has_cluster(Operation.DESCRIBE) else 0


def describe_topic_partitions(
    access: Access, request: DescribeTopicPartitionsRequest, context: "RequestContext"
) -> Verdict:
    """DESCRIBE on each topic. A request for all gets what it may see."""
    asks_for_all = not request.topics
    if asks_for_all:
        request.topics = [TopicRequest(name=name) for name in access.metadata.image.topics]
    may = access.sees if asks_for_all else partial(access.may, Operation.DESCRIBE)
    refused = take_out(request.topics, lambda topic: may(ResourceType.TOPIC, topic.name))
    first = "" if request.cursor is None else request.cursor.topic_name
    answers = [
        DescribeTopicPartitionsResponseTopic(
            error_code=TOPIC_REFUSED, name=topic.name, topic_id=NULL_UUID, partitions=[]
        )
        for topic in refused
        if not asks_for_all and topic.name >= first
    ]
    if not request.topics:
        return DescribeTopicPartitionsResponse(topics=answers)

    def complete(answer: DescribeTopicPartitionsResponse) -> None:
        for topic in answer.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        answer.topics.extend(answers)

    return complete


def describe_cluster(access: Access, request: DescribeClusterRequest, context: "RequestContext") -> Verdict:
    """Nothing; the list of what the client may do with the cluster requires DESCRIBE on it."""
    if not request.include_cluster_authorized_operations:
        return None

    def complete(answer: DescribeClusterResponse) -> None:
        answer.cluster_authorized_operations = _cluster_operations(access)

    return complete


# -- topics --------------------------------------------------------------------------------------------------------


def create_topics(access: Access, request: CreateTopicsRequest, context: "RequestContext") -> Verdict:
    """CREATE on the cluster or on each topic; DESCRIBE_CONFIGS on a topic to see its settings in the answer."""
    often = Counter(topic.name for topic in request.topics)

    def may(name: str) -> bool:
        return often[name] > 1 or access.may_topic(Operation.CREATE, name)

    refused = [] if access.has_cluster(Operation.CREATE) else take_out(request.topics, lambda topic: may(topic.name))
    answers = [
        CreatableTopicResult(name=topic.name, error_code=TOPIC_REFUSED, error_message="Authorization failed.")
        for topic in refused
    ]

    def complete(answer: CreateTopicsResponse) -> None:
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE and not access.may_topic(Operation.DESCRIBE_CONFIGS, topic.name):
                topic.topic_config_error_code = TOPIC_REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        answer.topics.extend(answers)

    return complete


def delete_topics(access: Access, request: DeleteTopicsRequest, context: "RequestContext") -> Verdict:
    """DELETE on the cluster or on each topic. Names of topics that the client may not describe are kept back."""
    if access.has_cluster(Operation.DELETE):
        return None
    refused: list[DeletableTopicResult] = []

    def refuse(name: str | None, state: DeleteTopicState) -> None:
        message = MESSAGES[TOPIC_REFUSED]
        refused.append(
            DeletableTopicResult(name=name, topic_id=state.topic_id, error_code=TOPIC_REFUSED, error_message=message)
        )

    def may(state: DeleteTopicState) -> bool:
        name = access.name_of(state.name, state.topic_id)
        if name is None or (access.may_topic(Operation.DELETE, name)):
            return True
        refuse(name if state.name is not None or access.sees(ResourceType.TOPIC, name) else None, state)
        return False

    if context.api_version >= TOPIC_IDS_SINCE:
        request.topics = [state for state in request.topics if may(state)]
    else:
        request.topic_names = [
            name for name in request.topic_names if may(DeleteTopicState(name=name, topic_id=NULL_UUID))
        ]

    def complete(answer: DeleteTopicsResponse) -> None:
        answer.responses.extend(refused)

    return complete if refused else None


def create_partitions(access: Access, request: CreatePartitionsRequest, context: "RequestContext") -> Verdict:
    """ALTER on each topic."""
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.ALTER, topic.name))
    answers = [
        CreatePartitionsTopicResult(name=name, error_code=TOPIC_REFUSED, error_message=None)
        for name in dict.fromkeys(topic.name for topic in refused)
    ]

    def complete(answer: CreatePartitionsResponse) -> None:
        answer.results.extend(answers)

    return complete if answers else None


# -- producers and transactions ------------------------------------------------------------------------------------


def describe_producers(access: Access, request: DescribeProducersRequest, context: "RequestContext") -> Verdict:
    """READ on each topic."""
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.READ, topic.name))
    answers = [
        TopicResponse(
            name=topic.name,
            partitions=[
                PartitionResponse(
                    partition_index=number,
                    error_code=TOPIC_REFUSED,
                    error_message=MESSAGES[TOPIC_REFUSED],
                    active_producers=[],
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in refused
    ]

    def complete(answer: DescribeProducersResponse) -> None:
        answer.topics.extend(answers)

    return complete if answers else None


def describe_transactions(access: Access, request: DescribeTransactionsRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each transactional id; topics without DESCRIBE are left out."""
    refused = take_out(
        request.transactional_ids, lambda name: access.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
    )
    answers = [
        TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
        for name in refused
    ]

    def complete(answer: DescribeTransactionsResponse) -> None:
        for state in answer.transaction_states:
            state.topics = [topic for topic in state.topics if access.sees(ResourceType.TOPIC, topic.topic)]
        answer.transaction_states.extend(answers)

    return complete


def list_transactions(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """DESCRIBE on each transactional id; others are left out."""

    def complete(answer: ListTransactionsResponse) -> None:
        answer.transaction_states = [
            state
            for state in answer.transaction_states
            if access.sees(ResourceType.TRANSACTIONAL_ID, state.transactional_id)
        ]

    return complete


# -- refusals of what the cluster's rights guard, where the answer has no error of its own --------------------------


def refused_log_dirs(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """The answer without ALTER on the cluster."""
    partitions: dict[str, list[int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            partitions.setdefault(topic.name, []).extend(topic.partitions)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=number, error_code=CLUSTER_REFUSED)
                    for number in numbers
                ],
            )
            for name, numbers in partitions.items()
        ]
    )


def refused_log_dir_listing(_: Any) -> DescribeLogDirsResponse:
    """The answer without DESCRIBE on the cluster; up to version 2 nothing but an empty list."""
    return DescribeLogDirsResponse(error_code=CLUSTER_REFUSED, results=[])


def refused_share_state(request: Any) -> Message:
    """The answer without CLUSTER_ACTION on the cluster."""
    return failed_share_state(request, CLUSTER_REFUSED, MESSAGES[CLUSTER_REFUSED])


def refused_items(request: Any) -> Message:
    """The answer without a right to the cluster, where each thing that would be changed has an answer of its own, and
    nothing else, in every version."""
    answer = failed_items(request, 0, CLUSTER_REFUSED, MESSAGES[CLUSTER_REFUSED])
    assert answer is not None
    return answer


def refused_markers(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """The answer without ALTER or CLUSTER_ACTION on the cluster."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=number, error_code=CLUSTER_REFUSED)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def elect_leaders(access: Access, request: ElectLeadersRequest, context: "RequestContext") -> Verdict:
    """ALTER on the cluster."""
    if access.may_cluster(Operation.ALTER):
        return None
    if context.api_version >= RESULT_CODE_SINCE:
        return refusal(context, CLUSTER_REFUSED)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=number, error_code=CLUSTER_REFUSED, error_message=MESSAGES[CLUSTER_REFUSED]
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
    )
