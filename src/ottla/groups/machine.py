"""All groups and offsets of one partition of `__consumer_offsets`. PURE."""

import logging
from collections.abc import Callable
from typing import Final

from ottla.coordination.machine import Append, Effect, Reply, SetTimer, TimerFired
from ottla.errors import ErrorCode
from ottla.groups.classic import EMPTY, REBALANCE, SESSION, STABLE, SYNC, ClassicGroup
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    NO_MEMBER,
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    ForgetPartitions,
    GroupDescription,
    GroupEvent,
    GroupListing,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    ListGroups,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    Sync,
    Synced,
)
from ottla.groups.offsets import CommittedOffset, OffsetStore
from ottla.groups.records import (
    GroupDeleted,
    GroupMetadata,
    GroupRecord,
    GroupRecordFormat,
    OffsetCommitted,
    OffsetDeleted,
)
from ottla.groups.states import GroupState
from ottla.ids import GroupId, MemberId, TopicName

log = logging.getLogger(__name__)

EXPIRY: Final = "expire-offsets"


class GroupMachine:
    """A `ottla.coordination.machine.Machine` of `GroupEvent` and `GroupRecord`."""

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str]) -> None:
        self.records = GroupRecordFormat()
        self.groups: dict[GroupId, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._config = config
        self._new_uuid = new_uuid

    # --- deciding ---

    def handle(self, event: GroupEvent | TimerFired, now_ms: int) -> list[Effect]:
        match event:
            case Heartbeat():
                return self._heartbeat(event)
            case CommitOffsets():
                return self._commit_offsets(event, now_ms)
            case FetchOffsets():
                return [Reply(event.token, OffsetsFetched(self.offsets.fetch(event)))]
            case Join():
                return self._join(event, now_ms)
            case Sync():
                return self._sync(event, now_ms)
            case Leave():
                return self._leave(event, now_ms)
            case TimerFired():
                return self._timer_fired(event, now_ms)
            case DeleteOffsets():
                return self._delete_offsets(event)
            case ForgetPartitions():
                return self._forget_partitions(event)
            case ListGroups():
                return self._list(event)
            case DescribeGroups():
                return [Reply(event.token, tuple(self._describe(group_id) for group_id in event.group_ids))]
            case DeleteGroups():
                return self._delete_groups(event)

    def _join(self, event: Join, now_ms: int) -> list[Effect]:
        config = self._config
        if not (config.group_min_session_timeout_ms <= event.session_timeout_ms <= config.group_max_session_timeout_ms):
            return [Reply(event.token, Joined(ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id))]
        group = self.groups.get(event.group_id)
        if group is None:
            if event.member_id != NO_MEMBER:
                return [Reply(event.token, Joined(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))]
            group = ClassicGroup(event.group_id, config, self._new_uuid)
            effects = group.join(event, now_ms)
            if group.members or group.pending:
                self.groups[event.group_id] = group
            return effects
        return group.join(event, now_ms)

    def _sync(self, event: Sync, now_ms: int) -> list[Effect]:
        group = self.groups.get(event.group_id)
        if group is None or group.state is EMPTY:
            return [Reply(event.token, Synced(ErrorCode.UNKNOWN_MEMBER_ID))]
        return group.sync(event, now_ms)

    def _heartbeat(self, event: Heartbeat) -> list[Effect]:
        group = self.groups.get(event.group_id)
        if group is None:
            return [Reply(event.token, ErrorCode.UNKNOWN_MEMBER_ID)]
        return group.heartbeat(event)

    def _leave(self, event: Leave, now_ms: int) -> list[Effect]:
        group = self.groups.get(event.group_id)
        if group is None:
            return [Reply(event.token, Left((ErrorCode.UNKNOWN_MEMBER_ID,) * len(event.members)))]
        effects = group.leave(event, now_ms)
        self._forget_if_bare(group)
        return effects

    def _timer_fired(self, event: TimerFired, now_ms: int) -> list[Effect]:
        kind, *names = event.key
        if kind == EXPIRY:
            return [*self._expire(now_ms), self._next_expiry()]
        group = self.groups.get(GroupId(names[0]))
        if group is None:
            return []
        if kind == SESSION:
            effects = group.session_timer_fired(MemberId(names[1]), now_ms)
            self._forget_if_bare(group)
            return effects
        if kind == REBALANCE:
            return group.rebalance_timer_fired(now_ms)
        if kind == SYNC:
            return group.sync_timer_fired(now_ms)
        raise AssertionError(f"nobody sets a timer {kind!r}")

    def _forget_if_bare(self, group: ClassicGroup) -> None:
        """A group that never came to be: known to no log, asked for by nobody any more."""
        if group.record is None and group.is_simple and not self._has_offsets(group.group_id):
            self.groups.pop(group.group_id, None)

    def _has_offsets(self, group_id: GroupId) -> bool:
        return bool(self.offsets.of_group(group_id)) or self.offsets.has_open_transaction(group_id)

    # --- offsets ---

    def _commit_offsets(self, event: CommitOffsets, now_ms: int) -> list[Effect]:
        group = self.groups.get(event.group_id)
        error = ErrorCode.NONE
        effects: list[Effect] = []
        if group is not None:
            error = group.commit_refusal(event.member_id, event.instance_id, event.generation)
            if not error:
                effects += group.keep_alive(event.member_id)
        elif event.generation >= 0:
            knows_better = event.knows_group_id_not_found
            error = ErrorCode.GROUP_ID_NOT_FOUND if knows_better else ErrorCode.ILLEGAL_GENERATION
        if error:
            return [Reply(event.token, OffsetsCommitted((error,) * len(event.offsets)))]
        expire_ms = now_ms + event.retention_ms if event.retention_ms >= 0 else -1
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        for wish in event.offsets:
            if len(wish.metadata) > self._config.offset_metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            records.append(
                OffsetCommitted(
                    event.group_id,
                    wish.topic,
                    wish.partition,
                    wish.offset,
                    wish.leader_epoch,
                    wish.metadata,
                    now_ms,
                    expire_ms,
                    wish.topic_id,
                )
            )
        if records:
            effects.append(Append(tuple(records)))
        effects.append(Reply(event.token, OffsetsCommitted(tuple(errors))))
        return effects

    def _delete_offsets(self, event: DeleteOffsets) -> list[Effect]:
        group = self.groups.get(event.group_id)
        if group is None:
            return [Reply(event.token, OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND))]
        if group.state is not EMPTY and not group.uses_consumer_protocol:
            return [Reply(event.token, OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP))]
        records: list[GroupRecord] = []
        results: list[tuple[TopicName, ErrorCode]] = []
        for topic in event.topics:
            if group.is_subscribed_to(topic.topic):
                results.append((topic.topic, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            results.append((topic.topic, ErrorCode.NONE))
            records += self.offsets.deletions(event.group_id, topic)
        reply = Reply(event.token, OffsetsDeleted(ErrorCode.NONE, tuple(results)))
        return [Append(tuple(records)), reply] if records else [reply]

    def _forget_partitions(self, event: ForgetPartitions) -> list[Effect]:
        records = [
            record
            for group_id in list(self.groups)
            for topic in event.topics
            for record in self.offsets.deletions(group_id, topic)
        ]
        reply = Reply(event.token, None)
        return [Append(tuple(records)), reply] if records else [reply]

    # --- expiry (KIP-211) ---

    def _expire(self, now_ms: int) -> list[Effect]:
        records: list[GroupRecord] = []
        for group in list(self.groups.values()):
            expired = self._expired_offsets(group, now_ms)
            records += expired
            nothing_left = len(expired) == len(self.offsets.of_group(group.group_id))
            if not nothing_left or self.offsets.has_open_transaction(group.group_id):
                continue
            if group.state is EMPTY and not group.pending:
                records.append(GroupDeleted(group.group_id))
        if records:
            log.info("%d expired offsets and groups", len(records))
        return [Append(tuple(records))] if records else []

    def _expired_offsets(self, group: ClassicGroup, now_ms: int) -> list[GroupRecord]:
        """A group with members keeps what it reads, and one that only members understand keeps all. Otherwise an
        offset goes when it has not been needed for the retention time: since the group emptied, or its commit."""
        topics: frozenset[TopicName] | None = frozenset()
        emptied_ms = -1
        if group.state is EMPTY:
            if group.protocol_type is not None and group.record is not None:
                emptied_ms = group.record.current_state_timestamp_ms
        elif group.state is STABLE:
            topics = group.subscribed_topics()
        else:
            topics = None
        if topics is None:
            return []

        def is_expired(committed: CommittedOffset) -> bool:
            base_ms = emptied_ms if emptied_ms >= 0 else committed.commit_timestamp_ms
            return committed.is_expired(base_ms, now_ms, self._config.offsets_retention_ms)

        return [
            OffsetDeleted(group.group_id, partition.topic, partition.partition)
            for partition, committed in self.offsets.of_group(group.group_id).items()
            if partition.topic not in topics
            and is_expired(committed)
            and not self.offsets.is_pending(group.group_id, partition)
        ]

    def _next_expiry(self) -> SetTimer:
        return SetTimer((EXPIRY,), self._config.offsets_retention_check_interval_ms)

    # --- groups as such ---

    def _list(self, event: ListGroups) -> list[Effect]:
        listings = tuple(
            GroupListing(group.group_id, group.protocol_type or "", group.state)
            for group in self.groups.values()
            if not event.states or group.state.lower() in event.states
        )
        return [Reply(event.token, listings)]

    def _describe(self, group_id: GroupId) -> GroupDescription:
        group = self.groups.get(group_id)
        return GroupDescription(group_id, GroupState.DEAD) if group is None else group.describe()

    def _delete_groups(self, event: DeleteGroups) -> list[Effect]:
        records: list[GroupRecord] = []
        errors: list[ErrorCode] = []
        for group_id in event.group_ids:
            group = self.groups.get(group_id)
            if group is None:
                errors.append(ErrorCode.GROUP_ID_NOT_FOUND)
            elif group.state is not EMPTY:
                errors.append(ErrorCode.NON_EMPTY_GROUP)
            else:
                errors.append(ErrorCode.NONE)
                records += [
                    OffsetDeleted(group_id, partition.topic, partition.partition)
                    for partition in self.offsets.known_partitions(group_id)
                ]
                records.append(GroupDeleted(group_id))
        reply = Reply(event.token, tuple(errors))
        return [Append(tuple(records)), reply] if records else [reply]

    # --- what lasts ---

    def replay(self, record: GroupRecord, position: int, producer_id: int) -> None:
        match record:
            case OffsetCommitted():
                self.offsets.replay_commit(record, position, producer_id)
                self._group(record.group_id)
            case OffsetDeleted():
                self.offsets.replay_deletion(record)
            case GroupMetadata():
                self._group(record.group_id).replay(record)
            case GroupDeleted():
                self.groups.pop(record.group_id, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [self._next_expiry()]
        for group in self.groups.values():
            effects += group.loaded(now_ms)
        return effects

    def _group(self, group_id: GroupId) -> ClassicGroup:
        """Whoever commits offsets without being in a group makes one that is nothing but a name."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._config, self._new_uuid)
        return group
