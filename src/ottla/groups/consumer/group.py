"""A consumer group of KIP-848: what it knows, what can be asked of it, and how records change it. PURE.

Three epochs, each following the one before:

    group epoch         grows when members, subscriptions or topics change
    assignment epoch    the group epoch that the target assignment was computed for
    member epoch        how far a member has come on its way to its part of the target

Whatever is decided about the group (`consumer_groups`, `consumer_classic`) is written as records; `apply` puts them
into force, here and at a successor alike.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.groups.classic.subscription import CONSUMER_PROTOCOL
from ottla.groups.consumer.events import LEAVING, NO_PARTITIONS, Partitions
from ottla.groups.consumer.members import ConsumerMember
from ottla.groups.consumer.records import (
    ConsumerGroupDeleted,
    ConsumerGroupEpoch,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentDeleted,
    MemberSubscription,
    MemberSubscriptionDeleted,
    ResolvedRegex,
    ResolvedRegexDeleted,
    SubscriptionMetadata,
    SubscriptionMetadataDeleted,
    TargetAssignment,
    TargetAssignmentDeleted,
    TargetAssignmentEpoch,
    TargetAssignmentEpochDeleted,
)
from ottla.groups.kinds import GroupKind, OffsetExpiry
from ottla.groups.member_epochs import EMPTY, MemberEpochsGroup
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName

NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 1
"""A group's, before there is anything to assign: Kafka counts from here since 4.2."""


class Resolution(NamedTuple):
    """The topics that a regular expression stood for."""

    topics: frozenset[TopicName]
    version: int
    timestamp_ms: int


NEVER_RESOLVED: Final = Resolution(frozenset(), 0, -1)


