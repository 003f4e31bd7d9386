"""PURE. The controller's decision on a leader's change of its in-sync set (AlterPartition, KIP-497).

Source: Kafka 3.9, `KafkaController.tryProcessAlterPartition`; leaders know how to handle each of the errors.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cluster.commands import SetPartitions
from ottla.cluster.elections import Outages, fit_replicas
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, TopicId

ANY_EPOCH = -1


class IsrChange(NamedTuple):
    """What a leader proposes for one partition."""

    broker_id: BrokerId
    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[BrokerId, ...]
    epochs: Sequence[int]
    """The epochs of the brokers in `isr`, which the leader knows from their fetches (KIP-903); else `ANY_EPOCH`."""


def plan_isr_change(image: MetadataImage, outages: Outages, change: IsrChange) -> SetPartitions:
    """Accept or refuse the change. A leader that proposes any set, even the present one, confirms that it leads.

    Raises `ApiError`: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, NOT_CONTROLLER (the leader
    knows a later epoch than this controller), INVALID_REQUEST, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA.
    """
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {change.topic_id}")
    if not 0 <= change.partition < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {change.partition}")
    partition = topic.partitions[change.partition]
    where = f"{topic.name}-{change.partition}"
    if change.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"{where} is at leader epoch {partition.leader_epoch} by now")
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER, f"{where} has been changed by a later controller")
    if change.broker_id != partition.leader or not change.isr or partition.leader not in change.isr:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {change.broker_id} cannot change {where} like this")
    if change.isr == partition.isr:
        if partition.last_known_leader == NO_LEADER:
            return SetPartitions(topic.name, ())
        return SetPartitions(topic.name, (_changed(partition, change.isr),))
    if change.partition_epoch < partition.partition_epoch:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, f"{where} is at partition epoch {partition.partition_epoch} by now"
        )
    _check_eligible(image, topic, outages, change)
    return SetPartitions(topic.name, (_changed(partition, change.isr),))


def _changed(partition: PartitionImage, isr: tuple[BrokerId, ...]) -> PartitionImage:
    return partition._replace(
        isr=isr, partition_epoch=partition.partition_epoch + 1, last_known_leader=NO_LEADER, begins_anew=False
    )


def _check_eligible(image: MetadataImage, topic: TopicImage, outages: Outages, change: IsrChange) -> None:
    partition = topic.partitions[change.partition]
    able = fit_replicas(image, topic.name, partition, outages)
    for replica, epoch in zip(change.isr, change.epochs, strict=True):
        reason = None
        if replica not in partition.replicas:
            reason = "holds no replica of it"
        elif replica not in able:
            reason = "is not alive, or has lost its log directory"
        elif replica not in partition.isr and outages.is_going(replica, topic.name, partition.partition):
            reason = "is stopping, has ended, or has no room in its log directory"
        elif epoch not in (ANY_EPOCH, image.brokers[replica].epoch):
            reason = "was started anew since it was seen in sync"
        if reason is not None:
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"{topic.name}-{change.partition}: broker {replica} {reason}")
