"""How a consumer group moves on: epochs, target assignments, members one step nearer to them, members that go. PURE.

Everything here adds to a `Decision`: records that are not in force yet, and effects that follow them. The group itself
stays as it is until the records are replayed, so that what is decided later in the same request asks the decision.

Source: KIP-848, as Kafka 4.3 does it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.coordination.state_machine import Append, CancelTimer, Effect, SetTimer, TimerKey
from ottla.groups.classic.protocol import ClassicGroup
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.assignors import ASSIGNORS, AssignmentProblem, Subscriber
from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.consumer.group import ConsumerGroup, Resolution
from ottla.groups.consumer.members import ConsumerMember, reconciled
from ottla.groups.consumer.records import (
    ConsumerGroupEpoch,
    CurrentAssignmentDeleted,
    MemberState,
    MemberSubscriptionDeleted,
    ResolvedRegexDeleted,
    SubscriptionMetadataDeleted,
    TargetAssignment,
    TargetAssignmentDeleted,
    TargetAssignmentEpoch,
)
from ottla.groups.environment import GroupEnvironment
from ottla.groups.history import AssignmentByName, Histories, Rebalance, moves_between
from ottla.groups.kinds import left_of_interval_ms
from ottla.groups.records import GroupRecord
from ottla.groups.topic_hash import TopicHashes
from ottla.groups.topics import Topic
from ottla.ids import GroupId, MemberId, TopicId, TopicName

log = logging.getLogger(__name__)

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"

FAST_HEARTBEATS_MS: Final = 10_000
"""For how long after its epoch has moved a group's members are asked to come back sooner."""


class Decision:
    """What one event leads to: records in the order of the log, then effects."""

    __slots__ = ("effects", "former", "group", "records", "waits_ms")

    def __init__(self, group: ConsumerGroup, former: ClassicGroup | None = None) -> None:
        """`former`: the classic group that becomes this one, unless a member is refused before it does."""
        self.group = group
        self.former = former
        self.records: list[GroupRecord] = []
        self.effects: list[Effect] = []
        self.waits_ms = 0
        """For how long the assignment that the group's epoch asks for cannot be computed yet."""

    def carried_out(self) -> list[Effect]:
        """The effects of the decision; the append of its records comes first."""
        appended: list[Effect] = [Append(tuple(self.records))] if self.records else []
        return appended + self.effects


def timer(kind: str, group_id: GroupId, member_id: MemberId) -> TimerKey:
    return (kind, group_id, member_id)


