"""One share group: its members, what each is to read, and whose state the share coordinator keeps. PURE.

    what members subscribe to, or topics changed    group epoch + 1
    at the next heartbeat of any member             target assignment of that epoch
    at a member's own heartbeat                     it has what is its target, and the epoch with it

Members need not give anything up before others get it: a partition may have several readers. Source: KIP-932.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.coordination.state_machine import Effect, SetTimer
from ottla.errors import ErrorCode
from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.environment import GroupEnvironment
from ottla.groups.events import CommitOffsets
from ottla.groups.kinds import GroupKind, OffsetExpiry
from ottla.groups.member_epochs import EMPTY, STABLE
from ottla.groups.records import GroupRecord
from ottla.groups.share.records import (
    ShareAssignment,
    ShareAssignmentDeleted,
    ShareGroupDeleted,
    ShareMemberDeleted,
    ShareMemberMetadata,
    ShareStatePartitions,
    ShareStatePartitionsDeleted,
    ShareTargetDeleted,
    ShareTargetEpochDeleted,
)
from ottla.groups.topics import TopicsView
from ottla.ids import GroupId, MemberId, TopicId, TopicName

SHARE_PROTOCOL: Final = "share"
SHARE_SESSION: Final = "share-session"

FRESH_EPOCH: Final = 0
NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 1
"""A group's, before there is anything to assign: Kafka counts from here since 4.2."""


class ShareMember(NamedTuple):
    """One member: its subscription and its state. Replaced as a whole."""

    member_id: MemberId
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[TopicName] = frozenset()
    epoch: int = FRESH_EPOCH
    previous_epoch: int = NO_EPOCH
    assigned: Partitions = NO_PARTITIONS

    def described_by(self, record: ShareMemberMetadata) -> "ShareMember":
        return self._replace(
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topic_names=record.topic_names,
        )

    def placed_by(self, record: ShareAssignment) -> "ShareMember":
        return self._replace(epoch=record.epoch, previous_epoch=record.previous_epoch, assigned=record.partitions)


