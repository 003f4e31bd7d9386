"""Members of the classic protocol in a consumer group (KIP-848, migration). PURE.

For such a member the coordinator plays the leader: JoinGroup answers with the member's epoch as generation, SyncGroup
with its assignment, and Heartbeat makes it rejoin whenever there are partitions to revoke or to add. So
one step of reconciliation is one round of JoinGroup and SyncGroup, and no member waits for the others.
"""

import logging
from collections.abc import Callable

from ottla.coordination.state_machine import CancelTimer, Effect, Reply, SetTimer
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic.embedded import partitions_of, read_subscription, write_assignment
from ottla.groups.classic.subscription import CONSUMER_PROTOCOL
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import Partitions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.leaving import Leaving
from ottla.groups.consumer.members import ConsumerMember
from ottla.groups.consumer.migration import may_downgrade
from ottla.groups.consumer.rebalance import JOIN, SYNC, Decision, Rebalancing, timer
from ottla.groups.consumer.records import ClassicMember, MemberState
from ottla.groups.consumer.refusals import known_instance, refuse_if_full, unknown_member
from ottla.groups.environment import GroupEnvironment
from ottla.groups.events import NO_MEMBER, Heartbeat, Join, Joined, Leave, LeavingMember, Left, Sync, Synced
from ottla.groups.history import with_reason
from ottla.ids import InstanceId, MemberId, TopicName
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

log = logging.getLogger(__name__)