class Rebalancing:
    """What requests of both protocols need to move a consumer group on."""

    def __init__(self, config: GroupConfig, environment: GroupEnvironment, histories: Histories) -> None:
        self._config = config
        self._environment = environment
        self._histories = histories
        self._hashes = TopicHashes()

    @property
    def default_assignor(self) -> str:
        return self._config.group_consumer_assignors[0]

    # --- group epoch ---

    def move_on(
        self,
        decision: Decision,
        member: ConsumerMember,
        reasons: Sequence[str],
        owned: Partitions | None,
        now_ms: int,
    ) -> ConsumerMember:
        """Apply a member's request, once its description is known: moves the member one step on.

        `reasons`: why the group's epoch has to grow. `owned`: the partitions that the member reports. Raises
        `ApiError`.
        """
        group = decision.group
        epoch = group.group_epoch
        if reasons or group.needs_refresh:
            epoch = self.advance(decision, group.with_member(member), reasons, now_ms)
        target_epoch = group.assignment_epoch
        decision.waits_ms = self.wait_ms(group, now_ms) if epoch > target_epoch else 0
        if epoch > target_epoch and decision.waits_ms == 0:
            target_epoch = epoch
            target = self._assign(decision, epoch, group.with_member(member), member, now_ms)
        else:
            target = group.target_of(member.member_id, member.instance_id)
        updated = self.reconcile(decision, member, target_epoch, target, owned, subscription_changed=bool(reasons))
        group.needs_refresh = False
        return updated

    def advance(
        self,
        decision: Decision,
        members: Mapping[MemberId, ConsumerMember],
        reasons: Sequence[str],
        now_ms: int,
        resolutions: Mapping[str, Resolution] | None = None,
    ) -> int:
        """The group's epoch once its members are these: another one if there are `reasons`, or topics have changed."""
        group = decision.group
        metadata_hash = self.hash_of(group.subscribed_topics(members.values(), resolutions))
        if metadata_hash != group.metadata_hash and not reasons:
            reasons = ("its topics have changed",)
        epoch = group.group_epoch
        if reasons:
            epoch += 1
            self._bump(decision, epoch, metadata_hash, reasons, now_ms)
        if group.has_old_metadata:
            decision.records.append(SubscriptionMetadataDeleted(group.group_id))
        return epoch

    def hash_of(self, topics: frozenset[TopicName]) -> int:
        return self._hashes.of(topics, self._environment.topics())

    def _bump(self, decision: Decision, epoch: int, metadata_hash: int, reasons: Sequence[str], now_ms: int) -> None:
        group_id = decision.group.group_id
        decision.group.fast_heartbeats_until_ms = now_ms + FAST_HEARTBEATS_MS
        history = self._histories.of(group_id)
        for reason in reasons:
            history.because(reason)
        log.debug("group %s: epoch %d (%s)", group_id, epoch, "; ".join(reasons))
        decision.records.append(ConsumerGroupEpoch(group_id, epoch, metadata_hash))

    # --- target assignment ---

    def wait_ms(self, group: ConsumerGroup, now_ms: int) -> int:
        """For how long no other assignment may be computed (`consumer.assignment.interval.ms`, KIP-1263)."""
        return left_of_interval_ms(
            group.assigned_ms, self._environment.settings(group.group_id).consumer_assignment_interval_ms, now_ms
        )

    def must_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> bool:
        """Whether a classic member has to join again for another assignment, computed or to be computed."""
        return member.epoch < group.assignment_epoch or (
            group.group_epoch > group.assignment_epoch and self.wait_ms(group, now_ms) == 0
        )

    def _assign(
        self,
        decision: Decision,
        epoch: int,
        members: Mapping[MemberId, ConsumerMember],
        newest: ConsumerMember,
        now_ms: int,
    ) -> Partitions:
        """Compute the target assignment of this epoch; returns the target of `newest`.

        `newest` takes over the target of the previous holder of its instance id.
        """
        group = decision.group
        topics: dict[TopicId, Topic] = {}
        subscribed: dict[frozenset[TopicName], frozenset[TopicId]] = {}
        subscribers: dict[MemberId, Subscriber] = {}
        for member_id, member in members.items():
            names = group.topics_of(member)
            topic_ids = subscribed.get(names)
            if topic_ids is None:
                topic_ids = subscribed[names] = self._ids_of(names, topics)
            target = group.target.get(member_id, NO_PARTITIONS)
            if member is newest:
                target = group.target_of(member_id, member.instance_id)
            subscribers[member_id] = Subscriber(topic_ids, member.instance_id, member.rack_id, target)
        assignor = group.preferred_assignor(self.default_assignor, members.values())
        if assignor not in ASSIGNORS:  # written to the log by a broker that had it
            assignor = self.default_assignor
        assigned = ASSIGNORS[assignor](AssignmentProblem(subscribers, topics))
        for member_id, partitions in assigned.items():
            if group.target.get(member_id) != partitions:
                decision.records.append(TargetAssignment(group.group_id, member_id, partitions))
        # An assignment of nothing holds up no other one: an expression is just being resolved.
        decision.records.append(TargetAssignmentEpoch(group.group_id, epoch, now_ms if any(assigned.values()) else 0))
        self._remember(group, epoch, assignor, assigned, now_ms)
        return assigned[newest.member_id]

    def _ids_of(self, names: frozenset[TopicName], topics: dict[TopicId, Topic]) -> frozenset[TopicId]:
        view = self._environment.topics()
        found = [topic for name in names if (topic := view.by_name(name)) is not None]
        topics.update((topic.topic_id, topic) for topic in found)
        return frozenset(topic.topic_id for topic in found)

    def _remember(
        self, group: ConsumerGroup, epoch: int, assignor: str, assigned: Mapping[MemberId, Partitions], now_ms: int
    ) -> None:
        # Members that keep their assignment take no part: in a large group those are nearly all.
        before = {id_: had for id_, had in group.target.items() if assigned.get(id_) is not had}
        after = {id_: gets for id_, gets in assigned.items() if group.target.get(id_) is not gets}
        moved, moves = moves_between(self._by_name(before), self._by_name(after))
        history = self._histories.of(group.group_id)
        reasons = history.take_reasons()
        history.add(Rebalance(now_ms, epoch, group.kind, assignor, reasons, len(assigned), moved, moves))

    def _by_name(self, assignment: Mapping[MemberId, Partitions]) -> dict[MemberId, AssignmentByName]:
        view = self._environment.topics()

        def name_of(topic_id: TopicId) -> TopicName:
            topic = view.by_id(topic_id)
            return TopicName(str(topic_id)) if topic is None else topic.name

        return {
            member_id: {name_of(topic_id): indexes for topic_id, indexes in partitions.items()}
            for member_id, partitions in assignment.items()
        }

    # --- current assignment ---

    def reconcile(
        self,
        decision: Decision,
        member: ConsumerMember,
        target_epoch: int,
        target: Partitions,
        owned: Partitions | None,
        *,
        subscription_changed: bool = False,
    ) -> ConsumerMember:
        """The member one step nearer to its target, and without topics that it does not read any longer.

        Raises `ApiError` FENCED_MEMBER_EPOCH.
        """
        if not subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        group = decision.group
        names = group.topics_of(member)
        view = self._environment.topics()

        def reads(topic_id: TopicId) -> bool:
            topic = view.by_id(topic_id)
            return topic is not None and topic.name in names

        updated = reconciled(member, target_epoch, target, group.is_owned, owned, reads)
        if updated == member:
            return member
        decision.records.append(updated.current_record(group.group_id))
        if updated.classic is None:
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                decision.effects.append(self.revocation_timer(group.group_id, updated))
            else:
                decision.effects.append(CancelTimer(timer(REBALANCE, group.group_id, member.member_id)))
        return updated

    # --- members that go ---

    def remove(self, decision: Decision, members: Sequence[ConsumerMember], reason: str, now_ms: int) -> None:
        """Take these members out; the others are assigned what they had with the next heartbeat."""
        group = decision.group
        gone = {member.member_id for member in members}
        for member in members:
            self.remove_records(decision, member.member_id)
        left = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
        still_used = {member.topic_regex for member in left.values()}
        for regex in dict.fromkeys(member.topic_regex for member in members if member.topic_regex):
            if regex not in still_used:
                decision.records.append(ResolvedRegexDeleted(group.group_id, regex))
        self._bump(
            decision, group.group_epoch + 1, self.hash_of(group.subscribed_topics(left.values())), (reason,), now_ms
        )
        for member in members:
            decision.effects += self.cancel_timers(group.group_id, member.member_id)

    def remove_records(self, decision: Decision, member_id: MemberId) -> None:
        """Decide to delete a member: its assignment, its target and its subscription."""
        group_id = decision.group.group_id
        decision.records.append(CurrentAssignmentDeleted(group_id, member_id))
        decision.records.append(TargetAssignmentDeleted(group_id, member_id))
        decision.records.append(MemberSubscriptionDeleted(group_id, member_id))

    def cancel_timers(self, group_id: GroupId, member_id: MemberId) -> list[Effect]:
        return [CancelTimer(timer(kind, group_id, member_id)) for kind in (SESSION, REBALANCE, JOIN, SYNC)]

    # --- timers ---

    def session_timer(self, group_id: GroupId, member: ConsumerMember) -> SetTimer:
        """The effect that starts a member's session anew."""
        timeout_ms = (
            self._environment.settings(group_id).consumer_session_timeout_ms
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        return SetTimer(timer(SESSION, group_id, member.member_id), timeout_ms)

    def revocation_timer(self, group_id: GroupId, member: ConsumerMember) -> SetTimer:
        """The time limit for revoking partitions; a negative limit counts as no time at all."""
        return SetTimer(timer(REBALANCE, group_id, member.member_id), max(member.rebalance_timeout_ms, 0))
