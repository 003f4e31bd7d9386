"""The partitions of this broker: created and dropped as the metadata says, appended to, committed, read.

The manager owns the lifecycle of every `Partition` and one flusher per log directory.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import (
    ApiError,
    ErrorCode,
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeader,
    OttlaError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.producer_state import Origin
from ottla.records.batch import iter_batches
from ottla.replication.delayed import DelayedFetch, FutureCommit
from ottla.replication.group_commit import GroupCommit, NewFlusher
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage, PartitionImage, TopicImage
    from ottla.cluster.metadata_view import MetadataView
    from ottla.log.directory import LogDirectories
    from ottla.log.partition_log import AppendInfo, PartitionLog
    from ottla.records.batch import Buffer

log = logging.getLogger(__name__)

NO_EPOCH: Final = -1
ALL_IN_SYNC: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka lets a client of this name, and no other, produce to internal topics."""

READ_CHUNK_BYTES: Final = 1 << 20
CREATED_PER_TURN: Final = 20

LeadershipListener = Callable[[PartitionId, LeaderEpoch | None], None]
"""Called with a partition of the topic and the epoch this broker leads it from, or None when it does no more."""


class ReplicaManager:
    """Every partition this broker keeps. All methods run on the loop's thread."""

    def __init__(
        self,
        metadata: "MetadataView",
        directories: "LogDirectories",
        loop: asyncio.AbstractEventLoop,
        *,
        new_flusher: NewFlusher = GroupCommit,
    ) -> None:
        self._metadata = metadata
        self._new_flusher = new_flusher
        self._broker_id = metadata.broker_id
        self._directories = directories
        self._loop = loop
        self._led: dict[tuple[str | UUID, int], Partition] = {}
        self._names: dict[UUID, TopicName] = {}
        self._flushers: dict[Path, GroupCommit] = {}
        self._woken: list[DelayedFetch] = []
        self._listeners: dict[str, LeadershipListener] = {}
        self.cold_readers: Executor = ThreadPoolExecutor(4, thread_name_prefix="ottla read")
        """Threads that may wait for a disk."""

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    def start(self, loaded: "dict[TopicPartition, PartitionLog]") -> None:
        """Take over the logs found on disk, create what the metadata has besides, and follow the metadata."""
        for directory in self._directories.directories:
            flusher = self._new_flusher(str(directory.path), self._loop, self._wake_fetches)
            self._flushers[directory.path] = flusher
            flusher.start()
        for topic in self._metadata.image.topics.values():
            self._names[topic.topic_id] = topic.name
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition)
                found = loaded.get(tp)
                if found is None or found.topic_id in (None, topic.topic_id):
                    self._lead(topic, part, loaded.pop(tp, None))
                else:  # left by a crash between the end of a topic and that of its files
                    self._set_aside(loaded.pop(tp))
                    self._lead(topic, part, None)
        for stray in loaded.values():
            self._set_aside(stray)
        self._metadata.subscribe(self._follow)

    def _set_aside(self, stray: "PartitionLog") -> None:
        try:
            kept = self._directories.set_aside(stray.topic_partition)
        except KafkaStorageError as error:
            log.error("%s", error)
        else:
            log.warning("%s belongs to no topic; its files are kept in %s", stray.topic_partition, kept)

    def _follow(self, old: "MetadataImage", new: "MetadataImage") -> None:
        for name, topic in old.topics.items():
            now = new.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                self._drop(topic)
        missing: list[tuple[TopicImage, PartitionImage]] = []
        for name, topic in new.topics.items():
            if old.topics.get(name) is not topic:
                self._names[topic.topic_id] = name
                missing += [(topic, part) for part in topic.partitions if (name, part.partition) not in self._led]
        if old.configs is not new.configs:
            for partition in self.partitions():
                partition.update_config(self._metadata.log_config(partition.topic_partition.topic))
        self._create(missing)

    def _create(self, missing: "list[tuple[TopicImage, PartitionImage]]") -> None:
        """Create logs, a few now and the rest in later turns of the loop: a topic may have thousands of partitions."""
        for topic, part in missing[:CREATED_PER_TURN]:
            deleted_meanwhile = topic.topic_id not in self._names
            if not deleted_meanwhile and (topic.topic_id, part.partition) not in self._led:  # asked for twice
                self._lead(topic, part, None)
        if len(missing) > CREATED_PER_TURN:
            self._loop.call_soon(self._create, missing[CREATED_PER_TURN:])

    def _lead(self, topic: "TopicImage", part: "PartitionImage", found: "PartitionLog | None") -> None:
        if self._broker_id not in part.replicas:
            return
        tp = TopicPartition(topic.name, part.partition)
        settings = self._metadata.log_config(topic.name)
        if found is None:
            try:
                found = self._directories.create_log(tp, topic.topic_id, settings)
            except (OSError, OttlaError) as error:
                log.error("%s cannot be created: %s", tp, error)
                return
        else:
            found.update_config(settings)
        flusher = self._flushers[found.directory.parent]
        partition = Partition(tp, found, part.leader_epoch, part.isr, len(part.replicas), flusher, self._wake)
        self._led[tp] = self._led[topic.topic_id, part.partition] = partition
        if found.recovery_point < found.log_end_offset and settings.flush_before_ack:
            partition.mark_dirty()
        partition.advance()
        listener = self._listeners.get(topic.name)
        if listener is not None:
            listener(part.partition, part.leader_epoch)

    def _drop(self, topic: "TopicImage") -> None:
        self._names.pop(topic.topic_id, None)
        listener = self._listeners.get(topic.name)
        for part in topic.partitions:
            partition = self._led.pop((topic.name, part.partition), None)
            self._led.pop((topic.topic_id, part.partition), None)
            if partition is None:
                continue
            partition.resign()
            partition.stop_flushing()
            try:
                self._directories.delete_log(partition.topic_partition)
            except KafkaStorageError as error:
                log.error("%s", error)
            if listener is not None:
                listener(part.partition, None)

    async def close(self) -> None:
        """Let the flushers finish, then make everything durable and mark the directories as cleanly shut down."""
        for flusher in self._flushers.values():
            flusher.close()
        self.cold_readers.shutdown()
        self._directories.close()

    def on_leadership(self, topic: str, listener: LeadershipListener) -> None:
        """Tell `listener` about each partition of `topic` this broker leads, now and later, or leads no more."""
        self._listeners[topic] = listener
        for partition in self.partitions():
            if partition.topic_partition.topic == topic:
                listener(partition.topic_partition.partition, partition.leader_epoch)

    # -- looking up --------------------------------------------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        """Every partition this broker leads."""
        return [partition for key, partition in self._led.items() if isinstance(key, TopicPartition)]

    def topic_name(self, topic_id: UUID) -> TopicName | None:
        return self._names.get(topic_id)

    def find(self, topic: str | UUID, partition: int) -> Partition | None:
        """The partition, by the topic's name or id, if this broker leads it."""
        return self._led.get((topic, partition))

    def leader(self, topic: str | UUID, partition: int) -> Partition:
        """The partition, by the topic's name or id. Raises UnknownTopicOrPartition, UnknownTopicId."""
        found = self._led.get((topic, partition))
        if found is None:
            if isinstance(topic, UUID) and topic not in self._names:
                raise UnknownTopicId(f"no topic has the id {topic}")
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic {topic} here")
        return found

    def for_fetch(self, topic: str | UUID, partition: int, current_leader_epoch: int) -> Partition:
        """The partition, if the caller's leader epoch is ours (or it named none, -1).

        Raises FencedLeaderEpoch for an older epoch, UnknownLeaderEpoch for a newer one (KIP-320).
        """
        found = self._led.get((topic, partition)) or self.leader(topic, partition)
        if current_leader_epoch not in (NO_EPOCH, found.leader_epoch):
            if current_leader_epoch < found.leader_epoch:
                raise FencedLeaderEpoch(
                    f"{found.topic_partition} is at leader epoch {found.leader_epoch}, not {current_leader_epoch}"
                )
            raise UnknownLeaderEpoch(
                f"{found.topic_partition} is only at leader epoch {found.leader_epoch}, not {current_leader_epoch}"
            )
        return found

    def for_produce(self, topic: str | UUID, partition: int, acks: int, client_id: str | None) -> Partition:
        """The partition, if this client may append to it with these acks now."""
        found = self._led.get((topic, partition)) or self.leader(topic, partition)
        if acks == ALL_IN_SYNC and len(found.isr) < min(found.log.config.min_insync_replicas, found.replica_count):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{found.topic_partition} has {len(found.isr)} in-sync replicas; "
                f"min.insync.replicas is {found.log.config.min_insync_replicas}",
            )
        if found.topic_partition.topic in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not produce to the internal topic {topic}")
        return found

    # -- the broker's own appends and reads (coordinators) -----------------------------------------------------------

    async def append_committed(self, topic: str, partition: int, records: bytearray) -> "AppendInfo":
        """Append the broker's own batches and return once they are committed.

        Raises NotLeader, KafkaStorageError, and whatever the log refuses.
        """
        try:
            found = self.leader(topic, partition)
        except UnknownTopicOrPartition as error:
            raise NotLeader(str(error)) from error
        info = found.append(records, Origin.COORDINATOR)
        await self._until_committed(found, Offset(info.last_offset + 1))
        return info

    async def _until_committed(self, partition: Partition, end: Offset) -> None:
        if partition.high_watermark < end:
            waiter = FutureCommit(self._loop)
            partition.when_committed(end, 0, waiter)
            await waiter.future

    async def read_all(self, topic: str, partition: int) -> "AsyncIterator[Buffer]":
        """The committed batches from the log's start on, in chunks of whole batches.

        Waits for what is in the log to be committed: the tail that a crash has left is still to be synced.
        """
        found = self.leader(topic, partition)
        source = found.log
        await self._until_committed(found, source.log_end_offset)
        offset = source.log_start_offset
        bound = source.high_watermark
        while offset < bound:
            read = partial(source.read_blocking, offset, READ_CHUNK_BYTES, upper_bound=bound, min_one_message=True)
            result = await self._loop.run_in_executor(self.cold_readers, read)
            batches = list(iter_batches(result.data))
            if not batches:
                return
            yield result.data
            offset = Offset(batches[-1].next_offset)

    # -- flushing and waking -----------------------------------------------------------------------------------------

    def _wake(self, waiting: set[DelayedFetch]) -> None:
        """Wake each waiting fetch once, after everything that this turn commits."""
        if not self._woken:
            self._loop.call_soon(self._wake_fetches)
        for fetch in waiting:
            if not fetch.woken:
                fetch.woken = True
                self._woken.append(fetch)

    def _wake_fetches(self) -> None:
        woken, self._woken = self._woken, []
        for fetch in woken:
            fetch.wake()
