"""The part of the machine that owns share groups: members and their assignments. PURE.

Source: KIP-932, as Kafka 4.3 does it. Where Kafka has a member wait for its next heartbeat, it may be answered anew
here as soon as there is something to assign (`RefreshShareMember`).
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.coordination.state_machine import Append, CancelTimer, Effect, LongDecision, Reply, TimerKey
from ottla.errors import ApiError, ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import NO_PARTITIONS, AssignedTopic, Partitions
from ottla.groups.environment import GroupEnvironment
from ottla.groups.history import KEPT_MOVES, Histories, Move, Rebalance
from ottla.groups.kinds import EventHandlers, Groups, Replays, TimerHandlers, left_of_interval_ms
from ottla.groups.records import GroupRecord
from ottla.groups.share.assignor import SIMPLE, assign
from ottla.groups.share.events import (
    JOINING,
    LEAVING,
    DescribeShareGroups,
    RefreshShareMember,
    ShareBeat,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareMemberDescription,
    ToInitialize,
)
from ottla.groups.share.group import SHARE_PROTOCOL, SHARE_SESSION, ShareGroup, ShareMember, names_of, united, without
from ottla.groups.share.records import (
    ShareAssignment,
    ShareAssignmentDeleted,
    ShareGroupDeleted,
    ShareGroupEpoch,
    ShareMemberDeleted,
    ShareMemberMetadata,
    ShareStatePartitions,
    ShareStatePartitionsDeleted,
    ShareTarget,
    ShareTargetDeleted,
    ShareTargetEpoch,
    ShareTargetEpochDeleted,
)
from ottla.groups.topic_hash import TopicHashes
from ottla.groups.topics import TopicsView
from ottla.ids import GroupId, MemberId, TopicId, TopicName
from ottla.share.state import UNKNOWN_START_OFFSET

log = logging.getLogger(__name__)

HURRIED_MS: Final = 250
"""How soon a member is to come back for partitions that are just being initialized (Kafka: the usual interval)."""


class ShareGroups:
    """ShareGroupHeartbeat and ShareGroupDescribe; records with keys 10 to 15."""

    def __init__(
        self, groups: Groups, histories: Histories, config: GroupConfig, environment: GroupEnvironment
    ) -> None:
        self._groups = groups
        self._histories = histories
        self._config = config
        self._environment = environment
        self._hashes = TopicHashes()
        self.events: Final[EventHandlers] = MappingProxyType(
            {ShareHeartbeat: self._heartbeat, RefreshShareMember: self._refresh, DescribeShareGroups: self._describe}
        )
        self.timers: Final[TimerHandlers] = MappingProxyType({SHARE_SESSION: self._session_ended})
        self.replays: Final[Replays] = MappingProxyType(
            {
                ShareMemberMetadata: self._replay_member,
                ShareMemberDeleted: self._replay_member_deleted,
                ShareGroupEpoch: self._replay_epoch,
                ShareGroupDeleted: self._replay_deleted,
                ShareTargetEpoch: self._replay_target_epoch,
                ShareTargetEpochDeleted: self._replay_target_epoch_deleted,
                ShareTarget: self._replay_target,
                ShareTargetDeleted: self._replay_target_deleted,
                ShareAssignment: self._replay_assignment,
                ShareAssignmentDeleted: self._replay_assignment_deleted,
                ShareStatePartitions: self._replay_state_partitions,
                ShareStatePartitionsDeleted: self._replay_state_partitions_deleted,
            }
        )

    def loaded(self, now_ms: int) -> LongDecision:
        for group in list(self._groups.values()):
            yield None
            if isinstance(group, ShareGroup):
                for member_id in list(group.members):
                    yield group.session_timer(member_id)

    # --- heartbeats ---

    def _heartbeat(self, event: ShareHeartbeat, now_ms: int) -> list[Effect]:
        try:
            if event.member_epoch == LEAVING:
                return self._leave(event)
            group, member = self._member_of(event)
        except ApiError as refused:
            return [Reply(event, ShareBeat(refused.code, str(refused)))]
        told = member._replace(
            rack_id=member.rack_id if event.rack_id is None else event.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topic_names=member.topic_names if event.topic_names is None else event.topic_names,
        )
        self._groups[event.group_id] = group
        records, beat = self._beat(group, member, told, event.member_epoch, now_ms)
        if event.member_epoch == JOINING or event.topic_names is not None:
            beat = beat._replace(assignment=beat.assignment or _assigned(records, told))
        return self._answer(event, group, records, beat)

    def _refresh(self, event: RefreshShareMember, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        member = group.members.get(event.member_id) if isinstance(group, ShareGroup) else None
        if not isinstance(group, ShareGroup) or member is None:
            return [Reply(event, ShareBeat(ErrorCode.UNKNOWN_MEMBER_ID, "The member has left."))]
        # The requester has just had everything possible done: the next heartbeat requests the rest.
        records, beat = self._beat(group, member, member, event.known_epoch, now_ms, initializes=False)
        beat = beat._replace(assignment=beat.assignment or _assigned(records, member))
        return self._answer(event, group, records, beat)

    def _answer(
        self,
        event: ShareHeartbeat | RefreshShareMember,
        group: ShareGroup,
        records: list[GroupRecord],
        beat: ShareBeat,
    ) -> list[Effect]:
        effects: list[Effect] = [Append(tuple(records))] if records else []
        return [*effects, group.session_timer(event.member_id), Reply(event, beat)]

    def _member_of(self, event: ShareHeartbeat) -> tuple[ShareGroup, ShareMember]:
        """The group and the member that a heartbeat is from, made for one that joins. Raises `ApiError`."""
        joining = event.member_epoch == JOINING
        found = self._groups.get(event.group_id)
        if found is None:
            if not joining:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {event.group_id} not found.")
            found = ShareGroup(event.group_id, self._environment)
        if not isinstance(found, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {event.group_id} is not a share group.")
        member = found.members.get(event.member_id)
        most = self._config.group_share_max_size
        if member is None and len(found.members) >= most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The share group has reached its maximum capacity of {most} members."
            )
        if member is None:
            if not joining:
                raise _unknown_member(event)
            log.info("share group %s: member %s joins", event.group_id, event.member_id)
            self._histories.of(event.group_id).because(f"member {event.member_id} joined")
            member = ShareMember(event.member_id)
        _check_epoch(member, event.member_epoch)
        return found, member

    def _beat(
        self,
        group: ShareGroup,
        before: ShareMember,
        member: ShareMember,
        known_epoch: int,
        now_ms: int,
        *,
        initializes: bool = True,
    ) -> tuple[list[GroupRecord], ShareBeat]:
        """What a heartbeat changes, and its answer: with the assignment where that has changed."""
        topics = self._environment.topics()
        beat = ShareBeat(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=group.heartbeat_interval_ms,
        )
        is_reconciled = member.epoch == group.assignment_epoch == group.epoch
        if before == member and is_reconciled and group.is_complete(topics) and member.member_id in group.members:
            return [], beat
        records: list[GroupRecord] = []
        if before != member or member.member_id not in group.members:
            records.append(
                ShareMemberMetadata(
                    group.group_id,
                    member.member_id,
                    member.rack_id,
                    member.client_id,
                    member.client_host,
                    member.topic_names,
                )
            )
        names = group.subscribed_topics(member)
        epoch = self._next_epoch(group, before.topic_names != member.topic_names, names, topics, records)
        target = group.target.get(member.member_id, NO_PARTITIONS)
        target_epoch = group.assignment_epoch
        if epoch > target_epoch and self._wait_ms(group, now_ms) == 0:
            target_epoch = epoch
            target = self._new_target(group, epoch, member, topics, records, now_ms)
        # The target may be older than the member's subscription.
        target = {id_: parts for id_, parts in target.items() if _is_read(id_, member, topics)} or NO_PARTITIONS
        if member.epoch != target_epoch or target != member.assigned:
            records.append(ShareAssignment(group.group_id, member.member_id, target_epoch, known_epoch, target))
            changed = target if target != member.assigned else None
            beat = beat._replace(member_epoch=target_epoch, assignment=changed)
        initialize = self._to_initialize(group, epoch, names, topics, records, now_ms) if initializes else None
        if initializes and initialize is None and not records and not group.initializing:
            group.mark_complete(topics)
        if epoch > target_epoch:
            soon_ms = max(HURRIED_MS, self._wait_ms(group, now_ms))
            beat = beat._replace(heartbeat_interval_ms=min(soon_ms, beat.heartbeat_interval_ms))
        elif initialize is not None or (group.initializing and now_ms < group.initialize_again_ms):
            beat = beat._replace(heartbeat_interval_ms=min(HURRIED_MS, beat.heartbeat_interval_ms))
        return records, beat._replace(initialize=initialize)

    def _next_epoch(
        self,
        group: ShareGroup,
        subscription_changed: bool,
        names: set[TopicName],
        topics: TopicsView,
        records: list[GroupRecord],
    ) -> int:
        """The group's epoch: a new one if members are to have something else."""
        unassigned = group.assignment_epoch >= group.epoch and group.has_unassigned(names, topics)
        bump = subscription_changed or unassigned
        if not bump and group.topics_seen is topics:
            return group.epoch
        group.topics_seen = topics
        metadata_hash = self._hashes.of(names, topics)
        if not bump and metadata_hash == group.metadata_hash:
            return group.epoch
        history = self._histories.of(group.group_id)
        if unassigned:
            history.because("partitions have been initialized or deleted")
        if metadata_hash != group.metadata_hash:
            history.because("subscriptions or topics changed")
        records.append(ShareGroupEpoch(group.group_id, group.epoch + 1, metadata_hash))
        return group.epoch + 1

    def _wait_ms(self, group: ShareGroup, now_ms: int) -> int:
        """For how long no other assignment may be computed (`share.assignment.interval.ms`)."""
        interval_ms = self._environment.settings(group.group_id).share_assignment_interval_ms
        return left_of_interval_ms(group.assigned_ms, interval_ms, now_ms)

    def _new_target(
        self,
        group: ShareGroup,
        epoch: int,
        member: ShareMember,
        topics: TopicsView,
        records: list[GroupRecord],
        now_ms: int,
    ) -> Partitions:
        members = {**group.members, member.member_id: member}
        subscriptions = {
            member_id: frozenset(
                topic.topic_id for name in each.topic_names if (topic := topics.by_name(name)) is not None
            )
            for member_id, each in members.items()
        }
        target = assign(subscriptions, group.initialized, group.target)
        for member_id, partitions in target.items():
            if partitions != group.target.get(member_id):
                records.append(ShareTarget(group.group_id, member_id, partitions))
        # An assignment of nothing holds up no other one: the state of partitions is just being initialized.
        records.append(ShareTargetEpoch(group.group_id, epoch, now_ms if any(target.values()) else 0))
        self._remember(group, epoch, target, topics, now_ms)
        return target[member.member_id]

    def _remember(
        self, group: ShareGroup, epoch: int, target: Mapping[MemberId, Partitions], topics: TopicsView, now_ms: int
    ) -> None:
        """A partition may have several readers, so that one gets what no other one loses."""
        history = self._histories.of(group.group_id)
        reasons = history.take_reasons()
        moves: list[Move] = []
        for member_id in sorted({*target, *group.target}):
            had, gets = group.target.get(member_id, NO_PARTITIONS), target.get(member_id, NO_PARTITIONS)
            moves += [Move(name, each, None, member_id) for _, name, each in _named(without(gets, had), topics)]
            moves += [Move(name, each, member_id, None) for _, name, each in _named(without(had, gets), topics)]
        moves.sort(key=lambda move: (-len(move.partitions), move.topic, move.partitions))
        moved = sum(len(move.partitions) for move in moves)
        history.add(
            Rebalance(now_ms, epoch, SHARE_PROTOCOL, SIMPLE, reasons, len(target), moved, tuple(moves[:KEPT_MOVES]))
        )

    def _to_initialize(
        self,
        group: ShareGroup,
        epoch: int,
        names: set[TopicName],
        topics: TopicsView,
        records: list[GroupRecord],
        now_ms: int,
    ) -> ToInitialize | None:
        missing = group.uninitialized(names, topics, now_ms)
        if not missing:
            return None
        state = group.state_partitions or ShareStatePartitions(group.group_id)
        group.initialize_again_ms = now_ms + max(
            self._config.group_share_initialize_retry_interval_ms, self._config.offsets_commit_timeout_ms
        )
        initializing = united(state.initializing, missing)
        deleting = state.deleting - initializing.keys()
        record = state._replace(
            initializing=initializing,
            deleting=deleting,
            names=names_of({*initializing, *state.initialized, *deleting}, topics),
        )
        records.append(record)
        offsets = {
            topic_id: dict.fromkeys(sorted(indexes), UNKNOWN_START_OFFSET) for topic_id, indexes in missing.items()
        }
        return ToInitialize(epoch, offsets, state.deleting & initializing.keys())

    # --- leaving ---

    def _leave(self, event: ShareHeartbeat) -> list[Effect]:
        """Raises `ApiError`."""
        group = self._groups.get(event.group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {event.group_id} is not a share group.")
        if event.member_id not in group.members:
            raise _unknown_member(event)
        log.info("share group %s: member %s leaves", event.group_id, event.member_id)
        self._histories.of(event.group_id).because(f"member {event.member_id} left")
        beat = ShareBeat(member_id=event.member_id, member_epoch=LEAVING)
        return [*self._remove(group, event.member_id), Reply(event, beat)]

    def _session_ended(self, key: TimerKey, now_ms: int) -> list[Effect]:
        group, member_id = self._groups.get(GroupId(key[1])), MemberId(key[2])
        if not isinstance(group, ShareGroup) or member_id not in group.members:
            return []
        log.info("share group %s: member %s has sent no heartbeat for too long", group.group_id, member_id)
        self._histories.of(group.group_id).because(f"member {member_id} sent no heartbeat in time")
        return self._remove(group, member_id)

    def _remove(self, group: ShareGroup, member_id: MemberId) -> list[Effect]:
        """The next heartbeat of another member has its partitions given away."""
        topics = self._environment.topics()
        metadata_hash = self._hashes.of(group.subscribed_topics(without=member_id), topics)
        epoch = ShareGroupEpoch(group.group_id, group.epoch + 1, metadata_hash)
        return [
            Append((*group.member_tombstones(member_id), epoch)),
            CancelTimer((SHARE_SESSION, group.group_id, member_id)),
        ]

    # --- describing ---

    def _describe(self, event: DescribeShareGroups, now_ms: int) -> list[Effect]:
        return [Reply(event, tuple(self._description(group_id) for group_id in event.group_ids))]

    def _description(self, group_id: GroupId) -> ShareGroupDescription:
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            why = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
            return ShareGroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, why, group_id)
        topics = self._environment.topics()
        return ShareGroupDescription(
            ErrorCode.NONE,
            None,
            group_id,
            group.state_name,
            group.epoch,
            group.assignment_epoch,
            SIMPLE,
            tuple(
                ShareMemberDescription(
                    member.member_id,
                    member.rack_id,
                    member.epoch,
                    member.client_id,
                    member.client_host,
                    tuple(sorted(member.topic_names)),
                    _named(member.assigned, topics),
                )
                for member in group.members.values()
            ),
        )

    # --- what lasts ---

    def _replay_member(self, record: ShareMemberMetadata, position: int, producer_id: int) -> None:
        group = self._get_or_make(record.group_id)
        member = group.members.get(record.member_id) or ShareMember(record.member_id)
        group.set_member(member.described_by(record))

    def _replay_member_deleted(self, record: ShareMemberDeleted, position: int, producer_id: int) -> None:
        group = self._share(record.group_id)
        if group is not None:
            group.remove_member(record.member_id)

    def _replay_epoch(self, record: ShareGroupEpoch, position: int, producer_id: int) -> None:
        group = self._get_or_make(record.group_id)
        group.epoch, group.metadata_hash = record.epoch, record.metadata_hash

    def _replay_deleted(self, record: ShareGroupDeleted, position: int, producer_id: int) -> None:
        if self._share(record.group_id) is not None:
            del self._groups[record.group_id]

    def _replay_target_epoch(self, record: ShareTargetEpoch, position: int, producer_id: int) -> None:
        group = self._get_or_make(record.group_id)
        group.assignment_epoch, group.assigned_ms = record.epoch, record.computed_ms

    def _replay_target_epoch_deleted(self, record: ShareTargetEpochDeleted, position: int, producer_id: int) -> None:
        group = self._share(record.group_id)
        if group is not None:
            group.assignment_epoch = group.assigned_ms = 0

    def _replay_target(self, record: ShareTarget, position: int, producer_id: int) -> None:
        self._get_or_make(record.group_id).set_target(record.member_id, record.partitions)

    def _replay_target_deleted(self, record: ShareTargetDeleted, position: int, producer_id: int) -> None:
        group = self._share(record.group_id)
        if group is not None:
            group.set_target(record.member_id, None)

    def _replay_assignment(self, record: ShareAssignment, position: int, producer_id: int) -> None:
        group = self._get_or_make(record.group_id)
        member = group.members.get(record.member_id) or ShareMember(record.member_id)
        group.set_member(member.placed_by(record))

    def _replay_assignment_deleted(self, record: ShareAssignmentDeleted, position: int, producer_id: int) -> None:
        group = self._share(record.group_id)
        member = None if group is None else group.members.get(record.member_id)
        if group is not None and member is not None:
            group.set_member(member._replace(epoch=LEAVING, previous_epoch=LEAVING, assigned=NO_PARTITIONS))

    def _replay_state_partitions(self, record: ShareStatePartitions, position: int, producer_id: int) -> None:
        self._get_or_make(record.group_id).set_state_partitions(record)

    def _replay_state_partitions_deleted(
        self, record: ShareStatePartitionsDeleted, position: int, producer_id: int
    ) -> None:
        group = self._share(record.group_id)
        if group is not None:
            group.set_state_partitions(None)

    def _share(self, group_id: GroupId) -> ShareGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def _get_or_make(self, group_id: GroupId) -> ShareGroup:
        group = self._share(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id, self._environment)
        return group


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raises `ApiError` FENCED_MEMBER_EPOCH. The previous epoch will do: the answer with the new one may be lost."""
    if epoch > member.epoch:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if epoch < member.epoch and epoch != member.previous_epoch:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}), and it does not match the previous member epoch ({member.previous_epoch}). The member "
            "must abandon all its partitions and rejoin.",
        )


def _is_read(topic_id: TopicId, member: ShareMember, topics: TopicsView) -> bool:
    topic = topics.by_id(topic_id)
    return topic is not None and topic.name in member.topic_names


def _unknown_member(event: ShareHeartbeat) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member of group {event.group_id}.")


def _assigned(records: list[GroupRecord], member: ShareMember) -> Partitions:
    """What the member has once these records are written."""
    given = [
        record.partitions
        for record in records
        if isinstance(record, ShareAssignment) and record.member_id == member.member_id
    ]
    return given[-1] if given else member.assigned


def _named(partitions: Partitions, topics: TopicsView) -> tuple[AssignedTopic, ...]:
    names = names_of(partitions, topics)
    found: list[tuple[TopicId, TopicName]] = sorted(names.items(), key=lambda item: item[1])
    return tuple(AssignedTopic(topic_id, name, tuple(sorted(partitions[topic_id]))) for topic_id, name in found)
