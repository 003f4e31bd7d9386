"""The part of the machine that knows whose state the share coordinator keeps for share groups. PURE.

    uninitialized --heartbeat, AlterShareOffsets--> initializing --ShareStateInitialized--> initialized
         ^                                               |                                       |
         +------------- ShareStateFailed ----------------+                                       |
         +------------- ShareOffsetsDeleted --------- deleting <--DeleteShareOffsets, DeleteShareGroup

Each step is a record, so that what was begun is known after a crash and done again. Source: KIP-932, Kafka 4.3.
"""

from types import MappingProxyType
from typing import Final

from ottla.coordination.state_machine import Append, Effect, LongDecision, Reply, ReplyT
from ottla.errors import ApiError, ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import Partitions
from ottla.groups.environment import GroupEnvironment
from ottla.groups.kinds import EventHandlers, Groups, Replays, TimerHandlers
from ottla.groups.share.events import (
    AlterShareOffsets,
    DeleteShareGroup,
    DeleteShareOffsets,
    FindSharePartitions,
    ForgetShareTopics,
    ShareDeletion,
    ShareOffsetsAltered,
    ShareOffsetsDeleted,
    ShareStateFailed,
    ShareStateInitialized,
    ToInitialize,
)
from ottla.groups.share.group import ShareGroup, both, names_of, united, without
from ottla.groups.share.records import ShareStatePartitions
from ottla.ids import GroupId, TopicId, TopicName

NOTHING_TO_DELETE: Final = "There is no offset information to delete."
NO_SUCH_TOPIC: Final = "This server does not host this topic-partition."
NOT_EMPTY: Final = "The group is not empty."


