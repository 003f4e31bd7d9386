"""The part of the machine that owns consumer groups: heartbeats, members that go, regular expressions. PURE.

A heartbeat carries everything: the member's wishes and what it has; the answer, what it is to have. What it leads to,
in this order and each only if needed: the member's description is written, the group's epoch moves, a target
assignment is worked out for it, and the member goes one step towards its part.

Source: KIP-848, as Kafka 4.3 does it. Requests of members of the classic protocol: `consumer_classic`.
"""

import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from ottla.coordination.state_machine import (
    CancelTimer,
    Effect,
    IllegalTransition,
    LongDecision,
    Reply,
    SetTimer,
    TimerKey,
)
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic.protocol import ClassicGroup
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    NO_PARTITIONS,
    AssignedTopic,
    ConsumerBeat,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
    DescribeConsumerGroups,
    Partitions,
    RegexesResolved,
)
from ottla.groups.consumer.expressions import Expressions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.leaving import Leaving
from ottla.groups.consumer.members import NO_TIMEOUT, ConsumerMember
from ottla.groups.consumer.migration import dissolved, refuse_upgrade, upgraded
from ottla.groups.consumer.rebalance import (
    FAST_HEARTBEATS_MS,
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    Decision,
    Rebalancing,
    timer,
)
from ottla.groups.consumer.records import ENCODERS as CONSUMER_RECORDS
from ottla.groups.consumer.records import (
    ConsumerGroupDeleted,
    ConsumerRecord,
    CurrentAssignmentDeleted,
    MemberState,
    MemberSubscriptionDeleted,
    ResolvedRegexDeleted,
    SubscriptionMetadata,
    SubscriptionMetadataDeleted,
    TargetAssignmentDeleted,
    TargetAssignmentEpochDeleted,
)
from ottla.groups.consumer.refusals import (
    known_instance,
    not_a_consumer_group,
    refuse_epoch,
    refuse_if_full,
    unknown_member,
)
from ottla.groups.environment import GroupEnvironment
from ottla.groups.kinds import EventHandlers, Groups, Replays, TimerHandlers
from ottla.ids import GroupId, MemberId

log = logging.getLogger(__name__)

HURRY_LEAST_MS: Final = 100
HURRY_MS_PER_MEMBER: Final = 5
"""How soon members are asked to come back while partitions move: together, some 200 times a second."""


