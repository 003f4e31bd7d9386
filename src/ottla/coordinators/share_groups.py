"""Share groups of a broker: connects the group coordinator, which keeps the groups, and the share coordinator,
which keeps their delivery state (KIP-932).

    heartbeat ---> group: partitions are to be initialized ---> share coordinator: initialized ---> group: so they are
                                                                                                       |
    answer with an assignment  <-----------------------------------------------------------------------+

Methods return the machines' replies, or raise the errors of `Coordinator`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.share.events import (
    AlterShareOffsets,
    DeleteShareGroup,
    DeleteShareOffsets,
    DescribeShareGroups,
    FindSharePartitions,
    ForgetShareTopics,
    RefreshShareMember,
    ShareBeat,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareOffset,
    ShareOffsetsAltered,
    ShareOffsetsDeleted,
    ShareStateFailed,
    ShareStateInitialized,
    ToInitialize,
)
from ottla.ids import ZERO_TOPIC_ID, GroupId, PartitionId, TopicId, TopicName
from ottla.share.state import SharePartitionKey
from ottla.share.state_events import DeleteState, StateChanged, StateSummary
from ottla.slices import TOGETHER
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.groups.consumer.events import Partitions
    from ottla.metadata.view import MetadataView

log = logging.getLogger(__name__)

INITIALIZE_TIMEOUT_S: Final = 1.0
"""How long a heartbeat waits for new share partitions, so that its answer can assign them already."""


class TopicOffsets(NamedTuple):
    """The start offsets of a topic's partitions, with the leader epoch; -1 where unknown."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[tuple[PartitionId, StateSummary], ...]


class TopicDeletion(NamedTuple):
    """The outcome, for one topic, of the deletion of a share group's offsets."""

    topic: TopicName
    topic_id: TopicId
    error: ErrorCode
    message: str | None


class ShareOffsetsDeletion(NamedTuple):
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or what became of each topic."""

    error: ErrorCode
    message: str | None = None
    topics: tuple[TopicDeletion, ...] = ()


class ShareStates(Protocol):
    """The share coordinators, as group coordinators use them; methods are `ShareCoordinator`'s."""

    async def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, *, only_if_new: bool = False
    ) -> StateChanged: ...

    async def change(self, event: DeleteState) -> StateChanged: ...

    async def summarize(self, key: SharePartitionKey) -> StateSummary: ...


