"""Replicas that part from their leaders where records are committed: an empty one takes the place of each."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ottla.cluster.image import PartitionImage
from ottla.errors import KafkaStorageError, OttlaError, sentence
from ottla.ids import TopicId, TopicPartition
from ottla.replication.refills import Refills, advice

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

REFILL_AGAIN_S: Final = 5.0
"""After the empty log could not be made that takes the place of one set aside."""


class StartingOver:
    """Sets such replicas aside and begins them anew. Owns the timers of the next attempts; on the loop's thread."""

    def __init__(
        self, replicas: "ReplicaManager", metadata: "MetadataView", refills: Refills, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._broker_id = metadata.broker_id
        self._refills = refills
        self._loop = loop
        self._timers: dict[TopicPartition, asyncio.TimerHandle] = {}
        """The next attempts at replicas that could not be made anew yet."""

    def close(self) -> None:
        """Stop trying."""
        for timer in self._timers.values():
            timer.cancel()

    def begin(self, partition: "Partition", reason: str) -> None:
        """Follow with an empty log; the files of the one before stay under another name.

        Only out of sync: an empty replica that is counted as in sync would be elected. And once for each leader, until
        the replica has been in sync: what is copied from a leader whose log contradicts itself parts from it again.
        From then on it counts as lost: it does not lead. Raises KafkaStorageError.
        """
        tp, topic_id = partition.topic_partition, partition.log.topic_id
        assert topic_id is not None
        what_to_do = advice(is_compacted=partition.log.config.compact)
        known = self._metadata.image.partition(tp)
        if (
            known is None
            or known.leader_epoch != partition.leader_epoch
            or known.partition_epoch < partition.partition_epoch
            or self._broker_id in known.isr
        ):
            raise KafkaStorageError(
                f"{reason}. Committed records would be truncated, so its log stays as it is until the leader has "
                "dropped this broker from the in-sync set; then it is set aside, and everything is copied anew: "
                f"{what_to_do}"
            )
        leaders = self._refills.leaders(tp)
        if partition.leader in leaders:
            raise KafkaStorageError(
                f"{reason}, though the replica was copied anew from that broker: the leader's log is inconsistent (its "
                "leader-epoch-checkpoint may lack an epoch). The replica's earlier log is kept in "
                f"{partition.log.directory}.*-stray; let another replica lead"
            )
        state = PartitionImage(
            tp.partition,
            partition.leader,
            partition.leader_epoch,
            partition.replicas,
            known.isr,
            partition.partition_epoch,
        )
        kept = self._replicas.set_replica_aside(partition, frozenset((*leaders, partition.leader)))
        log.error(
            "%s: %s. Committed records would be truncated, so its log is kept in %s, and everything is copied from "
            "broker %d: %s",
            tp,
            reason,
            kept,
            partition.leader,
            what_to_do,
        )
        self._refill(tp, topic_id, state)

    def _refill(self, tp: TopicPartition, topic_id: TopicId, state: PartitionImage, *, is_first: bool = True) -> None:
        """Create an empty replica in place of one set aside; retry until it succeeds, or the controller decides
        otherwise.
        """
        self._timers.pop(tp, None)
        if (
            self._replicas.find(tp.topic, tp.partition) is not None
            or tp not in self._refills
            or topic_id not in self._metadata.image.topics_by_id
        ):
            return
        try:
            self._replicas.become(tp.topic, topic_id, state, is_new=False)
        except (OSError, OttlaError) as error:
            if is_first:  # once, not for every attempt
                log.error("%s cannot be made anew: %s; it is tried again until it can", tp, sentence(error))
            self._timers[tp] = self._loop.call_later(
                REFILL_AGAIN_S, lambda: self._refill(tp, topic_id, state, is_first=False)
            )
        else:
            made = self._replicas.find(tp.topic, tp.partition)
            if made is not None:
                self._replicas.on_moved(made)  # it may be in another log directory
