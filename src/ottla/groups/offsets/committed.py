"""Committed offsets: where each group will go on reading. PURE.

    offsets     group -> (topic, partition) -> CommittedOffset      in force
    pending     producer -> group -> (topic, partition) -> ...      in a transaction that has not ended

An offset inside a transaction counts when the transaction commits, unless a later one has been committed outside.

Sources: KIP-211 (expiry), KIP-447 (stable offsets), KIP-496 (deletion), the protocol guide.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.state_machine import NO_PRODUCER_ID
from ottla.errors import ErrorCode
from ottla.groups.events import FetchedOffset, FetchedTopic, FetchOffsets, TopicPartitions
from ottla.groups.offsets.records import OffsetCommitted, OffsetDeleted
from ottla.ids import ZERO_TOPIC_ID, GroupId, PartitionId, ProducerId, TopicId, TopicName, TopicPartition

UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT


class CommittedOffset(NamedTuple):
    """`position`: where the commit stands in the coordinator's log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: TopicId
    position: int

    def is_of(self, topic_id: TopicId) -> bool:
        """Whether the offset is in this topic, not in an earlier one of that name.

        Offsets without an id are accepted.
        """
        return self.topic_id == topic_id or ZERO_TOPIC_ID in (self.topic_id, topic_id)

    def is_expired(self, base_ms: int, now_ms: int, retention_ms: int) -> bool:
        """`base_ms`: since when the offset is unused. A commit that named its own end keeps it."""
        if self.expire_timestamp_ms >= 0:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - base_ms >= retention_ms


Offsets: TypeAlias = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of all groups of one coordinator partition. Changes only by replaying records."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, Offsets] = {}
        self._pending: dict[ProducerId, dict[GroupId, Offsets]] = {}
        self._open: dict[GroupId, set[ProducerId]] = {}
        """The producers with pending offsets, by group."""

    # --- questions ---

    def of_group(self, group_id: GroupId) -> Offsets:
        """The offsets in force; not to be changed."""
        return self._groups.get(group_id, {})

    def groups(self) -> Iterator[GroupId]:
        return iter(self._groups)

    def is_pending(self, group_id: GroupId, partition: TopicPartition) -> bool:
        return any(partition in self._pending[producer][group_id] for producer in self._open.get(group_id, ()))

    def has_open_transaction(self, group_id: GroupId) -> bool:
        return group_id in self._open

    def has_any(self, group_id: GroupId) -> bool:
        """Offsets in force or pending."""
        return group_id in self._groups or self.has_open_transaction(group_id)

    def known_partitions(self, group_id: GroupId) -> list[TopicPartition]:
        """With an offset in force or pending, each once."""
        known = dict.fromkeys(self.of_group(group_id))
        for producer in self._open.get(group_id, ()):
            known.update(dict.fromkeys(self._pending[producer][group_id]))
        return list(known)

    def fetch(self, event: FetchOffsets) -> tuple[FetchedTopic, ...]:
        """What OffsetFetch asks for: the partitions it names, or all that have something."""
        topics = event.topics
        if topics is None:
            by_topic: dict[TopicName, list[PartitionId]] = {}
            for topic, partition in self.of_group(event.group_id):
                by_topic.setdefault(topic, []).append(partition)
            topics = tuple(TopicPartitions(topic, tuple(found)) for topic, found in by_topic.items())
        offsets = self.of_group(event.group_id)
        return tuple(
            FetchedTopic(
                topic.topic,
                tuple(
                    self._fetch_one(event, offsets, TopicPartition(topic.topic, partition), topic.topic_id)
                    for partition in topic.partitions
                ),
            )
            for topic in topics
        )

    def _fetch_one(
        self, event: FetchOffsets, offsets: Offsets, partition: TopicPartition, topic_id: TopicId
    ) -> FetchedOffset:
        if event.require_stable and self.is_pending(event.group_id, partition):
            return FetchedOffset(partition.partition, error=UNSTABLE)
        found = offsets.get(partition)
        if found is None or not found.is_of(topic_id):
            return FetchedOffset(partition.partition)
        return FetchedOffset(partition.partition, found.offset, found.leader_epoch, found.metadata)

    def deletions(self, group_id: GroupId, topic: TopicPartitions) -> Iterator[OffsetDeleted]:
        """Tombstones for these partitions' offsets, in force or pending."""
        for index in topic.partitions:
            partition = TopicPartition(topic.topic, index)
            if partition in self.of_group(group_id) or self.is_pending(group_id, partition):
                yield OffsetDeleted(group_id, topic.topic, index)

    def in_topics(self, group_id: GroupId, topics: Mapping[TopicName, TopicId]) -> list[TopicPartition]:
        """Partitions of these topics with an offset in force or pending; none of later topics of the same names."""
        return [
            partition
            for partition in self.known_partitions(group_id)
            if partition.topic in topics
            and all(offset.is_of(topics[partition.topic]) for offset in self._known(group_id, partition))
        ]

    def _known(self, group_id: GroupId, partition: TopicPartition) -> Iterator[CommittedOffset]:
        """The partition's offsets, in force and pending."""
        pending = (self._pending[producer][group_id] for producer in self._open.get(group_id, ()))
        for offsets in (self.of_group(group_id), *pending):
            if partition in offsets:
                yield offsets[partition]

    # --- what lasts ---

    def replay_commit(self, record: OffsetCommitted, position: int, producer_id: int) -> None:
        """Take up a commit from the log; one in a transaction waits for its marker."""
        committed = CommittedOffset(
            record.offset,
            record.leader_epoch,
            record.metadata,
            record.commit_timestamp_ms,
            record.expire_timestamp_ms,
            record.topic_id,
            position,
        )
        groups = self._groups
        if producer_id != NO_PRODUCER_ID:
            producer = ProducerId(producer_id)
            groups = self._pending.setdefault(producer, {})
            self._open.setdefault(record.group_id, set()).add(producer)
        groups.setdefault(record.group_id, {})[TopicPartition(record.topic, record.partition)] = committed

    def replay_deletion(self, record: OffsetDeleted) -> None:
        """Take up a tombstone: the offset goes, also from transactions that are open."""
        group_id, partition = record.group_id, TopicPartition(record.topic, record.partition)
        _drop(self._groups, group_id, partition)
        for producer in list(self._open.get(group_id, ())):
            if _drop(self._pending[producer], group_id, partition):
                self._close(group_id, producer)

    def _close(self, group_id: GroupId, producer: ProducerId) -> None:
        still_open = self._open[group_id]
        still_open.discard(producer)
        if not still_open:
            del self._open[group_id]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take up a marker: the producer's open offsets become committed, or are dropped."""
        producer = ProducerId(producer_id)
        ended = self._pending.pop(producer, {})
        for group_id in ended:
            self._close(group_id, producer)
        if not committed:
            return
        for group_id, offsets in ended.items():
            in_force = self._groups.setdefault(group_id, {})
            for partition, offset in offsets.items():
                current = in_force.get(partition)
                # Compaction may have removed records between the two: positions show which came last.
                if current is None or current.position < offset.position:
                    in_force[partition] = offset


def _drop(groups: dict[GroupId, Offsets], group_id: GroupId, partition: TopicPartition) -> bool:
    """Forget one offset; whether that was the group's last one."""
    offsets = groups.get(group_id)
    if offsets is None or offsets.pop(partition, None) is None or offsets:
        return False
    del groups[group_id]
    return True
