"""The group coordinator of a broker: routes requests to the partition of their group and its state machine.

Methods return the machine's reply, or raise the errors of `Coordinator`.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from ottla.clock import Clock
from ottla.cluster.image import GROUP_METADATA_TOPIC, empty_image
from ottla.config.group_settings import GroupSettings
from ottla.coordination.markers import TransactionMarker
from ottla.coordination.producers import NOT_REQUIRED, Verification
from ottla.coordination.state_machine import StateMachine
from ottla.coordinators.coordinator import Coordinator
from ottla.coordinators.image_topics import ImageTopics
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.topic import CoordinatorTopic
from ottla.coordinators.topic_patterns import matching_topics, regex_problem
from ottla.coordinators.verification import SECOND, Generation, TransactionVerifier
from ottla.errors import ApiError, CoordinatorLoadInProgress, ErrorCode, NotCoordinator, OttlaError
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import (
    ConsumerBeat,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribeConsumerGroups,
    DescribeHistory,
    GroupHistory,
    RegexesResolved,
    TopicsChanged,
)
from ottla.groups.environment import GroupEnvironment
from ottla.groups.events import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    ForgetTopics,
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
from ottla.ids import GroupId, PartitionId, TopicId, TopicName, TopicPartition
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.config.broker import BrokerConfig
    from ottla.groups.records import GroupRecord
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)


class GroupCoordinator(Coordinator[GroupEvent, "GroupRecord"]):
    """The groups that this broker coordinates."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        clock: Clock,
        *,
        config: GroupConfig | None = None,
        commit_timeout_ms: int = 5_000,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
        topics: ImageTopics | None = None,
        settings: Callable[[GroupId], GroupSettings] | None = None,
    ) -> None:
        """`topics` and `settings`: what there is to read, and what holds for a group; none and the defaults if None."""
        group_config = config or GroupConfig()
        self._topics = topics or ImageTopics(empty_image(""), 0)
        self._changed_topics: set[TopicName] = set()
        self._tasks = Tasks()
        environment = GroupEnvironment(lambda: self._topics, settings or (lambda _: GroupSettings()), regex_problem)

        def new_machine() -> "StateMachine[GroupEvent, GroupRecord]":
            from ottla.groups.state_machine import GroupMachine  # only a broker that has groups pays for their code

            return GroupMachine(group_config, new_uuid, environment)

        runtime = CoordinatorRuntime(
            "group coordinator", topic.log, new_machine, clock, commit_timeout_ms=commit_timeout_ms
        )
        super().__init__(topic, runtime)

    @classmethod
    def of_broker(
        cls, config: "BrokerConfig", metadata: "MetadataView", replicas: "ReplicaManager", clock: Clock
    ) -> Self:
        """The coordinator of a running broker, subscribed to leadership and to deleted topics."""
        group_config = GroupConfig(
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            group_consumer_assignors=config.group_consumer_assignors,
            group_consumer_max_size=config.group_consumer_max_size,
            group_consumer_migration_policy=config.group_consumer_migration_policy,
            group_consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            group_share_initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
            group_share_max_size=config.group_share_max_size,
            group_streams_max_size=config.group_streams_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
            offsets_retention_minutes=config.offsets_retention_minutes,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        )
        topic = CoordinatorTopic.of_broker(
            GROUP_METADATA_TOPIC, metadata, replicas, config.offsets_topic_num_partitions
        )
        created = cls(
            topic,
            clock,
            config=group_config,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            # What regular expressions matched is kept in the log: the version of a former life must not come again.
            topics=ImageTopics(metadata.image, version=clock.now_ms()),
            settings=metadata.group_settings,
        )
        topic.lead(created._runtime, metadata, replicas)
        metadata.subscribe(created.on_metadata)
        return created

    async def stop(self) -> None:
        """Let writes finish, then answer all waiting requests with NOT_COORDINATOR."""
        await self._tasks.close()
        await super().stop()

    # --- membership ---

    async def join(self, event: Join) -> Joined:
        if not event.group_id:
            return Joined(ErrorCode.INVALID_GROUP_ID, event.member_id)
        return await self.submit(event.group_id, event)

    async def sync(self, event: Sync) -> Synced:
        if not event.group_id:
            return Synced(ErrorCode.INVALID_GROUP_ID)
        return await self.submit(event.group_id, event)

    def heartbeat(self, event: Heartbeat) -> "asyncio.Future[ErrorCode]":
        """The verdict on a member of a classic group. A group that is still being read accepts all of them."""
        if not event.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group's id cannot be empty")
        try:
            return self.submit(event.group_id, event)
        except CoordinatorLoadInProgress:
            accepted: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            accepted.set_result(ErrorCode.NONE)
            return accepted

    async def leave(self, event: Leave) -> Left:
        if not event.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group's id cannot be empty")
        return await self.submit(event.group_id, event)

    def consumer_heartbeat(
        self, event: ConsumerHeartbeat, may_describe: Callable[[str], bool] | None = None
    ) -> "asyncio.Future[ConsumerBeat]":
        """The reply to a member of a consumer group (KIP-848) that joins, lives or leaves; the request is valid.

        `may_describe` decides, in a thread, about the topics that match the group's expressions, where this heartbeat
        has them looked up. As in Kafka the rights of that member count, and the topics are those of all members with
        the expression, until they are looked up again.
        """
        reply: asyncio.Future[ConsumerBeat] = self.submit(event.group_id, event)
        resolve = partial(self._resolve_for, event.group_id, may_describe)
        if reply.done():
            resolve(reply)
        else:
            reply.add_done_callback(resolve)
        return reply

    def _resolve_for(
        self, group_id: GroupId, may_describe: Callable[[str], bool] | None, reply: "asyncio.Future[ConsumerBeat]"
    ) -> None:
        if not reply.cancelled() and reply.exception() is None and reply.result().resolve:
            work = self._resolve(group_id, reply.result().resolve, may_describe)
            self._tasks.spawn(work, f"expressions of group {group_id}")

    async def _resolve(
        self, group_id: GroupId, regexes: Sequence[str], may_describe: Callable[[str], bool] | None
    ) -> None:
        """Resolve a group's regular expressions to topics; if that fails, the group requests it again later."""
        topics = self._topics
        found = await matching_topics(regexes, topics.names(), may_describe)
        try:
            await self.submit(group_id, RegexesResolved(group_id, found, topics.version))
        except OttlaError as error:
            log.info("group %s: resolving its regular expressions failed: %s", group_id, error)

    # --- topics ---

    def on_metadata(self, old: "MetadataImage", new: "MetadataImage") -> None:
        """Notify groups of changed topics; deleted topics take their committed offsets along."""
        before, self._topics = self._topics, self._topics.after(new)
        changed = before.changes(self._topics)
        if changed:
            is_being_told = bool(self._changed_topics)
            self._changed_topics |= changed
            if not is_being_told:
                self._tasks.spawn(self._submit_changed_topics(), "changed topics of groups")
        if old.topics is new.topics:
            return
        gone = {topic.name: topic.topic_id for topic in old.topics.values() if topic.topic_id not in new.topics_by_id}
        if gone:
            self._tasks.spawn(self.forget_topics(gone), "offsets of deleted topics")

    async def _submit_changed_topics(self) -> None:
        """Once for all that change while this task waits for its turn."""
        names, self._changed_topics = frozenset(self._changed_topics), set()
        for partition in self._runtime.partitions():
            # A machine that refuses the event is still loading, and will look at the topics itself.
            with contextlib.suppress(OttlaError):
                await self._submit_topics(partition, names)

    async def _submit_topics(self, partition: PartitionId, names: frozenset[TopicName]) -> None:
        left = await self._runtime.submit(partition, TopicsChanged(names))
        while left:
            await asyncio.sleep(0)
            left = await self._runtime.submit(partition, TopicsChanged(names, left))

    # --- offsets ---

    async def commit_offsets(self, event: CommitOffsets) -> OffsetsCommitted:
        return await self.submit(event.group_id, event)

    async def commit_offsets_in_transaction(
        self, event: CommitOffsets, transactional_id: str, verifier: TransactionVerifier, generation: Generation
    ) -> OffsetsCommitted:
        """Offsets that come into force with the transaction of `event.producer`.

        Raises besides the errors of `submit`: `InvalidProducerEpoch`, `InvalidTxnState`, and those of the transaction
        coordinator.
        """
        if not event.group_id:
            return OffsetsCommitted((ErrorCode.INVALID_GROUP_ID,) * len(event.offsets))
        producer = event.producer
        assert producer is not None
        partition = self.partition_for(event.group_id)
        producers = self._runtime.producers(partition)
        verification: Verification | None = NOT_REQUIRED
        if verifier.is_needed(generation):
            verification = producers.begin_verification(producer, implicit=generation is SECOND)
        try:
            if verification is not None and verification is not NOT_REQUIRED:
                offsets = TopicPartition(self.topic.name, partition)
                refusals = await verifier.refusals(transactional_id, producer, [offsets], generation)
                if offsets in refusals:
                    raise ApiError(refusals[offsets], "the transaction coordinator refuses offsets of this producer")
                if self._runtime.producers(partition) is not producers:
                    raise CoordinatorLoadInProgress("the group coordinator has started over")
            reply = await self._runtime.submit(
                partition,
                event,
                producer=producer,
                verification=verification,
            )
        finally:
            if verification is not None:
                producers.end_verification(verification)
        return reply

    async def fetch_offsets(self, event: FetchOffsets) -> OffsetsFetched:
        return await self.submit(event.group_id, event)

    async def delete_offsets(self, event: DeleteOffsets) -> OffsetsDeleted:
        if not event.group_id:
            return OffsetsDeleted(ErrorCode.INVALID_GROUP_ID)
        return await self.submit(event.group_id, event)

    async def forget_topics(self, topics: Mapping[TopicName, TopicId]) -> None:
        """Drop the offsets in topics that have been deleted, in every group coordinated here.

        A partition that is just being read keeps them until they expire: an offset knows the id of its topic.
        """
        for partition in self._runtime.partitions():
            try:
                await self._forget_topics(partition, topics)
            except OttlaError as error:
                log.warning("offsets of deleted topics are kept in partition %d: %s", partition, error)

    async def _forget_topics(self, partition: PartitionId, topics: Mapping[TopicName, TopicId]) -> None:
        left: tuple[GroupId, ...] | None = None
        while left is None or left:
            left = await self._runtime.submit(partition, ForgetTopics(topics, left))
            await asyncio.sleep(0)  # a reply without a write is there at once

    def end_transaction(self, partition: PartitionId, marker: TransactionMarker) -> "asyncio.Future[None]":
        """Offsets in the producer's transaction come into force, or are forgotten; done when that is committed.

        Raises, at once or from the future, the errors of `CoordinatorRuntime.end_transaction`.
        """
        return self._runtime.end_transaction(partition, marker)

    # --- groups ---

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Every group coordinated here, or those in one of these states and of one of these types.

        Both in upper or lower case; an unknown type has no groups.
        """
        # A state of two words, NotReady, is not_ready in Kafka's tools and notready in its client.
        wanted = frozenset(state.strip().lower().replace("_", "") for state in states)
        kinds = frozenset(kind.lower() for kind in types)
        listings: list[GroupListing] = []
        for partition in self._runtime.partitions():
            try:
                found = await self._runtime.submit(partition, ListGroups(wanted, kinds))
            except NotCoordinator:
                continue  # it has moved meanwhile, and is listed where it is now
            listings += found
        return listings

    async def describe_group(self, group_id: GroupId) -> GroupDescription:
        """A group that is not there is described as dead."""
        descriptions = await self.submit(group_id, DescribeGroups((group_id,)))
        return descriptions[0]

    async def describe_consumer_group(self, group_id: GroupId) -> ConsumerGroupDescription:
        """A group of the consumer protocol; the description of any other carries GROUP_ID_NOT_FOUND."""
        if not group_id:
            return ConsumerGroupDescription(ErrorCode.INVALID_GROUP_ID, None, group_id)
        descriptions = await self.submit(group_id, DescribeConsumerGroups((group_id,)))
        return descriptions[0]

    async def describe_history(self, group_id: GroupId) -> GroupHistory:
        """Why a group of any kind has rebalanced, and what moved."""
        return await self.submit(group_id, DescribeHistory(group_id))

    async def delete_group(self, group_id: GroupId) -> ErrorCode:
        errors = await self.submit(group_id, DeleteGroups((group_id,)))
        error: ErrorCode = errors[0]
        return error
