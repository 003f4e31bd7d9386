"""PURE. Moving partitions between brokers while they are read and written (KIP-455).

    asked for        replicas = target + those that go; the ones that are new begin to follow
    caught up        the in-sync set holds the whole target: leadership moves if it has to, then the rest goes
    cancelled        the replicas that were to be added go, everything else is as before

Source: Kafka 3.9, `KafkaController.onPartitionReassignment`, `ReplicaAssignment.reassignTo`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.cluster.commands import SetPartitions
from ottla.cluster.controller import with_leader
from ottla.cluster.elections import Outages, fit_replicas
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.errors import ApiError, ErrorCode
from ottla.errors import UnknownTopicOrPartition as UnknownTopic
from ottla.ids import BrokerId, TopicPartition

_SHOWN: Final = 10


def plan_reassignment(
    image: MetadataImage,
    topic_partition: TopicPartition,
    wanted: Sequence[int] | None,
    *,
    allow_replication_factor_change: bool = True,
) -> SetPartitions:
    """Begin to move a partition to the brokers in `wanted`, or with None cancel what is under way.

    Raises `UnknownTopicOrPartition`, or `ApiError`: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS.
    """
    partition = image.partition(topic_partition)
    if partition is None:
        raise UnknownTopic("The partition does not exist.")
    if wanted is None:
        if not partition.is_reassigned:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        original = tuple(replica for replica in partition.replicas if replica not in partition.adding)
        return _towards(image, topic_partition, partition, original, original)
    target = tuple(BrokerId(replica) for replica in wanted)
    original = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    _check_target(image, original, target)
    if not allow_replication_factor_change and len(target) != len(original):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(original)} to {len(target)}",
        )
    return _towards(image, topic_partition, partition, original, target)


def _check_target(image: MetadataImage, original: tuple[BrokerId, ...], target: tuple[BrokerId, ...]) -> None:
    problem = None
    if not target:
        problem = "Empty replica list specified in partition reassignment."
    elif len(set(target)) != len(target):
        problem = f"Duplicate replica ids in partition reassignment replica list: {_first(target)}"
    elif any(replica < 0 for replica in target):
        problem = f"Invalid broker id in replica list: {_first(target)}"
    elif absent := [replica for replica in target if replica not in original and replica not in image.brokers]:
        alive = _first(sorted(image.brokers))
        problem = f"Replica assignment has brokers that are not alive: {_first(absent)}; these are: {alive}"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _first(brokers: Sequence[BrokerId]) -> str:
    """The first few of them, for a message: a request may name as many as it likes."""
    shown, left = list(brokers[:_SHOWN]), len(brokers) - _SHOWN
    return f"{shown} and {left} more" if left > 0 else str(shown)


def _towards(
    image: MetadataImage,
    topic_partition: TopicPartition,
    partition: PartitionImage,
    original: tuple[BrokerId, ...],
    target: tuple[BrokerId, ...],
) -> SetPartitions:
    everyone = target + tuple(replica for replica in original if replica not in target)
    # Those that were to be added by a reassignment given up are no replicas any more.
    in_sync = tuple(replica for replica in partition.isr if replica in everyone)
    complete = partition.isr
    if partition.is_abandoned:
        complete = partition.eligible or (partition.last_known_leader,)
    if not any(replica in everyone for replica in complete):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic_partition} is in sync on {list(complete)} alone, which would hold no replica of it any more.",
        )
    changed = partition._replace(
        replicas=everyone,
        adding=tuple(replica for replica in target if replica not in original),
        removing=tuple(replica for replica in original if replica not in target),
    )
    leader = partition.leader
    if leader != NO_LEADER and leader not in in_sync:
        leader = next((replica for replica in everyone if replica in in_sync and replica in image.brokers), NO_LEADER)
    return SetPartitions(topic_partition.topic, (with_leader(image, changed, leader, in_sync),))


def finish_reassignments(image: MetadataImage, outages: Outages, topics: Iterable[TopicImage]) -> list[SetPartitions]:
    """End the reassignments of these topics whose targets are all in sync.

    A partition whose leader goes is led by the first of its targets that is fit; if none is, it waits. No replica goes
    before its successor has confirmed that it leads.
    """
    planned: list[SetPartitions] = []
    for topic in topics:
        changed: list[PartitionImage] = []
        for partition in topic.partitions:
            target = partition.target
            if not partition.is_reassigned or not set(target) <= set(partition.isr):
                continue
            if partition.last_known_leader != NO_LEADER:
                continue
            able = [
                replica
                for replica in fit_replicas(image, topic.name, partition, outages)
                if replica in target and not outages.is_going(replica, topic.name, partition.partition)
            ]
            leader = partition.leader if partition.leader in able else next(iter(able), None)
            if leader is None:
                continue
            moved = with_leader(image, partition, leader, partition.isr)
            if moved.last_known_leader != NO_LEADER:
                changed.append(moved)
                continue
            isr = tuple(replica for replica in partition.isr if replica in target)
            settled = partition._replace(replicas=target, adding=(), removing=())
            changed.append(with_leader(image, settled, leader, isr))
        if changed:
            planned.append(SetPartitions(topic.name, tuple(changed)))
    return planned
