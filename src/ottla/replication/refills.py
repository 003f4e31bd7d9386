"""Replicas made anew in place of lost ones, until they have been in sync: they do not lead.

Each is marked on the disk (`log.refill_marks`), so that a broker that is restarted in the middle knows them again.
"""

import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, TopicPartition
from ottla.log.refill_marks import NOT_KNOWN, Refill

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage, PartitionImage
    from ottla.log.directories import LogDirectories

log = logging.getLogger(__name__)


def advice(*, is_compacted: bool) -> str:
    """What to do about a leader that seems to lack committed records."""
    if is_compacted:
        return (
            "compaction may have left the leader no record of an epoch, and then nothing is lost: compare the newest "
            "records of the keys; if the leader lacks some, find out why"
        )
    return "unless an unclean election was asked for, find out what the leader has lost"


class Refills:
    """The replicas of one broker that are filled again. On the loop's thread."""

    def __init__(self, directories: "LogDirectories") -> None:
        self._directories = directories
        self._refills: dict[TopicPartition, Refill] = {}

    def load(self) -> None:
        """Take over the marks in the directories; some may be out of date, as the first image of the cluster shows."""
        self._refills = self._directories.refilling
        if self._refills:
            log.warning(
                "%d replicas were not known to be filled again when this broker ended: they do not lead before they "
                "have been in sync",
                len(self._refills),
            )

    def take_over(self, partition: TopicPartition) -> None:
        """Take over the mark of a replica that is opened later than the others."""
        refill = self._directories.refilling.get(partition)
        if refill is not None:
            self._refills[partition] = refill

    def __bool__(self) -> bool:
        return bool(self._refills)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._refills

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._refills))

    def leaders(self, partition: TopicPartition) -> Collection[BrokerId]:
        """The leaders for whose sake its log was set aside; none if it was lost with a disk, or is not refilled."""
        return self._refills.get(partition, Refill()).leaders

    def anew(self, partition: TopicPartition, image: "MetadataImage", broker_id: BrokerId) -> Refill:
        """The refill of a replica that begins empty, perhaps not for the first time."""
        known = image.partition(partition)
        is_counted_on = (
            known is None
            or not image.elects_eligible  # else eligible replicas are none that may have lost records
            or broker_id in (*known.isr, *known.eligible, known.leader, known.last_known_leader)
        )
        since = NOT_KNOWN if known is None or is_counted_on else known.partition_epoch
        return Refill(self.leaders(partition), since)

    def begin(self, partition: TopicPartition, refill: Refill) -> None:
        """It is to be filled again. The directories mark it with its new log."""
        self._refills[partition] = refill

    def lost(self, partition: TopicPartition) -> KafkaStorageError:
        """The error for a replica that may not lead, since it lacks what it had, or may have had."""
        if self.leaders(partition):
            what = (
                "was set aside by this broker, since it parted from its leader, and has not been in sync since: "
                f"another replica has to lead. What it had is in a directory {partition}.*-stray"
            )
        elif partition in self:
            what = (
                "began empty on this broker, since its log was lost or may have been, and has not been in sync since: "
                "another replica has to lead"
            )
        else:
            what = f"is not here, and {self._directories.loss_of(partition)}: another replica has to lead"
        return KafkaStorageError(
            f"{partition} {what}. If none does, `ottla cluster elect {partition.topic} --unclean` elects the replica "
            "that left the in-sync set last, or begins the partition anew, empty, if no other has anything"
        )

    def end(self, partition: TopicPartition) -> None:
        """It has been in sync, or is not the replica any longer that was lost."""
        self._refills.pop(partition, None)
        self._directories.end_refill(partition)

    def end_where_in_sync(self, old: "MetadataImage", new: "MetadataImage", broker_id: BrokerId) -> None:
        """End the refills of replicas that a leader counts as in sync, or has counted, and of topics that are
        deleted."""
        for partition in self:
            part = new.partition(partition)
            if part is None:
                if old.partition(partition) is not None:  # else this broker has not received the topics yet
                    self.end(partition)
            elif _is_filled(part, broker_id, self._refills[partition].since):
                self.end(partition)


def _is_filled(part: "PartitionImage", broker_id: BrokerId, since: int) -> bool:
    """Whether a leader has had it in sync after the partition epoch `since`.

    A process that ends at that moment does not see it. When the next process starts, the replica may be eligible, and
    no other one: from `since` on, only a replica that has been in sync becomes eligible.
    """
    if part.partition_epoch <= since:
        return False
    if part.leader not in (NO_LEADER, broker_id) and broker_id in part.isr:
        return True
    return since != NOT_KNOWN and broker_id in part.eligible
