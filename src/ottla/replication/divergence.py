"""Truncation of a follower's log where it diverges from its leader's (KIP-101, KIP-279)."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.ids import LeaderEpoch, Offset
from ottla.protocol.messages.fetch import EpochEndOffset

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

NO_EPOCH: Final = -1

StartOver = Callable[["Partition", str], None]
"""Keep a partition's log under another name, for the reason given, and follow with an empty one. Raises
KafkaStorageError where that is not safe, or not now."""


def divergence(own: "PartitionLog", leaders: EpochEndOffset) -> Offset:
    """The offset from which on a log differs from the leader's: past the last epoch that both have, as far as the
    leader has it.

    If this log lacks the leader's epoch, its records of earlier epochs are kept and compared once more.
    """
    found = own.end_offset_for_epoch(LeaderEpoch(leaders.epoch))
    if found.epoch == NO_EPOCH:
        return Offset(min(leaders.end_offset, own.log_end_offset))
    return Offset(min(leaders.end_offset, found.end_offset, own.log_end_offset))


def takes_back(own: "PartitionLog", offset: Offset) -> bool:
    """Whether a cut would drop what was committed, and the topic does not allow unclean elections."""
    return offset < own.high_watermark and not own.config.unclean_leader_election_enable


class Truncation:
    """Cuts the logs of followed partitions; sets those aside that would lose committed records. Owns no state; runs on
    the thread that owns the logs."""

    def __init__(self, start_over: StartOver) -> None:
        self._start_over = start_over

    def to_divergence(self, partition: "Partition", leaders: EpochEndOffset) -> None:
        """Drops what the leader's log does not have, by its answer. Raises KafkaStorageError."""
        offset = divergence(partition.log, leaders)
        self.cut(partition, offset, f"it parts from the leader's log in epoch {leaders.epoch}")

    def drop_incomparable(self, partition: "Partition", leaders_start: Offset) -> None:
        """Start over at the beginning of the leader's log if this one ends there: the leader has deleted all that both
        may have had, and forgotten the epochs of it, so this log may have gone another way than the leader's did."""
        own = partition.log
        if own.log_start_offset < own.log_end_offset <= leaders_start:
            log.info(
                "%s: the leader's log begins at %d, where this one ends; copies it from there",
                partition.topic_partition,
                leaders_start,
            )
            own.truncate_fully_and_start_at(leaders_start)

    def cut(self, partition: "Partition", offset: Offset, reason: str) -> None:
        """Drop what lies beyond `offset`.

        What is below the high watermark was committed: only an unclean election takes it back. Unless the topic allows
        those, the log is kept as it is, under another name, and all is copied anew; as long as that is not safe, this
        is tried again after a pause, and does not count as a fetch at the leader. Raises KafkaStorageError.
        """
        own = partition.log
        if offset >= own.log_end_offset:
            own.truncate_to(offset)  # there may be an epoch without records to forget
            return
        if takes_back(own, offset):
            self._start_over(partition, f"{reason}, at {offset}, below its own high watermark {own.high_watermark}")
            return
        how = log.warning if offset < own.high_watermark else log.info
        how(
            "%s: %s; drops offsets from %d to %d, its high watermark being %d",
            partition.topic_partition,
            reason,
            offset,
            own.log_end_offset - 1,
            own.high_watermark,
        )
        own.truncate_to(offset)
