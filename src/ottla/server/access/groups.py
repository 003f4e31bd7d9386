"""Guards of requests about groups, and the offsets of groups."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.describe_group_history import (
    DescribeGroupHistoryRequest,
    DescribeGroupHistoryResponse,
    GroupHistory,
)
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.share_group_describe import DescribedGroup as ShareGroup
from ottla.protocol.messages.streams_group_describe import DescribedGroup as StreamsGroup
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.security.authorization import Operation, ResourceType
from ottla.server.access.access import Access, Verdict, take_out
from ottla.server.access.whole import MESSAGES, refusal

if TYPE_CHECKING:
    from ottla.server.context import RequestContext

GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUPS_SINCE = 8
"""The version of OffsetFetch since which it names several groups."""
KEYS_SINCE = 4
"""The version of FindCoordinator since which it names several keys."""
KEY_TYPES = {
    0: (Operation.DESCRIBE, ResourceType.GROUP, GROUP_REFUSED),
    1: (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
SHARE_STATE_KEY = 2
HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


# -- offsets -------------------------------------------------------------------------------------------------------


def offset_commit(access: Access, request: OffsetCommitRequest, context: "RequestContext") -> Verdict:
    """READ on the group, and on each topic."""

    def may(topic: OffsetCommitRequestTopic) -> bool:
        name = access.name_of(topic.name, topic.topic_id)
        return name is None or access.may_topic(Operation.READ, name)

    code = TOPIC_REFUSED
    if access.may_group(Operation.READ, request.group_id):
        refused = take_out(request.topics, may)
    else:
        refused, request.topics, code = request.topics, [], GROUP_REFUSED
    answers = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]
    if code is GROUP_REFUSED or (answers and not request.topics):
        return OffsetCommitResponse(topics=answers)

    def complete(answer: OffsetCommitResponse) -> None:
        answer.topics.extend(answers)

    return complete if answers else None


def txn_offset_commit(access: Access, request: TxnOffsetCommitRequest, context: "RequestContext") -> Verdict:
    """WRITE on the transactional id, READ on the group, and on each topic."""
    code = TOPIC_REFUSED
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        refused, code = request.topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not access.may_group(Operation.READ, request.group_id):
        refused, code = request.topics, GROUP_REFUSED
    else:
        refused = take_out(request.topics, lambda topic: access.may_topic(Operation.READ, topic.name))
    answers = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]
    if code is not TOPIC_REFUSED or (answers and not request.topics):
        return TxnOffsetCommitResponse(topics=answers)

    def complete(answer: TxnOffsetCommitResponse) -> None:
        answer.topics.extend(answers)

    return complete if answers else None


def offset_delete(access: Access, request: OffsetDeleteRequest, context: "RequestContext") -> Verdict:
    """DELETE on the group, and READ on each topic."""
    if not access.may_group(Operation.DELETE, request.group_id):
        return refusal(context, GROUP_REFUSED)
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.READ, topic.name))
    answers = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=TOPIC_REFUSED)
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]

    def complete(answer: OffsetDeleteResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            answer.topics.extend(answers)

    return complete if answers else None


def offset_fetch(access: Access, request: OffsetFetchRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each group, and on each topic. A group's list of all its offsets leaves other topics out."""
    if context.api_version < GROUPS_SINCE:
        return _offset_fetch_of_one(access, request, context)
    refused_groups = take_out(request.groups, lambda group: access.may_group(Operation.DESCRIBE, group.group_id))
    answers = [
        OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=GROUP_REFUSED)
        for group in refused_groups
    ]
    refused_topics = {group.group_id: _refused_topics(access, group) for group in request.groups}

    def complete(answer: OffsetFetchResponse) -> None:
        for group in answer.groups:
            group.topics = [topic for topic in group.topics if _may_see(access, topic)]
            if group.error_code == ErrorCode.NONE:
                group.topics.extend(refused_topics.get(group.group_id, ()))
        answer.groups.extend(answers)

    return complete


