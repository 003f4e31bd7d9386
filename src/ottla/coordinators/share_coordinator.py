"""The share coordinator of a broker: keeps the state of share partitions for their leaders (KIP-932).

Each share partition belongs to the partition of `__share_group_state` that the hash of `group:topic id:partition`
names. Methods return the machine's reply, or raise the errors of `Coordinator`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from ottla.clock import Clock
from ottla.cluster.image import SHARE_GROUP_STATE_TOPIC
from ottla.coordination.state_machine import ReplyT, Request, StateMachine
from ottla.coordinators.coordinator import Coordinator
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.topic import CoordinatorTopic
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import GroupId, Offset, PartitionId, TopicId, uuid_to_text
from ottla.share.state import SharePartitionKey, SharePartitionState, StateBatch
from ottla.share.state_events import (
    DeleteState,
    FindNeeded,
    ForgetTopics,
    InitializeState,
    ReadState,
    ShareStateConfig,
    ShareStateEvent,
    StateChanged,
    StateSummary,
    SummarizeState,
    WriteState,
)
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.share.state_records import ShareStateRecord

log = logging.getLogger(__name__)

DeleteBefore = Callable[[PartitionId, Offset], object]
"""Let the records of a partition of `__share_group_state` below an offset go. Raises an `OttlaError`."""


def coordinator_key(group_id: str, topic_id: TopicId, partition: int) -> str:
    """What FindCoordinator calls a share partition (key type 2)."""
    return f"{group_id}:{uuid_to_text(topic_id)}:{partition}"


class ShareCoordinator(Coordinator[ShareStateEvent, "ShareStateRecord"]):
    """The share partitions whose state this broker keeps."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        clock: Clock,
        has_partition: Callable[[TopicId, PartitionId], bool],
        delete_before: DeleteBefore,
        *,
        config: ShareStateConfig | None = None,
        prune_interval_ms: int = 300_000,
        write_timeout_ms: int = 5_000,
    ) -> None:
        settings = config or ShareStateConfig()
        self._delete_before = delete_before
        self._prune_interval_s = prune_interval_ms / 1_000
        self._tasks = Tasks()
        self._pruned: dict[PartitionId, int] = {}
        self._starting_over: list[Callable[[SharePartitionKey], None]] = []

        def new_machine() -> "StateMachine[ShareStateEvent, ShareStateRecord]":
            from ottla.share.state_machine import ShareStateMachine  # loaded only by brokers with share groups

            return ShareStateMachine(settings, has_partition)

        runtime = CoordinatorRuntime(
            "share coordinator", topic.log, new_machine, clock, commit_timeout_ms=write_timeout_ms
        )
        super().__init__(topic, runtime)

    @classmethod
    def of_broker(
        cls, config: "BrokerConfig", metadata: "MetadataView", replicas: "ReplicaManager", clock: Clock
    ) -> Self:
        """The coordinator of a running broker, subscribed to leadership and to deleted topics."""

        def has_partition(topic_id: TopicId, partition: PartitionId) -> bool:
            topic = metadata.image.topics_by_id.get(topic_id)
            return topic is not None and 0 <= partition < len(topic.partitions)

        def delete_before(partition: PartitionId, offset: Offset) -> object:
            return replicas.leader(SHARE_GROUP_STATE_TOPIC, partition).log.delete_records_before(offset)

        settings = ShareStateConfig(
            config.share_coordinator_snapshot_update_records_per_snapshot,
            config.share_coordinator_cold_partition_snapshot_interval_ms,
        )
        topic = CoordinatorTopic.of_broker(
            SHARE_GROUP_STATE_TOPIC, metadata, replicas, config.share_coordinator_state_topic_num_partitions
        )
        created = cls(
            topic,
            clock,
            has_partition,
            delete_before,
            config=settings,
            prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
        )
        topic.lead(created._runtime, metadata, replicas)
        metadata.subscribe(created.on_metadata)
        created._tasks.spawn(created._prune_by_the_clock(), "pruning of share state")
        return created

    async def stop(self) -> None:
        """Let writes finish, then answer all waiting requests with NOT_COORDINATOR."""
        await self._tasks.close()
        await super().stop()

    # --- what leaders of share partitions call ---

    async def read(
        self, group_id: GroupId, topic_id: TopicId, partition: PartitionId, leader_epoch: int
    ) -> SharePartitionState:
        """What a leader starts from; leaders of earlier epochs cannot write any more.

        Raises `ApiError`: INVALID_REQUEST (never initialized), FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        key = SharePartitionKey(group_id, topic_id, partition)
        read = await self._submit(key, ReadState(key, leader_epoch))
        if read.error:
            raise ApiError(read.error, read.message or read.error.name)
        return read.state

    async def write(
        self,
        group_id: GroupId,
        topic_id: TopicId,
        partition: PartitionId,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
    ) -> ErrorCode:
        """Add to what is known of a share partition, durably: NONE, FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH,
        INVALID_REQUEST (never initialized), UNKNOWN_TOPIC_OR_PARTITION, or that no coordinator answered.

        A `start_offset` of -1 leaves it as it is.
        """
        key = SharePartitionKey(group_id, topic_id, partition)
        try:
            return (
                await self.change(WriteState(key, state_epoch, leader_epoch, start_offset, (*batches,), complete_count))
            ).error
        except OttlaError as error:
            return error.code

    # --- what group coordinators call, and the edge of the broker ---

    async def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, *, only_if_new: bool = False
    ) -> StateChanged:
        """Have a share partition start (over) at an offset, -1 if that is not known yet. Creates the topic."""
        await self.topic.ensure()
        await self.until_active(self.partition_for(coordinator_key(*key)), expected=True)
        return await self.change(InitializeState(key, state_epoch, start_offset, only_if_new))

    async def change(self, event: InitializeState | WriteState | DeleteState) -> StateChanged:
        reply = await self._submit(event.key, event)
        if reply.starts_over:
            for listener in self._starting_over:
                listener(event.key)
        return reply

    def on_starting_over(self, listener: Callable[[SharePartitionKey], None]) -> None:
        """Call `listener` on the loop whenever a share partition was initialized (anew) or deleted: its leader
        has to read its state again."""
        self._starting_over.append(listener)

    async def summarize(self, key: SharePartitionKey) -> StateSummary:
        """Where a share partition starts, without what was delivered."""
        return await self._submit(key, SummarizeState(key))

    async def _submit(self, key: SharePartitionKey, request: Request[ReplyT]) -> ReplyT:
        name = coordinator_key(*key)
        await self.until_active(self.partition_for(name))
        return await self.submit(name, request)

    # --- deleted topics, and the log's beginning ---

    def on_metadata(self, old: "MetadataImage", new: "MetadataImage") -> None:
        """Deleted topics take the state of their share partitions along."""
        gone = old.topics_by_id.keys() - new.topics_by_id.keys() if old.topics is not new.topics else frozenset()
        if gone:
            self._tasks.spawn(self.forget_topics(frozenset(gone)), "share state of deleted topics")

    async def forget_topics(self, topic_ids: frozenset[TopicId]) -> None:
        """Drop the state of every share partition of these topics that is kept here, also where the log is still being
        read: its machine finds the topics there as they were when it read the records."""
        for partition in self._runtime.partitions():
            try:
                await self._runtime.until_read(partition)
                await self._runtime.submit(partition, ForgetTopics(topic_ids))
            except OttlaError as error:
                log.warning("state of share partitions of deleted topics is kept for now: %s", error)

    async def prune(self) -> None:
        """Delete the records at the beginning of the log that are no longer needed."""
        for partition in self._runtime.partitions():
            try:
                needed = await self._runtime.submit(partition, FindNeeded())
                if needed is not None and needed != self._pruned.get(partition):
                    self._delete_before(partition, Offset(needed))
                    self._pruned[partition] = needed
            except OttlaError as error:
                log.warning("partition %d of %s is not pruned: %s", partition, self.topic.name, error)

    async def _prune_by_the_clock(self) -> None:
        while True:
            await asyncio.sleep(self._prune_interval_s)
            await self.prune()