class ConsumerGroup(MemberEpochsGroup[ConsumerMember]):
    """One group. Everything but what stands under "in memory" changes by `apply` alone."""

    kind: Final = GroupKind.CONSUMER
    protocol_type: Final = CONSUMER_PROTOCOL

    __slots__ = (
        "_owners",
        "assigned_ms",
        "assignment_epoch",
        "awaiting_join",
        "fast_heartbeats_until_ms",
        "group_epoch",
        "group_id",
        "has_old_metadata",
        "members",
        "metadata_hash",
        "needs_refresh",
        "regexes",
        "resolutions",
        "resolve_asked_ms",
        "static_members",
        "target",
    )

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.assignment_epoch = 0
        self.assigned_ms = 0
        """When the target assignment was computed; 0 if there is none, or it has no recorded time."""
        self.metadata_hash = 0
        self.members: dict[MemberId, ConsumerMember] = {}
        self.static_members: dict[InstanceId, MemberId] = {}
        self.target: dict[MemberId, Partitions] = {}
        self.regexes: Counter[str] = Counter()
        """How many members are subscribed to each regular expression."""
        self.resolutions: dict[str, Resolution] = {}
        self.has_old_metadata = False
        """The log has a record about topics from before 4.1, to be deleted at the next chance."""
        self._owners: dict[TopicId, dict[int, MemberId]] = {}
        """The member that has each partition, or still has to revoke it."""

        # In memory:
        self.needs_refresh = True
        """Topics may have changed since the hash was computed."""
        self.resolve_asked_ms: int | None = None
        """When the topics of regular expressions were last asked for, in vain so far."""
        self.fast_heartbeats_until_ms = 0
        """Partitions move, or have just moved: members are to come back soon."""
        self.awaiting_join: set[MemberId] = set()
        """Classic members that were asked to rejoin, and are given time for it."""

    def remember_as(self, draft: "ConsumerGroup") -> None:
        """Take over what is in memory only."""
        self.needs_refresh = draft.needs_refresh
        self.resolve_asked_ms = draft.resolve_asked_ms
        self.fast_heartbeats_until_ms = draft.fast_heartbeats_until_ms

    # --- of every group ---

    @property
    def state_name(self) -> str:
        return self.reconciliation(self.group_epoch) if self.members else EMPTY

    def needs_member_epochs(self, member: ConsumerMember) -> bool:
        return member.classic is None

    def epoch_refusal(self, member: ConsumerMember, epoch: int) -> ErrorCode:
        if epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def is_subscribed_to(self, topic: TopicName) -> bool:
        return topic in self.subscribed_topics()

    def offset_expiry(self) -> OffsetExpiry:
        return OffsetExpiry(subscribed=self.subscribed_topics())

    def tombstones(self) -> tuple[ConsumerRecord, ...]:
        return tuple(self.tombstones_of(self.members))

    def tombstones_of(self, members: Iterable[MemberId]) -> Iterable[ConsumerRecord]:
        """Take the group out of the log, with these members: the last record is the group itself."""
        member_ids = list(members)
        group_id = self.group_id
        yield from (CurrentAssignmentDeleted(group_id, member_id) for member_id in member_ids)
        yield from (TargetAssignmentDeleted(group_id, member_id) for member_id in member_ids)
        yield TargetAssignmentEpochDeleted(group_id)
        yield from (MemberSubscriptionDeleted(group_id, member_id) for member_id in member_ids)
        yield from (ResolvedRegexDeleted(group_id, regex) for regex in self.resolutions)
        if self.has_old_metadata:
            yield SubscriptionMetadataDeleted(group_id)
        yield ConsumerGroupDeleted(group_id)

    def topics_changed(self, names: frozenset[TopicName]) -> None:
        """The next heartbeat looks whether this changes the assignment."""
        if not self.needs_refresh and not names.isdisjoint(self.subscribed_topics()):
            self.needs_refresh = True

    # --- questions ---

    def static_member(self, instance_id: InstanceId | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: MemberId, instance_id: InstanceId | None) -> Partitions:
        """The target of the member; of a static one, the target of the previous holder of its instance id."""
        if instance_id is not None:
            found = self.static_members.get(instance_id)
            return NO_PARTITIONS if found is None else self.target.get(found, NO_PARTITIONS)
        return self.target.get(member_id, NO_PARTITIONS)

    def is_owned(self, topic_id: TopicId, partition: int) -> bool:
        """Does a member have the partition, or still have to give it up?"""
        owners = self._owners.get(topic_id)
        return owners is not None and partition in owners

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still has a part of the member's target."""
        return any(
            self.is_owned(topic_id, partition)
            for topic_id, partitions in self.target.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions - member.assigned.get(topic_id, frozenset())
        )

    def topics_of(self, member: ConsumerMember) -> frozenset[TopicName]:
        """By name and by regular expression."""
        resolution = self.resolutions.get(member.topic_regex) if member.topic_regex else None
        if resolution is None:
            return member.topic_names
        return member.topic_names | resolution.topics if member.topic_names else resolution.topics

    def subscribed_topics(
        self,
        members: Iterable[ConsumerMember] | None = None,
        resolutions: Mapping[str, Resolution] | None = None,
    ) -> frozenset[TopicName]:
        """What all of them read; without `members`, what the group reads; with other `resolutions` than it has."""
        known = self.resolutions if resolutions is None else resolutions
        named: set[frozenset[TopicName]] = set()
        regexes: set[str] = set()
        for member in self.members.values() if members is None else members:
            named.add(member.topic_names)
            if member.topic_regex:
                regexes.add(member.topic_regex)
        resolved = (known.get(regex, NEVER_RESOLVED).topics for regex in regexes)
        return frozenset().union(*named, *resolved)

    def preferred_assignor(self, default: str, members: Iterable[ConsumerMember] | None = None) -> str:
        """The one that most members ask for."""
        everybody = self.members.values() if members is None else members
        votes = Counter(member.assignor for member in everybody if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else default

    def with_member(self, member: ConsumerMember) -> dict[MemberId, ConsumerMember]:
        """The members, with this one in its present state, and without the one it replaces."""
        members = dict(self.members)
        if member.instance_id is not None:
            previous = self.static_members.get(member.instance_id)
            if previous is not None and previous != member.member_id:
                members.pop(previous, None)
        members[member.member_id] = member
        return members

    # --- what lasts ---

    def apply(self, record: ConsumerRecord) -> None:
        """Put a record into force, in whatever order compaction has left them."""
        _APPLY[type(record)](self, record)

    def _apply_epoch(self, record: ConsumerGroupEpoch) -> None:
        self.group_epoch = record.epoch
        self.metadata_hash = record.metadata_hash

    def _apply_old_metadata(self, record: SubscriptionMetadata) -> None:
        self.has_old_metadata = True

    def _apply_no_old_metadata(self, record: SubscriptionMetadataDeleted) -> None:
        self.has_old_metadata = False

    def _apply_member(self, record: MemberSubscription) -> None:
        member = self.members.get(record.member_id) or ConsumerMember(record.member_id)
        self._count_regexes(member.topic_regex, record.topic_regex)
        self.members[record.member_id] = member.described_by(record)
        if record.instance_id is not None:
            self.static_members[record.instance_id] = record.member_id

    def _apply_no_member(self, record: MemberSubscriptionDeleted) -> None:
        member = self.members.pop(record.member_id, None)
        if member is None:
            return
        self._count_regexes(member.topic_regex, None)
        self._release(member)
        self.awaiting_join.discard(member.member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _apply_target_epoch(self, record: TargetAssignmentEpoch) -> None:
        self.assignment_epoch = record.epoch
        self.assigned_ms = record.computed_ms

    def _apply_no_target_epoch(self, record: TargetAssignmentEpochDeleted) -> None:
        self.assignment_epoch = NO_EPOCH
        self.assigned_ms = 0

    def _apply_target(self, record: TargetAssignment) -> None:
        self.target[record.member_id] = record.partitions

    def _apply_no_target(self, record: TargetAssignmentDeleted) -> None:
        self.target.pop(record.member_id, None)

    def _apply_current(self, record: CurrentAssignment) -> None:
        member = self.members.get(record.member_id) or ConsumerMember(record.member_id)
        self._release(member)
        member = member.placed_by(record)
        self.members[record.member_id] = member
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, member.member_id))

    def _apply_no_current(self, record: CurrentAssignmentDeleted) -> None:
        member = self.members.get(record.member_id)
        if member is not None:
            self._release(member)
            self.members[record.member_id] = member._replace(
                epoch=LEAVING, previous_epoch=LEAVING, assigned=NO_PARTITIONS, pending_revocation=NO_PARTITIONS
            )

    def _apply_resolution(self, record: ResolvedRegex) -> None:
        self.resolutions[record.regex] = Resolution(record.topics, record.version, record.timestamp_ms)
        self.resolve_asked_ms = None

    def _apply_no_resolution(self, record: ResolvedRegexDeleted) -> None:
        self.resolutions.pop(record.regex, None)

    def _count_regexes(self, old: str | None, new: str | None) -> None:
        if old:
            self.regexes[old] -= 1
            if not self.regexes[old]:
                del self.regexes[old]
        if new:
            self.regexes[new] += 1

    def _release(self, member: ConsumerMember) -> None:
        """Release the member's partitions, unless another member has taken them since."""
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                owners = self._owners.get(topic_id, {})
                for index in indexes:
                    if owners.get(index) == member.member_id:
                        del owners[index]
                if not owners:
                    self._owners.pop(topic_id, None)


_APPLY: Final[Mapping[type, Callable[[ConsumerGroup, Any], None]]] = MappingProxyType(
    {
        ConsumerGroupEpoch: ConsumerGroup._apply_epoch,
        SubscriptionMetadata: ConsumerGroup._apply_old_metadata,
        SubscriptionMetadataDeleted: ConsumerGroup._apply_no_old_metadata,
        MemberSubscription: ConsumerGroup._apply_member,
        MemberSubscriptionDeleted: ConsumerGroup._apply_no_member,
        TargetAssignmentEpoch: ConsumerGroup._apply_target_epoch,
        TargetAssignmentEpochDeleted: ConsumerGroup._apply_no_target_epoch,
        TargetAssignment: ConsumerGroup._apply_target,
        TargetAssignmentDeleted: ConsumerGroup._apply_no_target,
        CurrentAssignment: ConsumerGroup._apply_current,
        CurrentAssignmentDeleted: ConsumerGroup._apply_no_current,
        ResolvedRegex: ConsumerGroup._apply_resolution,
        ResolvedRegexDeleted: ConsumerGroup._apply_no_resolution,
    }
)
"""All but `ConsumerGroupDeleted`, which takes the group itself away."""
