"""PURE. Which replicas could lead if the disks of those in sync were lost.

    in sync       min.insync.replicas = 2       departed (eligible)
    1 2 3                                       -
    2 3           3 commits with 2              1
    3             nothing is committed          2 1   (2): it has all that is committed
    3, which returns with an empty disk         2 leads

A leader commits nothing while fewer than `min.insync.replicas` are in sync, so replicas that left when that became so
still have everything, whatever became of the last one. The others are kept in the order in which they left: if an
operator has to choose, the latest lacks least. Source: the idea of KIP-966's eligible leader replicas.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ottla.cluster.commands import Command, SetPartitions
from ottla.cluster.controller import with_leader
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage, Replica, TopicImage
from ottla.ids import BrokerId, TopicId, TopicName
from ottla.protocol.compiled import Steps

MinInSync = Callable[[TopicName], int]
"""A topic's `min.insync.replicas`."""
PARTITIONS_A_STEP: Final = 10
"""They take some 0.2 ms."""


def note_departures(
    image: MetadataImage, commands: Sequence[Command], offline: frozenset[Replica], min_in_sync: MinInSync
) -> Steps[list[Command]]:
    """The commands, with the replicas that each partition's in-sync set loses, in steps: a broker that stops leaves
    ten thousand of them.

    `offline` are replicas that their brokers cannot hold: those have nothing.
    """
    noted: list[Command] = []
    since = 0
    for command in commands:
        if isinstance(command, SetPartitions):
            command = yield from _noted(image, command, offline, min_in_sync(command.topic))
            since += len(command.partitions)
            if since >= PARTITIONS_A_STEP:
                since = 0
                yield
        noted.append(command)
    return noted


def _noted(
    image: MetadataImage, command: SetPartitions, offline: frozenset[Replica], min_in_sync: int
) -> Steps[SetPartitions]:
    name, partitions = command
    topic = image.topics.get(name)
    known = () if topic is None else topic.partitions
    noted: list[PartitionImage] = []
    for part in partitions:
        if part.partition < len(known):
            lost = tuple(replica for replica in part.replicas if (replica, name, part.partition) in offline)
            part = with_departures(known[part.partition], part, lost, min_in_sync)
        noted.append(part)
        if not len(noted) % PARTITIONS_A_STEP:
            yield
    return command._replace(partitions=tuple(noted))


def with_departures(
    before: PartitionImage, after: PartitionImage, offline: tuple[BrokerId, ...], min_in_sync: int
) -> PartitionImage:
    """`after`, which follows `before`, with the replicas that have left its in-sync set."""

    def kept(replicas: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
        return tuple(
            replica
            for replica in replicas
            if replica in after.replicas and replica not in after.isr and replica not in offline
        )

    sure = (*before.isr, before.last_known_leader, *before.eligible)
    if after.leader in (before.leader, NO_LEADER, *sure):
        gone = kept(before.isr)
        if after.is_abandoned and before.isr and before.last_known_leader not in gone:
            gone += kept((before.last_known_leader,))  # the one elected since has committed nothing
        departed = gone + tuple(replica for replica in kept(before.departed) if replica not in gone)
        eligible = len({*gone, *kept(before.eligible)})
    else:  # all that was in sync is given up
        departed, eligible = kept(before.departed), 0
    if after.begins_anew or commits(after, min_in_sync):
        eligible = 0
    return _with_departed(after, departed, eligible, last_is_lost=after.last_known_leader in offline)


def _with_departed(
    partition: PartitionImage, departed: tuple[BrokerId, ...], eligible: int, *, last_is_lost: bool
) -> PartitionImage:
    """The partition with these. Of one that waits for its last leader, only that is kept: a genuine controller elects a
    last known replica only if records name no other. `last_is_lost`: it has nothing to lead with."""
    if partition.is_abandoned:
        last = partition.last_known_leader
        others = tuple(replica for replica in departed[eligible:] if replica != last)
        departed = departed[:eligible]
        if last not in (NO_LEADER, *departed):
            departed += (last,)
        if last != NO_LEADER and (eligible or last_is_lost):
            departed += others
    if (departed, eligible) == (partition.departed, partition.eligible_count):
        return partition
    return partition._replace(departed=departed, eligible_count=eligible)


def forget_eligible(image: MetadataImage, min_in_sync: MinInSync) -> list[SetPartitions]:
    """Clear the eligible replicas where a lower `min.insync.replicas` lets leaders commit without them, and let those
    leaders go on in a new epoch. A partition that is being reassigned has its turn at the end of that."""
    changes: list[SetPartitions] = []
    for topic in image.topics.values():
        changed = tuple(
            with_leader(image, partition, partition.leader, partition.isr)
            for partition in topic.partitions
            if partition.eligible_count and not partition.is_reassigned and commits(partition, min_in_sync(topic.name))
        )
        if changed:
            changes.append(SetPartitions(topic.name, changed))
    return changes


def without_unclean(
    image: MetadataImage, broker_id: BrokerId, lost: Callable[[TopicId, PartitionImage], bool]
) -> list[SetPartitions]:
    """Take a broker that may have lost what it had not synced from the eligible replicas (KIP-966): it was neither
    stopped in order, nor killed on a machine that went on. `lost`: is its whole replica gone, with its directory?"""
    gone = image.failed_replicas - image.full_replicas

    def last_is_lost(topic: TopicImage, partition: PartitionImage) -> bool:
        last = partition.last_known_leader
        return (last, topic.name, partition.partition) in gone or (
            last == broker_id and lost(topic.topic_id, partition)
        )

    changes: list[SetPartitions] = []
    for topic in image.topics.values():
        changed = tuple(
            _with_departed(
                partition._replace(partition_epoch=partition.partition_epoch + 1),
                (
                    *(replica for replica in partition.eligible if replica != broker_id),
                    broker_id,
                    *partition.departed[partition.eligible_count :],
                ),
                partition.eligible_count - 1,
                last_is_lost=last_is_lost(topic, partition),
            )
            for partition in topic.partitions
            if broker_id in partition.eligible
        )
        if changed:
            changes.append(SetPartitions(topic.name, changed))
    return changes


def commits(partition: PartitionImage, min_in_sync: int) -> bool:
    """Are enough replicas in sync for its leader to commit anything?"""
    return len(partition.isr) >= min(min_in_sync, len(partition.replicas))