def _may_see(access: Access, topic: OffsetFetchResponseTopics) -> bool:
    name = access.name_of(topic.name, topic.topic_id)
    return name is None or access.sees(ResourceType.TOPIC, name)


def _refused_topics(access: Access, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    def may(topic: OffsetFetchRequestTopics) -> bool:
        name = access.name_of(topic.name, topic.topic_id)
        return name is None or access.may_topic(Operation.DESCRIBE, name)

    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=number, committed_offset=-1, metadata="", error_code=TOPIC_REFUSED
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in (take_out(group.topics, may) if group.topics is not None else ())
    ]


def _offset_fetch_of_one(access: Access, request: OffsetFetchRequest, context: "RequestContext") -> Verdict:
    if not access.may_group(Operation.DESCRIBE, request.group_id):
        return OffsetFetchResponse(
            topics=[_without_offsets(topic, GROUP_REFUSED) for topic in request.topics or ()]
            if context.api_version <= 1
            else [],
            error_code=GROUP_REFUSED,
        )

    refused = (
        []
        if request.topics is None
        else take_out(request.topics, lambda topic: access.may_topic(Operation.DESCRIBE, topic.name))
    )
    answers = [_without_offsets(topic, TOPIC_REFUSED) for topic in refused]

    def complete(answer: OffsetFetchResponse) -> None:
        answer.topics = [topic for topic in answer.topics if access.sees(ResourceType.TOPIC, topic.name)]
        answer.topics.extend(answers)

    return complete


def _without_offsets(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(partition_index=number, committed_offset=-1, metadata="", error_code=code)
            for number in topic.partition_indexes
        ],
    )


# -- groups --------------------------------------------------------------------------------------------------------