class ShareGroupCoordinator:
    """The share groups that this broker coordinates. Everything happens on the loop's thread."""

    def __init__(
        self, groups: "GroupCoordinator", share_state: ShareStates, image: "Callable[[], MetadataImage]"
    ) -> None:
        self._groups = groups
        self._state = share_state
        self._image = image
        self._tasks = Tasks()
        self._group_locks: dict[GroupId, tuple[asyncio.Lock, int]] = {}
        """The lock of each group whose state is being changed, and the number of its users."""

    @classmethod
    def of_broker(cls, groups: "GroupCoordinator", share_state: ShareStates, metadata: "MetadataView") -> Self:
        """The share groups of a running broker, subscribed to deleted topics."""
        created = cls(groups, share_state, lambda: metadata.image)
        metadata.subscribe(created.on_metadata)
        return created

    async def stop(self) -> None:
        """Cancel work under way: the next coordinator begins it anew."""
        await self._tasks.close()

    # --- membership ---

    async def heartbeat(self, event: ShareHeartbeat) -> ShareBeat:
        """A member joins, lives or leaves. What it asks has been looked at already."""
        beat = await self._groups.submit(event.group_id, event)
        if beat.initialize is None:
            return beat
        work = self._tasks.spawn(
            self._initialize_quietly(event.group_id, beat.initialize), f"share partitions of group {event.group_id}"
        )
        await asyncio.wait([work], timeout=INITIALIZE_TIMEOUT_S)
        if not work.done():
            return beat
        # Kafka has the member wait for its next heartbeat, seconds later.
        refresh = RefreshShareMember(event.group_id, event.member_id, event.member_epoch)
        again = await self._groups.submit(event.group_id, refresh)
        return beat if again.error else again

    async def describe(self, group_id: GroupId) -> ShareGroupDescription:
        """A share group; the description of any other carries GROUP_ID_NOT_FOUND."""
        descriptions = await self._groups.submit(group_id, DescribeShareGroups((group_id,)))
        return descriptions[0]

    async def delete_group(self, group_id: GroupId) -> ErrorCode:
        """Delete a group of any kind; the state of a share group goes first."""
        async with self._group_lock(group_id):
            deletion = await self._groups.submit(group_id, DeleteShareGroup(group_id))
            if deletion.error:
                return deletion.error
            for failed in (await self._delete_state(group_id, deletion.partitions)).values():
                if failed.error:
                    return failed.error
            return await self._groups.delete_group(group_id)

    # --- state ---

    @asynccontextmanager
    async def _group_lock(self, group_id: GroupId) -> AsyncIterator[None]:
        """One at a time: what a group has decided and what the share coordinator then does must not be mixed up with
        another decision, or the one would forget what the other has initialized."""
        lock, users = self._group_locks.get(group_id, (asyncio.Lock(), 0))
        self._group_locks[group_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._group_locks.pop(group_id)
            if users > 1:
                self._group_locks[group_id] = (lock, users - 1)

    async def _initialize_quietly(self, group_id: GroupId, wanted: ToInitialize) -> None:
        """Initialize, and log errors; a later heartbeat retries."""
        try:
            async with self._group_lock(group_id):
                await self._initialize(group_id, wanted)
        except OttlaError as error:
            log.warning("share group %s: recording initialized partitions failed: %s", group_id, error)

    async def _initialize(self, group_id: GroupId, wanted: ToInitialize) -> "dict[TopicId, dict[int, StateChanged]]":
        """Have the state of these share partitions initialized, and report the results to the group."""

        def initialize(key: SharePartitionKey) -> Awaitable[StateChanged]:
            start_offset = wanted.start_offsets[key.topic_id][key.partition]
            only_if_new = key.topic_id not in wanted.anew
            return self._state.initialize(key, wanted.state_epoch, start_offset, only_if_new=only_if_new)

        results = await self._each(group_id, wanted.partitions, initialize)
        done = _those(results, lambda result: result.error is ErrorCode.NONE)
        failed = _those(results, lambda result: result.error is not ErrorCode.NONE)
        if done:
            await self._groups.submit(group_id, ShareStateInitialized(group_id, done))
        if failed:
            reasons = {
                result.message or result.error.name
                for each in results.values()
                for result in each.values()
                if result.error
            }
            log.warning("share group %s: some state could not be initialized: %s", group_id, "; ".join(sorted(reasons)))
            await self._groups.submit(group_id, ShareStateFailed(group_id, failed))
        return results

    async def _delete_state(self, group_id: GroupId, partitions: "Partitions") -> dict[TopicId, StateChanged]:
        """Have the state of these share partitions forgotten; by topic, the first error or none."""
        results = await self._each(group_id, partitions, lambda key: self._state.change(DeleteState(key)))
        return {
            topic_id: next((result for result in each.values() if result.error), StateChanged())
            for topic_id, each in results.items()
        }

    async def _each(
        self, group_id: GroupId, partitions: "Partitions", ask: Callable[[SharePartitionKey], Awaitable[StateChanged]]
    ) -> dict[TopicId, dict[int, StateChanged]]:
        async def one(key: SharePartitionKey) -> StateChanged:
            try:
                return await ask(key)
            except OttlaError as error:
                return StateChanged(error.code, str(error))

        keys = [
            SharePartitionKey(group_id, topic_id, PartitionId(index))
            for topic_id, indexes in partitions.items()
            for index in sorted(indexes)
        ]
        results: dict[TopicId, dict[int, StateChanged]] = {}
        for key, result in zip(keys, await asyncio.gather(*map(one, keys)), strict=True):
            results.setdefault(key.topic_id, {})[key.partition] = result
        return results

    # --- offsets ---

    async def alter_offsets(self, group_id: GroupId, offsets: Sequence[ShareOffset]) -> ShareOffsetsAltered:
        """Have a group without members start elsewhere; one error for each of the offsets."""
        event = AlterShareOffsets(group_id, tuple(offsets))
        async with self._group_lock(group_id):
            altered = await self._groups.submit(group_id, event)
            if altered.initialize is None:
                return altered
            results = await self._initialize(group_id, altered.initialize)
        topics = self._image().topics
        errors = []
        for requested, error in zip(offsets, altered.errors, strict=True):
            topic = topics.get(requested.topic)
            done = results.get(topic.topic_id, {}).get(requested.partition) if topic is not None else None
            errors.append(error if error or done is None else done.error)
        return altered._replace(errors=tuple(errors))

    async def describe_offsets(
        self, group_id: GroupId, topics: Mapping[TopicName, Sequence[PartitionId]] | None
    ) -> list[TopicOffsets]:
        """Where the group starts in these partitions, or in all that it has state for.

        What is not known, for whatever reason, starts at -1, as in Kafka.
        """
        image = self._image()
        if topics is None:
            found = await self._groups.submit(group_id, FindSharePartitions(group_id))
            known = [
                (image.topics_by_id[topic_id], indexes)
                for topic_id, indexes in found.items()
                if topic_id in image.topics_by_id
            ]
            topics = {topic.name: [PartitionId(index) for index in sorted(indexes)] for topic, indexes in known}
        return [await self._describe_topic(group_id, name, partitions) for name, partitions in topics.items()]

    async def _describe_topic(
        self, group_id: GroupId, name: TopicName, partitions: Iterable[PartitionId]
    ) -> TopicOffsets:
        topic = self._image().topics.get(name)
        topic_id = ZERO_TOPIC_ID if topic is None else topic.topic_id

        async def one(partition: PartitionId) -> tuple[PartitionId, StateSummary]:
            try:
                summary = await self._state.summarize(SharePartitionKey(group_id, topic_id, partition))
            except OttlaError:
                return partition, StateSummary()
            return partition, StateSummary() if summary.error else summary

        if topic is None:
            unknown = StateSummary()
            return TopicOffsets(name, topic_id, tuple((partition, unknown) for partition in partitions))
        rest, found = iter(partitions), list[tuple[PartitionId, StateSummary]]()
        while some := list(islice(rest, TOGETHER)):  # others on the loop go on in between
            found += await asyncio.gather(*map(one, some))
        return TopicOffsets(name, topic_id, tuple(found))

    async def delete_offsets(self, group_id: GroupId, topics: Sequence[TopicName]) -> ShareOffsetsDeletion:
        """Have a group without members forget topics."""
        async with self._group_lock(group_id):
            return await self._delete_offsets(group_id, topics)

    async def _delete_offsets(self, group_id: GroupId, topics: Sequence[TopicName]) -> ShareOffsetsDeletion:
        event = DeleteShareOffsets(group_id, tuple(topics))
        deletion = await self._groups.submit(group_id, event)
        if deletion.error:
            return ShareOffsetsDeletion(deletion.error, deletion.message)
        refused = tuple(
            TopicDeletion(name, ZERO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            for name, why in deletion.refused.items()
        )
        image = self._image()
        names = {topic_id: image.topics_by_id[topic_id].name for topic_id in deletion.partitions}
        results = await self._delete_state(group_id, deletion.partitions)
        done = frozenset(topic_id for topic_id, result in results.items() if not result.error)
        if done:
            await self._groups.submit(group_id, ShareOffsetsDeleted(group_id, done))
        deleted = tuple(
            TopicDeletion(names[topic_id], topic_id, result.error, result.message)
            for topic_id, result in results.items()
        )
        return ShareOffsetsDeletion(ErrorCode.NONE, None, refused + deleted)

    # --- deleted topics ---

    def on_metadata(self, old: "MetadataImage", new: "MetadataImage") -> None:
        """Remove deleted topics from share groups."""
        gone = old.topics_by_id.keys() - new.topics_by_id.keys() if old.topics is not new.topics else frozenset()
        if gone:
            self._tasks.spawn(self._forget(frozenset(gone)), "deleted topics of share groups")

    async def _forget(self, topic_ids: frozenset[TopicId]) -> None:
        for error in await self._groups.submit_to_all(ForgetShareTopics(topic_ids)):
            log.warning("share groups still know of deleted topics: %s", error)


def _those(
    results: Mapping[TopicId, Mapping[int, StateChanged]], wanted: Callable[[StateChanged], bool]
) -> "dict[TopicId, frozenset[int]]":
    found = {
        topic_id: frozenset(index for index, result in each.items() if wanted(result))
        for topic_id, each in results.items()
    }
    return {topic_id: indexes for topic_id, indexes in found.items() if indexes}