class ConsumerGroups:
    """ConsumerGroupHeartbeat, ConsumerGroupDescribe; records with keys 3 to 8 and 16."""

    def __init__(
        self,
        groups: Groups,
        config: GroupConfig,
        environment: GroupEnvironment,
        rebalancing: Rebalancing,
        leaving: Leaving,
        new_uuid: Callable[[], str],
        forget: Callable[[GroupId], None],
    ) -> None:
        """`forget` removes a group that the log no longer has."""
        self._groups = groups
        self._config = config
        self._environment = environment
        self._rebalancing = rebalancing
        self._leaving = leaving
        self._new_uuid = new_uuid
        self._forget = forget
        self._expressions = Expressions(groups, config, environment, rebalancing)
        self._drafts: dict[GroupId, ConsumerGroup] = {}
        """Groups whose first records are on their way to being replayed; they pass on what is in memory only."""
        self.events: Final[EventHandlers] = MappingProxyType(
            {
                ConsumerHeartbeat: self._heartbeat,
                RegexesResolved: self._expressions.resolved,
                DescribeConsumerGroups: self._describe,
            }
        )
        self.timers: Final[TimerHandlers] = MappingProxyType(
            {
                SESSION: self._session_ended,
                REBALANCE: self._revocation_is_overdue,
                JOIN: self._join_is_overdue,
                SYNC: self._sync_is_overdue,
            }
        )
        self.replays: Final[Replays] = MappingProxyType(
            {
                **dict.fromkeys((*CONSUMER_RECORDS, SubscriptionMetadata), self._replay),
                ConsumerGroupDeleted: self._replay_deletion,
            }
        )

    # --- ConsumerGroupHeartbeat ---

    def _heartbeat(self, event: ConsumerHeartbeat, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        if event.member_epoch > JOINING and type(group) is ConsumerGroup:
            member = group.members.get(event.member_id)
            if member is not None and _changes_nothing(event, group, member):
                return self._as_before(event, group, member, now_ms)
        try:
            if event.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                return self._leave(event, now_ms)
            return self._move_on(event, now_ms)
        except ApiError as refusal:
            self._drafts.pop(event.group_id, None)
            return [Reply(event, ConsumerBeat(refusal.code, str(refusal)))]

    def _as_before(
        self, event: ConsumerHeartbeat, group: ConsumerGroup, member: ConsumerMember, now_ms: int
    ) -> list[Effect]:
        """Nearly all heartbeats end here."""
        settings = self._environment.settings(group.group_id)
        assignment = member.assigned if _is_full(event) else None
        interval_ms = _interval_ms(settings.consumer_heartbeat_interval_ms, group, member, now_ms)
        beat = ConsumerBeat(ErrorCode.NONE, None, member.member_id, member.epoch, interval_ms, assignment)
        key = timer(SESSION, group.group_id, member.member_id)
        return [SetTimer(key, settings.consumer_session_timeout_ms), Reply(event, beat)]

    def _move_on(self, event: ConsumerHeartbeat, now_ms: int) -> list[Effect]:
        decision = self._group_for(event)
        group = decision.group
        refuse_if_full(group, event.member_id, self._config)
        before = self._member_for(event, decision)
        member = _as_told(before, event)

        reasons: list[str] = []
        if member != before:
            decision.records.append(member.subscription_record(group.group_id))
            if member.topic_names != before.topic_names:
                is_new = before.member_id not in group.members and not before.topic_names
                reasons.append(f"{member.member_id} {'joins' if is_new else 'reads other topics'}")
        if self._expressions.follow(decision, before, member):
            reasons.append(f"{member.member_id} subscribes to {member.topic_regex or 'no expression any more'}")
        resolve = self._expressions.to_resolve(group, before, member, now_ms)

        member = self._rebalancing.move_on(decision, member, reasons, event.owned, now_ms)
        if decision.former is not None:
            decision.effects[:0] = self._dissolve(decision.former, group)

        settings = self._environment.settings(group.group_id)
        is_told = event.member_epoch == JOINING or _is_full(event) or member.assigned != before.assigned
        beat = ConsumerBeat(
            ErrorCode.NONE,
            None,
            member.member_id,
            member.epoch,
            _interval_ms(settings.consumer_heartbeat_interval_ms, group, member, now_ms, decision.waits_ms),
            member.assigned if is_told else None,
            resolve,
        )
        key = timer(SESSION, group.group_id, member.member_id)
        decision.effects.append(SetTimer(key, settings.consumer_session_timeout_ms))
        decision.effects.append(Reply(event, beat))
        return decision.carried_out()

    # --- which group, which member ---

    def _group_for(self, event: ConsumerHeartbeat) -> Decision:
        """Joining creates the group, or converts a classic one. Raises `ApiError`."""
        group = self._groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            return Decision(group)
        joins = event.member_epoch == JOINING
        if group is None:
            if not joins:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {event.group_id} not found.")
            return Decision(self._draft(event.group_id))
        if not joins or not isinstance(group, ClassicGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {event.group_id} is not a consumer group.")
        decision = Decision(self._draft(event.group_id), former=group)
        decision.records += group.tombstones()
        if not group.is_empty:
            refuse_upgrade(group, self._config)
            records = upgraded(group, self._environment.topics(), self._rebalancing.hash_of)
            for record in records:
                decision.group.apply(record)
            decision.records += records
        return decision

    def _dissolve(self, former: ClassicGroup, group: ConsumerGroup) -> list[Effect]:
        """After the last possible refusal: answer the waiting requests of the classic group, and expect heartbeats."""
        log.info("group %s becomes a consumer group", group.group_id)
        sessions = [self._rebalancing.session_timer(group.group_id, member) for member in group.members.values()]
        return [*dissolved(former), *sessions]

    def _draft(self, group_id: GroupId) -> ConsumerGroup:
        """A draft for the decision; the group itself is made when the records are replayed."""
        draft = self._drafts[group_id] = ConsumerGroup(group_id)
        return draft

    def _member_for(self, event: ConsumerHeartbeat, decision: Decision) -> ConsumerMember:
        """The member as it is, or a new one without any state. Raises `ApiError`."""
        group = decision.group
        member_id = event.member_id or MemberId(self._new_uuid())
        joins = event.member_epoch == JOINING
        if event.instance_id is not None:
            return self._static_member_for(event, decision, member_id)
        member = group.members.get(member_id)
        if member is None:
            if not joins:
                raise unknown_member(group.group_id, member_id)
            member = ConsumerMember(member_id)
        refuse_epoch(member, event.member_epoch, event.owned)
        return member

    def _static_member_for(self, event: ConsumerHeartbeat, decision: Decision, member_id: MemberId) -> ConsumerMember:
        group = decision.group
        current = group.static_member(event.instance_id)
        if event.member_epoch != JOINING:
            current = known_instance(current, event.instance_id, member_id)
            refuse_epoch(current, event.member_epoch, event.owned)
            return current
        if current is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if current.classic is None and current.epoch != LEAVING_FOR_A_WHILE:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {event.instance_id} cannot join the group because the "
                f"instance id is owned by {current.member_id} member.",
            )
        return self._leaving.replace(decision, current, member_id)

    # --- members that go ---

    def _leave(self, event: ConsumerHeartbeat, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup):
            raise not_a_consumer_group(event.group_id, exists=group is not None)
        decision = Decision(group)
        epoch = event.member_epoch
        if event.instance_id is None:
            member = group.members.get(event.member_id)
            if member is None:
                raise unknown_member(group.group_id, event.member_id)
        else:
            member = known_instance(group.static_member(event.instance_id), event.instance_id, event.member_id)
        if event.instance_id is not None and epoch == LEAVING_FOR_A_WHILE:
            # It keeps its place, and what it has, until its session ends or its instance id comes back.
            log.info("group %s: %s leaves for a while", group.group_id, member.member_id)
            away = member._replace(epoch=LEAVING_FOR_A_WHILE, pending_revocation=NO_PARTITIONS)
            decision.records.append(away.current_record(group.group_id))
            decision.effects.append(CancelTimer(timer(REBALANCE, group.group_id, member.member_id)))
        else:
            self._leaving.remove(decision, (member,), f"{member.member_id} leaves", now_ms)
        decision.effects.append(Reply(event, ConsumerBeat(ErrorCode.NONE, None, member.member_id, epoch)))
        return decision.carried_out()

    def _fence(self, key: TimerKey, why: str, now_ms: int) -> list[Effect]:
        group = self._groups.get(GroupId(key[1]))
        member = group.members.get(MemberId(key[2])) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return []
        decision = Decision(group)
        self._leaving.remove(decision, (member,), f"{member.member_id} {why}", now_ms)
        return decision.carried_out()

    def _session_ended(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._fence(key, "has failed, its session timed out", now_ms)

    def _revocation_is_overdue(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._fence(key, "has not given up its partitions in time", now_ms)

    def _join_is_overdue(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._fence(key, "has not joined again in time", now_ms)

    def _sync_is_overdue(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._fence(key, "has not asked for its assignment in time", now_ms)

    # --- ConsumerGroupDescribe ---

    def _describe(self, event: DescribeConsumerGroups, now_ms: int) -> list[Effect]:
        return [Reply(event, tuple(self._describe_one(group_id) for group_id in event.group_ids))]

    def _describe_one(self, group_id: GroupId) -> ConsumerGroupDescription:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            problem = not_a_consumer_group(group_id, exists=group is not None)
            return ConsumerGroupDescription(problem.code, str(problem), group_id)
        members = tuple(
            ConsumerMemberDescription(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                tuple(sorted(member.topic_names)),
                member.topic_regex,
                self._named(member.responsible_for),
                self._named(group.target.get(member.member_id, NO_PARTITIONS)),
                member.classic is not None,
            )
            for member in group.members.values()
        )
        return ConsumerGroupDescription(
            ErrorCode.NONE,
            None,
            group_id,
            group.state_name,
            group.group_epoch,
            group.assignment_epoch,
            group.preferred_assignor(self._rebalancing.default_assignor),
            members,
        )

    def _named(self, partitions: Partitions) -> tuple[AssignedTopic, ...]:
        """Topics that are gone are left out."""
        view = self._environment.topics()
        return tuple(
            AssignedTopic(topic_id, topic.name, tuple(sorted(indexes)))
            for topic_id, indexes in partitions.items()
            if (topic := view.by_id(topic_id)) is not None
        )

    # --- what lasts ---

    def _replay(self, record: ConsumerRecord, position: int, producer_id: int) -> None:
        group = self._groups.get(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if type(record) in _DELETIONS:
                return
            if isinstance(group, ClassicGroup) and not group.is_simple:
                raise IllegalTransition(
                    f"group {record.group_id}: a record of a consumer group in a {group.kind} group"
                )
            group = self._groups[record.group_id] = ConsumerGroup(record.group_id)
            draft = self._drafts.pop(record.group_id, None)
            if draft is not None:
                group.remember_as(draft)
        group.apply(record)

    def _replay_deletion(self, record: ConsumerGroupDeleted, position: int, producer_id: int) -> None:
        if isinstance(self._groups.get(record.group_id), ConsumerGroup):
            self._forget(record.group_id)

    def loaded(self, now_ms: int) -> LongDecision:
        """Give every member a full session to contact the new coordinator."""
        for group in list(self._groups.values()):
            yield None
            if not isinstance(group, ConsumerGroup):
                continue
            for member in list(group.members.values()):
                yield self._rebalancing.session_timer(group.group_id, member)
                is_asked = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != LEAVING_FOR_A_WHILE
                if is_asked and member.classic is None:
                    yield self._rebalancing.revocation_timer(group.group_id, member)


_DELETIONS: Final = frozenset(
    {
        SubscriptionMetadataDeleted,
        MemberSubscriptionDeleted,
        TargetAssignmentEpochDeleted,
        TargetAssignmentDeleted,
        CurrentAssignmentDeleted,
        ResolvedRegexDeleted,
    }
)


def _is_full(event: ConsumerHeartbeat) -> bool:
    """A member that sends its full state expects the full state: it got no response, or lost its own."""
    return (
        event.owned is not None
        and event.rebalance_timeout_ms != NO_TIMEOUT
        and (event.topic_names is not None or event.topic_regex is not None)
    )


def _interval_ms(usual_ms: int, group: ConsumerGroup, member: ConsumerMember, now_ms: int, waits_ms: int = 0) -> int:
    """When the member is to come back: sooner while the group moves, since each step of a reconciliation waits for a
    heartbeat, and a member for the steps of others. Kafka keeps to the setting; a group of fifty takes a second here,
    there up to ten. With nothing to do before another assignment may be computed (`waits_ms`), not before that."""
    # More only if the clock was set back.
    has_just_moved = 0 < group.fast_heartbeats_until_ms - now_ms <= FAST_HEARTBEATS_MS
    is_being_resolved = bool(group.regexes or member.topic_regex) and group.resolve_asked_ms is not None
    if not has_just_moved and not is_being_resolved and member.state is MemberState.STABLE:
        return usual_ms
    soon_ms = max(HURRY_LEAST_MS, HURRY_MS_PER_MEMBER * (len(group.members) + 1))
    if member.state is MemberState.STABLE:
        soon_ms = max(soon_ms, waits_ms)
    return min(usual_ms, soon_ms)


def _as_told(member: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerMember:
    """The member as the request describes it; what the request leaves out is as before."""
    return member._replace(
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if event.rebalance_timeout_ms == NO_TIMEOUT else event.rebalance_timeout_ms
        ),
        assignor=member.assignor if event.assignor is None else event.assignor,
        topic_names=member.topic_names if event.topic_names is None else event.topic_names,
        topic_regex=member.topic_regex if event.topic_regex is None else event.topic_regex,
        client_id=event.client_id,
        client_host=event.client_host,
        classic=None,
    )


def _changes_nothing(event: ConsumerHeartbeat, group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the member has its target, and sends no change. False in doubt."""
    return (
        member.epoch == event.member_epoch
        and member.is_reconciled_to(group.group_epoch)
        and group.group_epoch == group.assignment_epoch
        and not group.needs_refresh
        and not group.regexes
        and (event.instance_id is None or group.static_members.get(event.instance_id) == member.member_id)
        and _as_told(member, event) == member
    )
