"""AlterPartition (v2-v3): leaders report their in-sync replicas to the controller (KIP-497)."""

from typing import TYPE_CHECKING

from ottla.cluster.image import TopicImage
from ottla.cluster.isr_changes import ANY_EPOCH, IsrChange
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, TopicId
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.membership import Membership

EPOCHS_SINCE = 3


async def handle(
    membership: "Membership | None", request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    """Each partition on its own. Raises NOT_CONTROLLER and STALE_BROKER_EPOCH for the whole request."""
    assert membership is not None  # routed in clusters only
    active_controller = membership.active_controller()
    broker_id = BrokerId(request.broker_id)
    changes = [
        _change(broker_id, TopicId(topic.topic_id), data, context.api_version)
        for topic in request.topics
        for data in topic.partitions
    ]
    answers = await active_controller.change_in_sync(broker_id, request.broker_epoch, changes)
    topics: dict[TopicId, ResponseTopicData] = {}
    for change, refused in zip(changes, answers, strict=True):
        topic = topics.setdefault(change.topic_id, ResponseTopicData(topic_id=change.topic_id, partitions=[]))
        topic.partitions.append(_answer(change, refused, active_controller.image.topics_by_id.get(change.topic_id)))
    return AlterPartitionResponse(topics=list(topics.values()))


def _change(broker_id: BrokerId, topic_id: TopicId, data: PartitionData, version: int) -> IsrChange:
    if version >= EPOCHS_SINCE:
        isr = [(BrokerId(state.broker_id), state.broker_epoch) for state in data.new_isr_with_epochs]
    else:
        isr = [(BrokerId(replica), ANY_EPOCH) for replica in data.new_isr]
    return IsrChange(
        broker_id,
        topic_id,
        data.partition_index,
        data.leader_epoch,
        data.partition_epoch,
        tuple(replica for replica, _ in isr),
        tuple(epoch for _, epoch in isr),
    )


def _answer(change: IsrChange, refused: OttlaError | None, topic: TopicImage | None) -> ResponsePartitionData:
    if refused is not None or topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if refused is None else refused.code
        return ResponsePartitionData(
            partition_index=change.partition,
            error_code=code,
            leader_id=-1,
            leader_epoch=-1,
            isr=[],
            partition_epoch=-1,
        )
    partition = topic.partitions[change.partition]
    return ResponsePartitionData(
        partition_index=change.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        partition_epoch=partition.partition_epoch,
    )
