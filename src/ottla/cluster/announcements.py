"""PURE. New partitions of which brokers, and so clients, learn once their leaders serve them (ADR 30).

    committed -- LeaderAndIsr --> replicas make their files -- answer --> UpdateMetadata to every broker

A client that learned of a partition earlier would ask a leader that does not know it yet.
"""

from collections.abc import Iterable
from typing import Final

from ottla.cluster.image import NO_LEADER, NOT_YET_LED, MetadataImage, TopicImage
from ottla.ids import BrokerId, PartitionId, TopicId
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest

LONGEST_S: Final = 2.0
"""For so long a leader may keep clients from learning of a topic: it may be dead, and its session last."""

Withheld = dict[TopicId, set[PartitionId]]


class Announcements:
    """The partitions that are still to be announced: all that are new of a topic together, since receivers append."""

    def __init__(self) -> None:
        self.withheld: Withheld = {}
        self._unserved: Withheld = {}
        """Those of them whose leaders have not answered."""

    def begin(self, old: MetadataImage, new: MetadataImage) -> set[TopicId]:
        """Withhold what is new in `new`; the topics concerned."""
        found: set[TopicId] = set()
        if old.topics is new.topics:
            return found
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is topic:
                continue
            fresh = _new_partitions(before, topic)
            if fresh:
                self.withheld.setdefault(topic.topic_id, set()).update(fresh)
                self._unserved.setdefault(topic.topic_id, set()).update(
                    number for number in fresh if topic.partitions[number].leader in new.brokers
                )
                found.add(topic.topic_id)
        return found

    def answered(self, broker_id: BrokerId, request: LeaderAndIsrRequest) -> set[TopicId]:
        """A broker has carried out the request; the topics whose leaders have all answered by that."""
        served: set[TopicId] = set()
        for state in request.topic_states if self._unserved else ():
            topic_id = TopicId(state.topic_id)
            waiting = self._unserved.get(topic_id)
            if waiting is None:
                continue
            waiting -= {
                PartitionId(part.partition_index) for part in state.partition_states if part.leader == broker_id
            }
            if not waiting:
                served.add(topic_id)
        return served

    def end(self, topics: Iterable[TopicId]) -> Withheld:
        """Withhold nothing more of these; what has been withheld."""
        ended: Withheld = {}
        for topic_id in topics:
            self._unserved.pop(topic_id, None)
            numbers = self.withheld.pop(topic_id, None)
            if numbers is not None:
                ended[topic_id] = numbers
        return ended


def _new_partitions(before: TopicImage | None, topic: TopicImage) -> list[PartitionId]:
    """Those that were not there, or nobody's: large topics are committed in parts, the states of partitions last."""
    known = before.partitions if before is not None and before.topic_id == topic.topic_id else ()
    return [
        part.partition
        for part in topic.partitions
        if part.partition >= len(known)
        or (part.leader != NO_LEADER and known[part.partition].partition_epoch == NOT_YET_LED)
    ]