def find_coordinator(access: Access, request: FindCoordinatorRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on the group or transactional id, CLUSTER_ACTION for the state of share groups."""
    if request.key_type == SHARE_STATE_KEY and not access.may_cluster(Operation.CLUSTER_ACTION):
        return refusal_of_coordinators(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, context)
    required = KEY_TYPES.get(request.key_type)
    if required is None:
        return None
    operation, kind, code = required
    if context.api_version < KEYS_SINCE:
        if access.may(operation, kind, request.key):
            return None
        return refusal_of_coordinators(request, code, context)
    refused = take_out(request.coordinator_keys, lambda key: access.may(operation, kind, key))
    answers = [_no_coordinator(key, code) for key in refused]

    def complete(answer: FindCoordinatorResponse) -> None:
        answer.coordinators.extend(answers)

    return complete if answers else None


def refusal_of_coordinators(
    request: FindCoordinatorRequest, code: ErrorCode, context: "RequestContext"
) -> FindCoordinatorResponse:
    """The answer that gives no coordinator."""
    if context.api_version < KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=MESSAGES[code], node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(coordinators=[_no_coordinator(key, code) for key in request.coordinator_keys])


def _no_coordinator(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=MESSAGES[code])


def list_groups(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """DESCRIBE on the cluster; without it the groups on which the client has DESCRIBE are listed."""
    if access.has_cluster(Operation.DESCRIBE):
        return None

    def complete(answer: ListGroupsResponse) -> None:
        answer.groups = [group for group in answer.groups if access.sees(ResourceType.GROUP, group.group_id)]

    return complete


def describe_groups(access: Access, request: DescribeGroupsRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each group."""
    refused = take_out(request.groups, lambda group: access.may_group(Operation.DESCRIBE, group))
    answers = [
        DescribedGroup(
            error_code=GROUP_REFUSED,
            error_message=None,
            group_id=group,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
        for group in refused
    ]

    def complete(answer: DescribeGroupsResponse) -> None:
        _limit_operations(access, answer.groups, asked=request.include_authorized_operations)
        answer.groups.extend(answers)

    return complete


def _limit_operations(access: Access, groups: Iterable[Any], *, asked: bool) -> None:
    if not asked:
        return
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)


def describe_group_history(access: Access, request: DescribeGroupHistoryRequest, context: "RequestContext") -> Verdict:
    """DESCRIBE on each group."""
    refused = take_out(request.group_ids, lambda group: access.may_group(Operation.DESCRIBE, group))
    answers = [
        GroupHistory(error_code=GROUP_REFUSED, error_message=MESSAGES[GROUP_REFUSED], group_id=group, rebalances=[])
        for group in refused
    ]

    def complete(answer: DescribeGroupHistoryResponse) -> None:
        for group in answer.groups:
            for rebalance in group.rebalances:
                rebalance.moves = [move for move in rebalance.moves if access.sees(ResourceType.TOPIC, move.topic)]
        answer.groups.extend(answers)

    return complete


def delete_groups(access: Access, request: DeleteGroupsRequest, context: "RequestContext") -> Verdict:
    """DELETE on each group."""
    refused = take_out(request.groups_names, lambda group: access.may_group(Operation.DELETE, group))
    answers = [DeletableGroupResult(group_id=group, error_code=GROUP_REFUSED) for group in refused]

    def complete(answer: DeleteGroupsResponse) -> None:
        answer.results.extend(answers)

    return complete if answers else None


def subscribing(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """READ on the group, and DESCRIBE on each topic that the member names. The handler asks for those that match its
    regular expression."""
    context.access = access
    if not access.may_group(Operation.READ, request.group_id):
        return refusal(context, GROUP_REFUSED)
    if all(access.may_topic(Operation.DESCRIBE, name) for name in request.subscribed_topic_names or ()):
        return None
    return refusal(context, TOPIC_REFUSED)


def streams_group_heartbeat(
    access: Access, request: StreamsGroupHeartbeatRequest, context: "RequestContext"
) -> Verdict:
    """READ on the group, and DESCRIBE on each topic of the topology; the handler asks before it creates topics."""
    if not access.may_group(Operation.READ, request.group_id):
        return refusal(context, GROUP_REFUSED)
    context.access = access
    if request.topology is None:
        return None
    needed = {
        name
        for part in request.topology.subtopologies
        for name in (
            *part.source_topics,
            *part.repartition_sink_topics,
            *(topic.name for topic in part.repartition_source_topics),
            *(topic.name for topic in part.state_changelog_topics),
        )
    }
    if all(access.may_topic(Operation.DESCRIBE, name) for name in needed):
        return None
    return refusal(context, TOPIC_REFUSED)


def consumer_group_describe(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """DESCRIBE on each group, and on the topics that its members are assigned."""

    def refused(group: str, code: ErrorCode, message: str | None) -> ConsumerGroup:
        return ConsumerGroup(
            error_code=code,
            error_message=message,
            group_id=group,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )

    return _describe(access, request, refused, _assigned_topics)


def share_group_describe(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """DESCRIBE on each group, and on the topics that its members are assigned."""

    def refused(group: str, code: ErrorCode, message: str | None) -> ShareGroup:
        return ShareGroup(
            error_code=code,
            error_message=message,
            group_id=group,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )

    return _describe(access, request, refused, _assigned_topics)


def streams_group_describe(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """DESCRIBE on each group, and on the topics of its topology."""

    def refused(group: str, code: ErrorCode, message: str | None) -> StreamsGroup:
        return StreamsGroup(
            error_code=code,
            error_message=message,
            group_id=group,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            members=[],
        )

    return _describe(access, request, refused, _topology_topics)


def _describe(access: Access, request: Any, refused: Any, topics_of: Any) -> Verdict:
    without = take_out(request.group_ids, lambda group: access.may_group(Operation.DESCRIBE, group))
    answers = [refused(group, GROUP_REFUSED, MESSAGES[GROUP_REFUSED]) for group in without]

    def complete(answer: Any) -> None:
        shown = [
            group
            if all(access.sees(ResourceType.TOPIC, name) for name in topics_of(group))
            else refused(group.group_id, TOPIC_REFUSED, HIDDEN)
            for group in answer.groups
        ]
        _limit_operations(access, shown, asked=request.include_authorized_operations)
        answer.groups = shown + answers

    return complete


def _assigned_topics(group: Any) -> set[str]:
    assignments = [
        assignment
        for member in group.members
        for assignment in (member.assignment, getattr(member, "target_assignment", None))
        if assignment is not None
    ]
    return {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}


def _topology_topics(group: StreamsGroup) -> set[str]:
    parts = (group.topology.subtopologies or ()) if group.topology is not None else ()
    return {
        name
        for part in parts
        for name in (
            *part.source_topics,
            *part.repartition_sink_topics,
            *(topic.name for topic in part.repartition_source_topics),
            *(topic.name for topic in part.state_changelog_topics),
        )
    }


# -- share groups --------------------------------------------------------------------------------------------------


def sharing(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """READ on the group; READ on each topic is asked for by the handler whenever it looks."""
    if not access.may_group(Operation.READ, request.group_id or ""):
        return refusal(context, GROUP_REFUSED)
    context.access = access
    return None


def describe_share_group_offsets(
    access: Access, request: DescribeShareGroupOffsetsRequest, context: "RequestContext"
) -> Verdict:
    """DESCRIBE on each group, and on each topic."""
    without = take_out(request.groups, lambda group: access.may_group(Operation.DESCRIBE, group.group_id))
    answers = [
        DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=GROUP_REFUSED, error_message=MESSAGES[GROUP_REFUSED]
        )
        for group in without
    ]
    refused: dict[str, list[DescribeShareGroupOffsetsResponseTopic]] = {}
    for group in request.groups:
        if group.topics is not None:
            topics = take_out(group.topics, lambda topic: access.may_topic(Operation.DESCRIBE, topic.topic_name))
            refused[group.group_id] = [
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=NULL_UUID,
                    partitions=[
                        DescribeShareGroupOffsetsResponsePartition(
                            partition_index=number,
                            start_offset=-1,
                            leader_epoch=0,
                            error_code=TOPIC_REFUSED,
                            error_message=MESSAGES[TOPIC_REFUSED],
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in topics
            ]

    def complete(answer: DescribeShareGroupOffsetsResponse) -> None:
        for group in answer.groups:
            group.topics = [topic for topic in group.topics if access.sees(ResourceType.TOPIC, topic.topic_name)]
            group.topics.extend(refused.get(group.group_id, ()))
        answer.groups.extend(answers)

    return complete


def alter_share_group_offsets(
    access: Access, request: AlterShareGroupOffsetsRequest, context: "RequestContext"
) -> Verdict:
    """READ on the group, and on each topic."""
    if not access.may_group(Operation.READ, request.group_id):
        return refusal(context, GROUP_REFUSED)
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.READ, topic.topic_name))
    answers = [
        AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=NULL_UUID,
            partitions=[
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=TOPIC_REFUSED,
                    error_message=MESSAGES[TOPIC_REFUSED],
                )
                for partition in topic.partitions
            ],
        )
        for topic in refused
    ]
    if answers and not request.topics:
        return AlterShareGroupOffsetsResponse(responses=answers)

    def complete(answer: AlterShareGroupOffsetsResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            answer.responses.extend(answers)

    return complete if answers else None


def delete_share_group_offsets(
    access: Access, request: DeleteShareGroupOffsetsRequest, context: "RequestContext"
) -> Verdict:
    """DELETE on the group, and READ on each topic."""
    if not access.may_group(Operation.DELETE, request.group_id):
        return refusal(context, GROUP_REFUSED)
    refused = take_out(request.topics, lambda topic: access.may_topic(Operation.READ, topic.topic_name))
    answers = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=NULL_UUID,
            error_code=TOPIC_REFUSED,
            error_message=MESSAGES[TOPIC_REFUSED],
        )
        for topic in refused
    ]

    def complete(answer: DeleteShareGroupOffsetsResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            answer.responses.extend(answers)

    return complete if answers else None