class ShareOffsetRequests:
    """AlterShareGroupOffsets, DeleteShareGroupOffsets, the beginning of DeleteGroups, and what follows of them."""

    def __init__(self, groups: Groups, config: GroupConfig, environment: GroupEnvironment) -> None:
        self._groups = groups
        self._config = config
        self._topics = environment.topics
        self.events: Final[EventHandlers] = MappingProxyType(
            {
                ShareStateInitialized: self._initialized,
                ShareStateFailed: self._failed,
                FindSharePartitions: self._find,
                AlterShareOffsets: self._alter,
                DeleteShareOffsets: self._delete_offsets,
                ShareOffsetsDeleted: self._offsets_deleted,
                DeleteShareGroup: self._delete_group,
                ForgetShareTopics: self._forget_topics,
            }
        )
        self.timers: Final[TimerHandlers] = MappingProxyType({})
        self.replays: Final[Replays] = MappingProxyType({})

    def loaded(self, now_ms: int) -> LongDecision:
        """Remove topics that were deleted while the log had no leader."""
        topics = self._topics()
        for group in list(self._groups.values()):
            yield None
            if isinstance(group, ShareGroup) and group.state_partitions is not None:
                known = group.state_partitions.topic_ids()
                records = self._group_without(group, frozenset(each for each in known if topics.by_id(each) is None))
                if records:
                    yield Append(records)

    # --- initializing ---

    def _initialized(self, event: ShareStateInitialized, now_ms: int) -> list[Effect]:
        """Deleted partitions stay deleted."""
        state = self._state(event.group_id)
        done = both(event.partitions, state.initializing)
        changed = state._replace(
            initializing=without(state.initializing, done), initialized=united(state.initialized, done)
        )
        return self._changed(state, changed, Reply(event, None))

    def _failed(self, event: ShareStateFailed, now_ms: int) -> list[Effect]:
        state = self._state(event.group_id)
        changed = state._replace(initializing=without(state.initializing, event.partitions))
        return self._changed(state, changed, Reply(event, None))

    def _find(self, event: FindSharePartitions, now_ms: int) -> list[Effect]:
        return [Reply(event, self._state(event.group_id).initialized)]

    def _alter(self, event: AlterShareOffsets, now_ms: int) -> list[Effect]:
        try:
            group = self._empty_group(event.group_id)
        except ApiError as refused:
            return [Reply(event, ShareOffsetsAltered(refused.code, str(refused)))]
        topics = self._topics()
        errors: list[ErrorCode] = []
        offsets: dict[TopicId, dict[int, int]] = {}
        for requested in event.offsets:
            topic = topics.by_name(requested.topic)
            if topic is None or not 0 <= requested.partition < topic.partition_count:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            errors.append(ErrorCode.NONE)
            offsets.setdefault(topic.topic_id, {})[requested.partition] = requested.start_offset
        if not offsets:
            return [Reply(event, ShareOffsetsAltered(ErrorCode.NONE, None, tuple(errors)))]
        initialize = ToInitialize(group.epoch, offsets, frozenset(offsets))
        state = self._state(event.group_id)
        changed = state._replace(
            initializing=united(state.initializing, initialize.partitions),
            deleting=state.deleting - initialize.partitions.keys(),
        )
        group.initialize_again_ms = now_ms + 2 * self._config.offsets_commit_timeout_ms
        reply = ShareOffsetsAltered(ErrorCode.NONE, None, tuple(errors), initialize)
        return self._changed(state, changed, Reply(event, reply))

    # --- deleting ---

    def _delete_offsets(self, event: DeleteShareOffsets, now_ms: int) -> list[Effect]:
        try:
            self._empty_group(event.group_id)
        except ApiError as refused:
            return [Reply(event, ShareDeletion(refused.code, str(refused)))]
        topics = self._topics()
        state = self._state(event.group_id)
        partitions: dict[TopicId, frozenset[int]] = {}
        refused_topics: dict[TopicName, str] = {}
        for name in event.topics:
            topic = topics.by_name(name)
            if topic is None:
                refused_topics[name] = NO_SUCH_TOPIC
            elif topic.topic_id in state.initialized:
                partitions[topic.topic_id] = state.initialized[topic.topic_id]
            elif topic.topic_id in state.deleting:  # begun before, and not brought to its end
                partitions[topic.topic_id] = frozenset(range(topic.partition_count))
            else:
                refused_topics[name] = NOTHING_TO_DELETE
        changed = state._replace(
            initialized={
                topic_id: indexes for topic_id, indexes in state.initialized.items() if topic_id not in partitions
            },
            deleting=state.deleting | partitions.keys(),
        )
        reply = ShareDeletion(partitions=partitions, refused=refused_topics)
        return self._changed(state, changed, Reply(event, reply))

    def _offsets_deleted(self, event: ShareOffsetsDeleted, now_ms: int) -> list[Effect]:
        state = self._state(event.group_id)
        changed = state._replace(deleting=state.deleting - event.topic_ids)
        return self._changed(state, changed, Reply(event, None))

    def _delete_group(self, event: DeleteShareGroup, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ShareGroup):
            return [Reply(event, ShareDeletion())]
        if not group.is_empty:
            return [Reply(event, ShareDeletion(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY))]
        topics = self._topics()
        state = self._state(event.group_id)
        partitions = united(state.initialized, state.initializing)
        for topic_id in state.deleting:  # begun before, and not brought to its end
            topic = topics.by_id(topic_id)
            if topic is not None:
                partitions[topic_id] = frozenset(range(topic.partition_count))
        # The state of topics that are gone is gone with them.
        partitions = {
            topic_id: indexes for topic_id, indexes in partitions.items() if topics.by_id(topic_id) is not None
        }
        changed = state._replace(initializing={}, initialized={}, deleting=frozenset(partitions))
        return self._changed(state, changed, Reply(event, ShareDeletion(partitions=partitions)))

    def _forget_topics(self, event: ForgetShareTopics, now_ms: int) -> list[Effect]:
        return [*self._without_topics(event.topic_ids), Reply(event, None)]

    def _without_topics(self, gone: frozenset[TopicId]) -> list[Effect]:
        groups = [group for group in self._groups.values() if isinstance(group, ShareGroup)]
        records = tuple(record for group in groups for record in self._group_without(group, gone))
        return [Append(records)] if records else []

    def _group_without(self, group: ShareGroup, gone: frozenset[TopicId]) -> tuple[ShareStatePartitions, ...]:
        """The record of a group's topics without these; nothing if it has none of them."""
        state = group.state_partitions
        if state is None:
            return ()
        changed = state._replace(
            initializing=_others(state.initializing, gone),
            initialized=_others(state.initialized, gone),
            deleting=state.deleting - gone,
        )
        return () if changed == state else (self._named(changed),)

    # --- small things ---

    def _empty_group(self, group_id: GroupId) -> ShareGroup:
        """Raises `ApiError` GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not group.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
        return group

    def _state(self, group_id: GroupId) -> ShareStatePartitions:
        group = self._groups.get(group_id)
        known = group.state_partitions if isinstance(group, ShareGroup) else None
        return known or ShareStatePartitions(group_id)

    def _changed(
        self, state: ShareStatePartitions, changed: ShareStatePartitions, reply: Reply[ReplyT]
    ) -> list[Effect]:
        return [reply] if changed == state else [Append((self._named(changed),)), reply]

    def _named(self, state: ShareStatePartitions) -> ShareStatePartitions:
        return state._replace(names=names_of(state.topic_ids(), self._topics()))


def _others(partitions: Partitions, gone: frozenset[TopicId]) -> Partitions:
    return {topic_id: indexes for topic_id, indexes in partitions.items() if topic_id not in gone}
