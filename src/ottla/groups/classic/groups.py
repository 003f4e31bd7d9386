"""The part of the machine that owns classic groups: finds the group that an event is for. PURE."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from ottla.coordination.state_machine import Append, Effect, LongDecision, Reply, TimerKey
from ottla.errors import ErrorCode
from ottla.groups.classic.protocol import REBALANCE, SESSION, SYNC, ClassicGroup
from ottla.groups.classic.records import GroupDeleted, GroupMetadata
from ottla.groups.classic.states import GroupState
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.classic_members import ClassicMembers
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.leaving import DOWNGRADED
from ottla.groups.events import (
    NO_MEMBER,
    DescribeGroups,
    GroupDescription,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    Sync,
    Synced,
)
from ottla.groups.history import Histories
from ottla.groups.kinds import EventHandlers, Groups, Replays, TimerHandlers
from ottla.groups.offsets.committed import OffsetStore
from ottla.groups.streams.group import StreamsGroup
from ottla.ids import GroupId, MemberId


class ClassicGroups:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups; records with key 2."""

    def __init__(
        self,
        groups: Groups,
        offsets: OffsetStore,
        histories: Histories,
        classic_members: ClassicMembers,
        config: GroupConfig,
        new_uuid: Callable[[], str],
    ) -> None:
        """`classic_members` answers for groups that are consumer groups by now."""
        self._groups = groups
        self._offsets = offsets
        self._histories = histories
        self._classic_members = classic_members
        self._config = config
        self._new_uuid = new_uuid
        self.events: Final[EventHandlers] = MappingProxyType(
            {
                Heartbeat: self._heartbeat,
                Join: self._join,
                Sync: self._sync,
                Leave: self._leave,
                DescribeGroups: self._describe,
            }
        )
        self.timers: Final[TimerHandlers] = MappingProxyType(
            {
                SESSION: self._session_ended,
                REBALANCE: self._rebalance_is_due,
                SYNC: self._sync_is_due,
                DOWNGRADED: self._rebalance_again,
            }
        )
        self.replays: Final[Replays] = MappingProxyType(
            {GroupMetadata: self._replay_group, GroupDeleted: self._replay_deletion}
        )

    # --- deciding ---

    def _join(self, event: Join, now_ms: int) -> list[Effect]:
        config = self._config
        if not (config.group_min_session_timeout_ms <= event.session_timeout_ms <= config.group_max_session_timeout_ms):
            return [Reply(event, Joined(ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id))]
        group = self._groups.get(event.group_id)
        if isinstance(group, ClassicGroup):
            return group.join(event, now_ms)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._classic_members.join(group, event, now_ms)
        if group is not None and not (isinstance(group, (ConsumerGroup, StreamsGroup)) and group.is_empty):
            return [Reply(event, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER))]
        if event.member_id != NO_MEMBER:
            return [Reply(event, Joined(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))]
        return self._join_new_group(event, group, now_ms)

    def _join_new_group(self, event: Join, former: ConsumerGroup | StreamsGroup | None, now_ms: int) -> list[Effect]:
        group = self._new(event.group_id)
        effects = group.join(event, now_ms)
        if not group.members and not group.pending:
            return effects
        self._groups[event.group_id] = group
        if former is None:
            return effects
        return [Append(former.tombstones()), *effects]

    def _sync(self, event: Sync, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._classic_members.sync(group, event, now_ms)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            return [Reply(event, Synced(ErrorCode.UNKNOWN_MEMBER_ID))]
        return group.sync(event, now_ms)

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(group, event, now_ms)
        if not isinstance(group, ClassicGroup):
            return [Reply(event, ErrorCode.UNKNOWN_MEMBER_ID)]
        return group.heartbeat(event)

    def _leave(self, event: Leave, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(group, event, now_ms)
        if not isinstance(group, ClassicGroup):
            return [Reply(event, Left((ErrorCode.UNKNOWN_MEMBER_ID,) * len(event.members)))]
        effects = group.leave(event, now_ms)
        self._forget_if_bare(group)
        return effects

    def _describe(self, event: DescribeGroups, now_ms: int) -> list[Effect]:
        """A group that is not there, or not of this kind, is described as dead."""
        groups = [(group_id, self._classic(group_id)) for group_id in event.group_ids]
        described = tuple(
            GroupDescription(group_id, GroupState.DEAD, is_of_another_kind=group_id in self._groups)
            if group is None
            else group.describe()
            for group_id, group in groups
        )
        return [Reply(event, described)]

    # --- time ---

    def _session_ended(self, key: TimerKey, now_ms: int) -> list[Effect]:
        group = self._classic(GroupId(key[1]))
        if group is None:
            return []
        effects = group.session_timer_fired(MemberId(key[2]), now_ms)
        self._forget_if_bare(group)
        return effects

    def _rebalance_is_due(self, key: TimerKey, now_ms: int) -> list[Effect]:
        group = self._classic(GroupId(key[1]))
        return [] if group is None else group.rebalance_timer_fired(now_ms)

    def _sync_is_due(self, key: TimerKey, now_ms: int) -> list[Effect]:
        group = self._classic(GroupId(key[1]))
        return [] if group is None else group.sync_timer_fired(now_ms)

    def _rebalance_again(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """A member of the new protocol was the last to leave: the others divide what it had."""
        group = self._classic(GroupId(key[1]))
        return [] if group is None else group.downgrade_timer_fired(now_ms)

    def loaded(self, now_ms: int) -> LongDecision:
        for group in list(self._groups.values()):
            yield None
            if isinstance(group, ClassicGroup):
                yield from group.loaded(now_ms)

    # --- what lasts ---

    def _replay_group(self, record: GroupMetadata, position: int, producer_id: int) -> None:
        self.get_or_make(record.group_id).replay(record)

    def _replay_deletion(self, record: GroupDeleted, position: int, producer_id: int) -> None:
        if self._classic(record.group_id) is not None:
            self.forget(record.group_id)

    def forget(self, group_id: GroupId) -> None:
        """The log no longer has the group; while it has offsets of it, the name stays."""
        self._groups.pop(group_id, None)
        if self._offsets.has_any(group_id):
            self.ensure_named(group_id)

    def ensure_named(self, group_id: GroupId) -> None:
        """Commits of offsets without membership create a group that is only a name."""
        if group_id not in self._groups:
            self.get_or_make(group_id)

    def get_or_make(self, group_id: GroupId) -> ClassicGroup:
        """The classic group of this id, in the place of one of another kind."""
        group = self._classic(group_id)
        if group is None:
            group = self._groups[group_id] = self._new(group_id)
        return group

    def _new(self, group_id: GroupId) -> ClassicGroup:
        return ClassicGroup(group_id, self._config, self._new_uuid, self._histories.of(group_id))

    # --- small things ---

    def _classic(self, group_id: GroupId) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _forget_if_bare(self, group: ClassicGroup) -> None:
        """Remove a group that never came to be: without records, and without pending requests."""
        if group.record is None and group.is_simple and not self._offsets.has_any(group.group_id):
            self._groups.pop(group.group_id, None)
