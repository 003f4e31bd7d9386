"""Replicas made anew in place of lost ones, until they have been in sync: they do not lead.

Each is marked on the disk (`log.refill_marks`), so that a broker that is restarted in the middle knows them again.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
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
        self._leaders: dict[TopicPartition, set[BrokerId]] = {}

    def load(self) -> None:
        """Take over the marks in the directories."""
        self._leaders = {tp: set(leaders) for tp, leaders in self._directories.refilling.items()}
        if self._leaders:
            log.warning(
                "%d replicas were not filled again yet when this broker ended: they do not lead before they have been "
                "in sync",
                len(self._leaders),
            )

    def take_over(self, partition: TopicPartition) -> None:
        """Take over the mark of a replica that is opened later than the others."""
        leaders = self._directories.refilling.get(partition)
        if leaders is not None:
            self._leaders[partition] = set(leaders)

    def __bool__(self) -> bool:
        return bool(self._leaders)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._leaders

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._leaders))

    def leaders(self, partition: TopicPartition) -> set[BrokerId]:
        """The leaders for whose sake its log was set aside; none if it was lost with a disk, or is not refilled."""
        return self._leaders.get(partition, set())

    def begin(self, partition: TopicPartition, leaders: set[BrokerId]) -> None:
        """It is to be filled again. The directories mark it with its new log."""
        self._leaders[partition] = leaders

    def end(self, partition: TopicPartition) -> None:
        """It has been in sync, or is not the replica any longer that was lost."""
        self._leaders.pop(partition, None)
        self._directories.end_refill(partition)

    def end_where_in_sync(self, old: "MetadataImage", new: "MetadataImage", broker_id: BrokerId) -> None:
        """End the refills of replicas that a leader counts as in sync, and of topics that are deleted."""
        for partition in self:
            part = new.partition(partition)
            if part is None:
                if old.partition(partition) is not None:  # else this broker has not received the topics yet
                    self.end(partition)
            elif broker_id in part.isr and part.leader >= 0 and part.leader != broker_id:
                self.end(partition)


def lost(tp: TopicPartition, *, is_set_aside: bool) -> KafkaStorageError:
    """The error for a replica that has lost what it had, or was set aside, and may not lead."""
    if is_set_aside:
        return KafkaStorageError(
            f"{tp} was set aside by this broker, since it parted from its leader, and has not been in sync since: "
            f"another replica has to lead. What it had is in a directory {tp}.*-stray. If no replica has more, "
            f"`ottla cluster elect {tp.topic} --unclean` begins it anew, empty"
        )
    return KafkaStorageError(
        f"{tp} was lost with a disk of this broker, and another replica has to lead. If none has it, "
        f"`ottla cluster elect {tp.topic} --unclean` begins it anew, empty"
    )
