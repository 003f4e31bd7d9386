"""The group coordinator of a broker: finds the partition that speaks for a group and asks its machine.

Groups are spread over the partitions of `__consumer_offsets` by the hash of their id; whoever leads the partition
coordinates the group. Methods answer with what the machine replies. They raise `NotCoordinator`,
`CoordinatorLoadInProgress` or an `ApiError` where no machine could answer; its `code` is for the client.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.clock import Clock
from ottla.coordination.machine import Machine, Token
from ottla.coordination.runtime import CoordinatorLog, CoordinatorRuntime
from ottla.errors import ApiError, ErrorCode, NotCoordinator, OttlaError
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
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
    TopicPartitions,
)
from ottla.ids import GroupId, LeaderEpoch, PartitionId, TopicName
from ottla.records.batch import Buffer

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.cluster.metadata_service import MetadataService
    from ottla.config.broker import BrokerConfig
    from ottla.groups.records import GroupRecord
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = TopicName("__consumer_offsets")


LOAD_PATIENCE_S: Final = 1.0

EnsureTopic = Callable[[], Awaitable[None]]
"""Create `__consumer_offsets`, unless it is there. Raises an `OttlaError` if that cannot be done."""


class _LogOfReplicas:
    """`__consumer_offsets` on this broker's replicas, as the runtime wants to see it."""

    __slots__ = ("_replicas",)

    def __init__(self, replicas: "ReplicaManager") -> None:
        self._replicas = replicas

    async def append_committed(self, partition: PartitionId, batch: bytearray) -> object:
        return await self._replicas.append_committed(OFFSETS_TOPIC, partition, batch)

    def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        return self._replicas.read_all(OFFSETS_TOPIC, partition)