class ShareGroup:
    """What lasts of a share group, and what is remembered so that a heartbeat that changes nothing is cheap."""

    kind: Final = GroupKind.SHARE
    protocol_type: Final = SHARE_PROTOCOL
    may_expire: Final = False

    def __init__(self, group_id: GroupId, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FRESH_EPOCH
        self.assigned_ms = 0
        """When the target assignment was computed; 0 if there is none, or it has no recorded time."""
        self.members: dict[MemberId, ShareMember] = {}
        self.target: dict[MemberId, Partitions] = {}
        self.state_partitions: ShareStatePartitions | None = None
        self.initialize_again_ms = 0
        """When an initialization under way is retried: its coordinator may have stopped."""
        self.topics_seen: TopicsView | None = None
        """The topics that `metadata_hash` was last held against."""
        self._environment = environment
        self._complete_in: TopicsView | None = None
        """With these topics there is nothing to initialize and nothing to assign."""

    # --- any group ---

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    def commit_refusal(self, commit: CommitOffsets) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND  # as in Kafka: such groups have no committed offsets

    def fetch_refusal(self, member_id: MemberId | None, epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def delete_offsets_refusal(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: TopicName) -> bool:
        return topic in self.subscribed_topics()

    def keep_alive(self, member_id: MemberId) -> list[Effect]:
        return []

    def offset_expiry(self) -> OffsetExpiry | None:
        return None

    def tombstones(self) -> tuple[GroupRecord, ...]:
        return (
            *(record for member_id in self.members for record in self.member_tombstones(member_id)),
            ShareTargetEpochDeleted(self.group_id),
            ShareStatePartitionsDeleted(self.group_id),
            ShareGroupDeleted(self.group_id),
        )

    def member_tombstones(self, member_id: MemberId) -> tuple[GroupRecord, ...]:
        return (
            ShareAssignmentDeleted(self.group_id, member_id),
            ShareTargetDeleted(self.group_id, member_id),
            ShareMemberDeleted(self.group_id, member_id),
        )

    def topics_changed(self, names: frozenset[TopicName]) -> None:
        """The next heartbeat finds another view of them."""

    # --- small things ---

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._environment.settings(self.group_id).share_heartbeat_interval_ms

    def session_timer(self, member_id: MemberId) -> SetTimer:
        """The effect that starts a member's session anew."""
        after_ms = self._environment.settings(self.group_id).share_session_timeout_ms
        return SetTimer((SHARE_SESSION, self.group_id, member_id), after_ms)

    def subscribed_topics(self, instead: ShareMember | None = None, without: MemberId | None = None) -> set[TopicName]:
        """What members subscribe to; with a member as it will be, or without one that leaves."""
        members = {**self.members} if instead is None else {**self.members, instead.member_id: instead}
        return {name for member_id, member in members.items() if member_id != without for name in member.topic_names}

    @property
    def initialized(self) -> Partitions:
        return NO_PARTITIONS if self.state_partitions is None else self.state_partitions.initialized

    @property
    def initializing(self) -> Partitions:
        return NO_PARTITIONS if self.state_partitions is None else self.state_partitions.initializing

    # --- what is missing ---

    def is_complete(self, topics: TopicsView) -> bool:
        """With these topics, is there certainly nothing to initialize and nothing new to assign?"""
        return self._complete_in is topics

    def mark_complete(self, topics: TopicsView) -> None:
        """Nothing is missing, until a later record changes that."""
        self._complete_in = topics

    def has_unassigned(self, names: Iterable[TopicName], topics: TopicsView) -> bool:
        """Whether the target assignment leaves out readable partitions, or contains too many."""
        if not self.members or self.state_partitions is None:
            return False
        readable = {}
        for name in names:
            topic = topics.by_name(name)
            if topic is not None and topic.topic_id in self.initialized:
                readable[topic.topic_id] = self.initialized[topic.topic_id]
        given: dict[TopicId, set[int]] = {}
        for partitions in self.target.values():
            for topic_id, indexes in partitions.items():
                given.setdefault(topic_id, set()).update(indexes)
        return readable != given

    def uninitialized(
        self, names: Iterable[TopicName], topics: TopicsView, now_ms: int
    ) -> dict[TopicId, frozenset[int]]:
        """Partitions of these topics that are not being initialized at present."""
        under_way = NO_PARTITIONS if now_ms >= self.initialize_again_ms else self.initializing
        missing: dict[TopicId, frozenset[int]] = {}
        for name in names:
            topic = topics.by_name(name)
            if topic is None:
                continue
            left = frozenset(range(topic.partition_count))
            left -= self.initialized.get(topic.topic_id, frozenset())
            left -= under_way.get(topic.topic_id, frozenset())
            if left:
                missing[topic.topic_id] = left
        return missing

    # --- what lasts ---

    def set_member(self, member: ShareMember) -> None:
        """Add a member, or replace what is known of it."""
        self.members[member.member_id] = member
        self._complete_in = None

    def remove_member(self, member_id: MemberId) -> None:
        """Remove a member, if it is there."""
        self.members.pop(member_id, None)
        self._complete_in = None

    def set_target(self, member_id: MemberId, partitions: Partitions | None) -> None:
        """Set a member's target assignment; None deletes it."""
        if partitions is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = partitions
        self._complete_in = None

    def set_state_partitions(self, record: ShareStatePartitions | None) -> None:
        """Set which partitions have delivery state; None deletes the record."""
        self.state_partitions = record
        self._complete_in = None


def united(one: Partitions, other: Partitions) -> dict[TopicId, frozenset[int]]:
    """The partitions of both."""
    return {
        topic_id: one.get(topic_id, frozenset()) | other.get(topic_id, frozenset()) for topic_id in {**one, **other}
    }


def without(one: Partitions, other: Partitions) -> dict[TopicId, frozenset[int]]:
    """The partitions of `one` that are not in `other`."""
    left = {topic_id: indexes - other.get(topic_id, frozenset()) for topic_id, indexes in one.items()}
    return {topic_id: indexes for topic_id, indexes in left.items() if indexes}


def both(one: Partitions, other: Partitions) -> dict[TopicId, frozenset[int]]:
    """The partitions that are in both."""
    common = {topic_id: indexes & other.get(topic_id, frozenset()) for topic_id, indexes in one.items()}
    return {topic_id: indexes for topic_id, indexes in common.items() if indexes}


def names_of(topic_ids: Iterable[TopicId], topics: TopicsView) -> Mapping[TopicId, TopicName]:
    """The names of those topics that exist."""
    found = ((topic_id, topics.by_id(topic_id)) for topic_id in topic_ids)
    return {topic_id: topic.name for topic_id, topic in found if topic is not None}
