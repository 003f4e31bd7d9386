"""ListPartitionReassignments (v0): which partitions are being moved, and how (KIP-455)."""

from typing import TYPE_CHECKING

from ottla.ids import TopicName
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.membership import Membership


def handle(
    metadata: "MetadataView",
    membership: "Membership | None",
    request: ListPartitionReassignmentsRequest,
    context: RequestContext,
) -> ListPartitionReassignmentsResponse:
    """Null asks for all; what is not being moved is not mentioned. Raises NOT_CONTROLLER."""
    image = metadata.image if membership is None else membership.active_controller().image
    asked = (
        dict.fromkeys(image.topics)
        if request.topics is None
        else {TopicName(topic.name): set(topic.partition_indexes) for topic in request.topics}
    )
    topics: list[OngoingTopicReassignment] = []
    for name, numbers in asked.items():
        topic = image.topics.get(name)
        moving = [
            OngoingPartitionReassignment(
                partition_index=part.partition,
                replicas=list(part.replicas),
                adding_replicas=list(part.adding),
                removing_replicas=list(part.removing),
            )
            for part in (() if topic is None else topic.partitions)
            if part.is_reassigned and (numbers is None or part.partition in numbers)
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(topics=topics)