class GroupCoordinator:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        coordinator_log: CoordinatorLog,
        ensure_topic: EnsureTopic,
        clock: Clock,
        *,
        config: GroupConfig | None = None,
        partition_count: int = 50,
        commit_timeout_ms: int = 5_000,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        settings = config or GroupConfig()
        self._partition_count = partition_count
        self._ensure_topic = ensure_topic
        self._tasks: set[asyncio.Task[None]] = set()

        def new_machine() -> "Machine[GroupEvent, GroupRecord]":
            from ottla.groups.machine import GroupMachine  # only a broker that has groups pays for their code

            return GroupMachine(settings, new_uuid)

        self._runtime: CoordinatorRuntime[GroupEvent, GroupRecord] = CoordinatorRuntime(
            "group coordinator",
            coordinator_log,
            new_machine,
            clock,
            commit_timeout_ms=commit_timeout_ms,
        )

    @classmethod
    def of_broker(
        cls, config: "BrokerConfig", metadata: "MetadataService", replicas: "ReplicaManager", clock: Clock
    ) -> Self:
        """The coordinator of a running broker, told of leadership and of deleted topics from now on."""

        async def ensure_topic() -> None:
            refused = (await metadata.ensure_topics([OFFSETS_TOPIC]))[OFFSETS_TOPIC]
            if refused is not None:
                raise refused

        settings = GroupConfig(
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_minutes=config.offsets_retention_minutes,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        )
        created = cls(
            _LogOfReplicas(replicas),
            ensure_topic,
            clock,
            config=settings,
            partition_count=config.offsets_topic_num_partitions,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
        )

        def leadership_changed(partition: PartitionId, epoch: LeaderEpoch | None) -> None:
            if epoch is None:
                created.on_resign(partition)
            else:
                created.on_leadership(partition, epoch)

        created.count_partitions(metadata.image)
        replicas.on_leadership(OFFSETS_TOPIC, leadership_changed)
        metadata.subscribe(created.on_metadata)
        return created

    # --- where groups live ---

    def partition_for(self, group_id: str) -> PartitionId:
        """The partition of `__consumer_offsets` that stands for the group."""
        return PartitionId((java_string_hash(group_id) & 0x7FFF_FFFF) % self._partition_count)

    def count_partitions(self, image: "MetadataImage") -> None:
        """Spread groups over the partitions that the topic has: it may have been made with another number of them
        than `offsets.topic.num.partitions`, by hand or by a broker taken over."""
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._partition_count = len(topic.partitions)

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` if it is not there. Raises an `OttlaError`."""
        await self._ensure_topic()

    def on_leadership(self, partition: PartitionId, epoch: LeaderEpoch) -> None:
        """This broker leads the partition of `__consumer_offsets`. On the loop's thread."""
        self._runtime.on_leadership(partition, epoch)

    def on_resign(self, partition: PartitionId) -> None:
        """It leads it no more."""
        self._runtime.on_resign(partition)

    def is_active(self, partition: PartitionId) -> bool:
        """Is the partition led by this broker, and read?"""
        return self._runtime.is_active(partition)

    async def until_active(self, partition: PartitionId) -> None:
        """Wait a moment for a partition that is just being read, which saves its clients a round of retries."""
        await self._runtime.until_active(partition, LOAD_PATIENCE_S)

    async def stop(self) -> None:
        """Let writes finish, then answer all who wait with NOT_COORDINATOR."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runtime.stop()

    # --- membership ---

    async def join(self, event: Join) -> Joined:
        if not event.group_id:
            return Joined(ErrorCode.INVALID_GROUP_ID, event.member_id)
        reply: Joined = await self._ask(event.group_id, lambda token: event._replace(token=token))
        return reply

    async def sync(self, event: Sync) -> Synced:
        if not event.group_id:
            return Synced(ErrorCode.INVALID_GROUP_ID)
        reply: Synced = await self._ask(event.group_id, lambda token: event._replace(token=token))
        return reply

    async def heartbeat(self, event: Heartbeat) -> ErrorCode:
        """A member of a group that is still being read is told to carry on."""
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            reply: ErrorCode = await self._ask(event.group_id, lambda token: event._replace(token=token))
        except OttlaError as error:
            return ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
        return reply

    async def leave(self, event: Leave) -> Left:
        if not event.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group's id cannot be empty")
        reply: Left = await self._ask(event.group_id, lambda token: event._replace(token=token))
        return reply

    # --- offsets ---

    def on_metadata(self, old: "MetadataImage", new: "MetadataImage") -> None:
        """Topics that are there no more take the offsets in them along."""
        if old.topics is new.topics:
            return
        self.count_partitions(new)
        gone = [
            TopicPartitions(topic.name, tuple(partition.partition for partition in topic.partitions))
            for topic in old.topics.values()
            if topic.topic_id not in new.topics_by_id
        ]
        if gone:
            task = asyncio.get_running_loop().create_task(self.forget_partitions(gone))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def commit_offsets(self, event: CommitOffsets) -> OffsetsCommitted:
        reply: OffsetsCommitted = await self._ask(event.group_id, lambda token: event._replace(token=token))
        return reply

    async def fetch_offsets(self, event: FetchOffsets) -> OffsetsFetched:
        reply: OffsetsFetched = await self._ask(event.group_id, lambda token: event._replace(token=token))
        return reply

    async def delete_offsets(self, event: DeleteOffsets) -> OffsetsDeleted:
        if not event.group_id:
            return OffsetsDeleted(ErrorCode.INVALID_GROUP_ID)
        reply: OffsetsDeleted = await self._ask(event.group_id, lambda token: event._replace(token=token))
        return reply

    async def forget_partitions(self, topics: Sequence[TopicPartitions]) -> None:
        """Drop the offsets in partitions that have been deleted, in every group coordinated here.

        A partition that is just being read keeps them until they expire: an offset knows the id of its topic.
        """
        for partition in self._runtime.partitions():
            try:
                await self._runtime.ask(partition, lambda token: ForgetPartitions(token, tuple(topics)))
            except OttlaError as error:
                log.warning("offsets of deleted topics are kept in partition %d: %s", partition, error)

    # --- groups ---

    async def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """Every group coordinated here, or those in one of these states (in any case of letters)."""
        wanted = frozenset(state.lower() for state in states)
        listings: list[GroupListing] = []
        for partition in self._runtime.partitions():
            try:
                listings += await self._runtime.ask(partition, lambda token: ListGroups(token, wanted))
            except NotCoordinator:
                continue  # it has moved meanwhile, and is listed where it is now
        return listings

    async def describe_group(self, group_id: GroupId) -> GroupDescription:
        """A group that is not there is described as dead."""
        descriptions = await self._ask(group_id, lambda token: DescribeGroups(token, (group_id,)))
        description: GroupDescription = descriptions[0]
        return description

    async def delete_group(self, group_id: GroupId) -> ErrorCode:
        errors = await self._ask(group_id, lambda token: DeleteGroups(token, (group_id,)))
        error: ErrorCode = errors[0]
        return error

    async def _ask(self, group_id: str, event_for: Callable[[Token], GroupEvent]) -> Any:
        return await self._runtime.ask(self.partition_for(group_id), event_for)


def java_string_hash(text: str) -> int:
    """`String.hashCode()` as an unsigned 32-bit number: over UTF-16 code units, as Java counts."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return value