class ClassicMembers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup, for a consumer group that is not empty."""

    def __init__(
        self,
        config: GroupConfig,
        environment: GroupEnvironment,
        rebalancing: Rebalancing,
        leaving: Leaving,
        new_uuid: Callable[[], str],
    ) -> None:
        self._config = config
        self._environment = environment
        self._rebalancing = rebalancing
        self._leaving = leaving
        self._new_uuid = new_uuid

    # --- JoinGroup ---

    def join(self, group: ConsumerGroup, event: Join, now_ms: int) -> list[Effect]:
        try:
            return self._join(group, event, now_ms)
        except ApiError as refusal:
            return [Reply(event, Joined(refusal.code, NO_MEMBER))]  # as Kafka, unlike classic groups

    def _join(self, group: ConsumerGroup, event: Join, now_ms: int) -> list[Effect]:
        is_new = event.member_id == NO_MEMBER
        member_id = MemberId(self._new_uuid()) if is_new else event.member_id
        refuse_if_full(group, member_id, self._config)
        self._refuse_protocols(group, event)
        if is_new and event.instance_id is None and event.requires_member_id:
            return [Reply(event, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))]
        subscription = _subscription(event)
        decision = Decision(group)
        replaced = group.static_member(event.instance_id)
        before = self._member_for(decision, event, member_id, is_new=is_new)
        member = before._replace(
            instance_id=event.instance_id if event.instance_id is not None else before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            topic_names=frozenset(map(TopicName, subscription.topics)),
            client_id=event.client_id,
            client_host=event.client_host,
            classic=ClassicMember(event.session_timeout_ms, event.protocols),
        )
        reasons: list[str] = []
        if member != before:
            decision.records.append(member.subscription_record(group.group_id))
            if member.topic_names != before.topic_names:
                reasons.append(f"{member_id} joins with the classic protocol")
        owned = partitions_of(subscription.owned_partitions, self._environment.topics())
        takes_last_place = replaced is not None and replaced.classic is None
        if takes_last_place and may_downgrade(
            group, group.with_member(member).values(), self._environment.topics(), self._config
        ):
            member = self._downgrade(decision, member, reasons, owned, now_ms)
        else:
            member = self._rebalancing.move_on(decision, member, reasons, owned, now_ms)
            group.awaiting_join.discard(member_id)
            decision.effects += [
                CancelTimer(timer(JOIN, group.group_id, member_id)),
                self._rebalancing.session_timer(group.group_id, member),
                SetTimer(timer(SYNC, group.group_id, member_id), event.rebalance_timeout_ms),
            ]
        reply = Joined(ErrorCode.NONE, member_id, member.epoch, CONSUMER_PROTOCOL, event.protocols[0].name)
        decision.effects.append(Reply(event, reply))
        return decision.carried_out()

    def _downgrade(
        self,
        decision: Decision,
        member: ConsumerMember,
        reasons: list[str],
        owned: Partitions,
        now_ms: int,
    ) -> ConsumerMember:
        """The member takes the place of the last one of the new protocol. With its subscription, it takes over the
        assignment, too; with another, the group rebalances as a classic one."""
        group = decision.group
        if reasons:
            self._leaving.downgrade(decision, group.with_member(member).values(), now_ms, reasons[0])
        else:
            target = group.target_of(member.member_id, member.instance_id)
            member = self._rebalancing.reconcile(decision, member, group.assignment_epoch, target, owned)
            self._leaving.downgrade(decision, group.with_member(member).values(), now_ms)
        return member

    def _refuse_protocols(self, group: ConsumerGroup, event: Join) -> None:
        """One of its protocols has to be known to all other classic members."""
        classic = [member.classic for member in group.members.values() if member.classic is not None]
        known = [{protocol.name for protocol in member.protocols} for member in classic]
        if event.protocol_type != CONSUMER_PROTOCOL or not any(
            all(protocol.name in names for names in known) for protocol in event.protocols
        ):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {event.member_id}'s protocols are not supported."
            )

    def _member_for(self, decision: Decision, event: Join, member_id: MemberId, *, is_new: bool) -> ConsumerMember:
        group = decision.group
        if event.instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        current = group.static_member(event.instance_id)
        if not is_new:
            return known_instance(current, event.instance_id, member_id)
        if current is None:
            return ConsumerMember(member_id)
        return self._leaving.replace(decision, current, member_id)

    # --- SyncGroup, Heartbeat ---

    def sync(self, group: ConsumerGroup, event: Sync, now_ms: int) -> list[Effect]:
        """Answer SyncGroup: the member's assignment in the classic format, or the reason to join again."""
        try:
            member, classic = _classic_member(group, event.member_id, event.instance_id)
            _refuse_generation(member, event.generation)
            name = classic.protocols[0].name
            if event.protocol_type not in (None, CONSUMER_PROTOCOL) or event.protocol_name not in (None, name):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if (
                self._rebalancing.must_join(group, member, now_ms)
                and member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                effects = self._expect_join(group, member)
                return [*effects, Reply(event, Synced(ErrorCode.REBALANCE_IN_PROGRESS))]
        except ApiError as refusal:
            return [Reply(event, Synced(refusal.code))]
        assignment = write_assignment(member.assigned, self._environment.topics(), classic.protocols[0].metadata)
        return [
            CancelTimer(timer(SYNC, group.group_id, member.member_id)),
            self._rebalancing.session_timer(group.group_id, member),
            Reply(event, Synced(ErrorCode.NONE, event.protocol_type, event.protocol_name, assignment)),
        ]

    def heartbeat(self, group: ConsumerGroup, event: Heartbeat, now_ms: int) -> list[Effect]:
        """Answer Heartbeat, and prolong the session; REBALANCE_IN_PROGRESS makes the member join again."""
        try:
            member, _ = _classic_member(group, event.member_id, event.instance_id)
            _refuse_generation(member, event.generation)
        except ApiError as refusal:
            return [Reply(event, refusal.code)]
        effects: list[Effect] = [self._rebalancing.session_timer(group.group_id, member)]
        error = ErrorCode.NONE
        if (
            self._rebalancing.must_join(group, member, now_ms)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            effects += self._expect_join(group, member)
        return [*effects, Reply(event, error)]

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> list[Effect]:
        """The member was asked to rejoin; repeating that does not extend its deadline."""
        if member.member_id in group.awaiting_join:
            return []
        group.awaiting_join.add(member.member_id)
        return [SetTimer(timer(JOIN, group.group_id, member.member_id), member.rebalance_timeout_ms)]

    # --- LeaveGroup ---

    def leave(self, group: ConsumerGroup, event: Leave, now_ms: int) -> list[Effect]:
        """Remove members that LeaveGroup names, by member id or instance id."""
        errors: list[ErrorCode] = []
        gone: dict[MemberId, ConsumerMember] = {}
        for leaving in event.members:
            try:
                member = _leaving_member(group, leaving)
            except ApiError as refusal:
                errors.append(refusal.code)
                continue
            log.info(
                "group %s: member gone: %s", group.group_id, with_reason(f"{member.member_id} leaves", leaving.reason)
            )
            gone[member.member_id] = member
            errors.append(ErrorCode.NONE)
        decision = Decision(group)
        self._leaving.remove(decision, tuple(gone.values()), f"{', '.join(gone)} left", now_ms)
        decision.effects.append(Reply(event, Left(tuple(errors))))
        return decision.carried_out()


def _subscription(event: Join) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(event.protocols[0].metadata)
    except (MalformedMessage, UnsupportedVersion) as error:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the subscription of {event.member_id} cannot be read: {error}"
        ) from error


def _classic_member(
    group: ConsumerGroup, member_id: MemberId, instance_id: InstanceId | None
) -> tuple[ConsumerMember, ClassicMember]:
    """Raises `ApiError` UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group.group_id, member_id)
    else:
        member = known_instance(group.static_member(instance_id), instance_id, member_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _refuse_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    """Raises `ApiError` UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if leaving.instance_id is None:
        member = group.members.get(leaving.member_id)
        if member is None:
            raise unknown_member(group.group_id, leaving.member_id)
        return member
    current = group.static_member(leaving.instance_id)
    wanted = current.member_id if leaving.member_id == NO_MEMBER and current is not None else leaving.member_id
    return known_instance(current, leaving.instance_id, wanted)
