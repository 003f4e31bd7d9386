"""The partitions of this broker: created and dropped as the metadata says, appended to, committed, read.

The manager owns the lifecycle of every `Partition` and one flusher per log directory. On a broker of its own it does
what each new image says; in a cluster, what the controller says (`roles.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol
from uuid import UUID

from ottla.cluster.image import INTERNAL_TOPICS, NO_LEADER, PartitionImage
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
    sentence,
)
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.producer_state import Origin
from ottla.records.batch import last_batch, read_header
from ottla.replication.delayed import DelayedFetch, FutureCommit, Waiting
from ottla.replication.disk_threads import DiskThreads
from ottla.replication.group_commit import GroupCommit, NewFlusher
from ottla.replication.partition import Partition
from ottla.replication.surroundings import ReplicaSurroundings

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage, TopicImage
    from ottla.cluster.metadata_view import MetadataView
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.log.directory import LogDirectory
    from ottla.log.partition_log import AppendInfo, PartitionLog
    from ottla.records.batch import Buffer
    from ottla.replication.in_sync import Proposal

log = logging.getLogger(__name__)

NO_EPOCH: Final = -1
ALL_IN_SYNC: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka lets a client of this name, and no other, produce to internal topics."""

READ_CHUNK_BYTES: Final = 1 << 20
CREATED_PER_TURN: Final = 20
LOOK_AGAIN_SECONDS: Final = 0.1
REFILL_AGAIN_SECONDS: Final = 5.0
"""After the empty log could not be made that takes the place of one set aside."""
FOLLOWED_SLACK_SECONDS: Final = 0.5
"""A follower still follows if it fetched within two of the longest waits of a fetch, and this."""

LeadershipListener = Callable[[PartitionId, LeaderEpoch | None], None]
"""Called with a partition of the topic and the epoch this broker leads it from, or None when it does no more."""


class Fetchers(Protocol):
    """Who copies what this broker follows from its leaders."""

    def follow(self, partition: Partition, topic_id: TopicId) -> None:
        """Copy from `partition.leader` from now on, in its leader epoch; a broker that is no leader says so."""
        ...

    def stop(self, partition: Partition) -> None:
        """Copy it no more; nothing happens if nobody does."""
        ...


class NoFetchers:
    """Of a broker that is alone: it follows nobody."""

    def follow(self, partition: Partition, topic_id: TopicId) -> None:
        """What has been handed to nobody waits for a leader."""

    def stop(self, partition: Partition) -> None:
        """Nobody copies it."""


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
        self.directories = directories
        """Where its logs are."""
        self._loop = loop
        self._held: dict[tuple[str | UUID, int], Partition] = {}
        self._loaded: dict[TopicPartition, PartitionLog] = {}
        """Logs found on disk of which nobody has said yet whose they are."""
        self._offline: set[TopicPartition] = set()
        """Replicas in log directories that have failed."""
        self._refilling: dict[TopicPartition, set[BrokerId]] = {}
        """Replicas made anew in place of lost ones, until they have been in sync: they do not lead. For each, the
        leaders for whose sake its log was set aside."""
        self._refills: dict[TopicPartition, asyncio.TimerHandle] = {}
        """The next attempts at replicas that could not be made anew yet."""
        self._flushers: dict[Path, GroupCommit] = {}
        self._woken: list[DelayedFetch] = []
        config = metadata.static_config
        self._followed_seconds = 2 * config.replica_fetch_wait_max_ms / 1000 + FOLLOWED_SLACK_SECONDS
        self._surroundings = ReplicaSurroundings(
            self._broker_id,
            loop.time,
            config.replica_lag_time_max_ms / 1000,
            lambda: self._metadata.image.brokers.keys(),
            lambda partition, proposal: self.proposals(partition, proposal),
        )
        self.fetchers: Fetchers = NoFetchers()
        """Who copies what this broker follows."""
        self.holds_session: Callable[[], bool] = _always
        """Whether others still see this broker, so that nobody has been elected in its stead."""
        self.proposals: Callable[[Partition, Proposal], None] = _to_nobody
        """Where changes of in-sync replicas are proposed."""
        self.on_held: Callable[[Partition], None] = _to_itself
        """Told of each replica that has come to be held."""
        self._listeners: dict[str, LeadershipListener] = {}
        self.threads = DiskThreads()
        """Threads that may wait for a disk."""
        self.record_checkers: Executor = ThreadPoolExecutor(2, thread_name_prefix="ottla records")
        """Threads that unpack and check what producers send."""

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    @property
    def config(self) -> "BrokerConfig":
        """The broker's settings as they hold at the moment."""
        return self._metadata.config

    def start(self, loaded: "dict[TopicPartition, PartitionLog]", *, in_cluster: bool = False) -> None:
        """Take over the logs found on disk, and follow the metadata.

        A broker of its own leads all that the metadata has, at once; in a cluster the controller says what it holds.
        """
        for directory in self.directories.online:
            flusher = self._new_flusher(str(directory.path), self._loop, self._wake_fetches)
            flusher.on_error = directory.report
            self._flushers[directory.path] = flusher
            flusher.start()
        self._loaded = loaded
        if in_cluster:
            self._metadata.subscribe(self._follow_cluster)
            return
        for topic in self._metadata.image.topics.values():
            for part in topic.partitions:
                self._become_unless_broken(topic, part)
        self.set_strays_aside()
        self._metadata.subscribe(self._follow)

    def set_strays_aside(self, kept: Collection[tuple[str, int]] = ()) -> None:
        """What was found on disk and belongs to no topic is not served, but its files are kept. `kept` are partitions
        that do, though they cannot be held now."""
        for tp in [tp for tp in self._loaded if tp not in kept]:
            self._set_aside(self._loaded.pop(tp))

    def _set_aside(self, stray: "PartitionLog") -> None:
        try:
            kept = self.directories.set_aside(stray.topic_partition)
        except KafkaStorageError as error:
            log.error("%s", error)
        else:
            log.warning("%s belongs to no topic; its files are kept in %s", stray.topic_partition, kept)

    def _follow(self, old: "MetadataImage", new: "MetadataImage") -> None:
        for name, topic in old.topics.items():
            now = new.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                for part in topic.partitions:
                    self.drop(name, part.partition)
        changed: list[tuple[TopicImage, PartitionImage]] = []
        for name, topic in new.topics.items():
            if old.topics.get(name) is not topic:
                changed += [(topic, part) for part in topic.partitions]
        self._follow_configs(old, new)
        self._become_in_turns(changed)

    def _follow_cluster(self, old: "MetadataImage", new: "MetadataImage") -> None:
        for tp in tuple(self._refilling):
            part = new.partition(tp)
            if part is None or (self._broker_id in part.isr and part.leader not in (NO_LEADER, self._broker_id)):
                self._refilling.pop(tp, None)
        self._follow_configs(old, new)
        if old.brokers is not new.brokers:
            for partition in self.partitions():
                partition.advance()  # nobody waits for a follower that is gone, if it was not in sync

    def _follow_configs(self, old: "MetadataImage", new: "MetadataImage") -> None:
        if old.configs is not new.configs:
            for partition in self.partitions():
                partition.update_config(self._metadata.log_config(partition.topic_partition.topic))

    def _become_in_turns(self, changed: "list[tuple[TopicImage, PartitionImage]]") -> None:
        """A few now and the rest in later turns of the loop: a topic may have thousands of partitions."""
        for topic, part in changed[:CREATED_PER_TURN]:
            if topic.topic_id in self._metadata.image.topics_by_id:  # not deleted meanwhile
                self._become_unless_broken(topic, part)
        if len(changed) > CREATED_PER_TURN:
            self._loop.call_soon(self._become_in_turns, changed[CREATED_PER_TURN:])

    def _become_unless_broken(self, topic: "TopicImage", part: "PartitionImage") -> None:
        if self._broker_id in part.replicas:
            try:
                is_new = TopicPartition(topic.name, part.partition) not in self._offline
                self.become(topic.name, topic.topic_id, part, is_new=is_new)
            except (OSError, OttlaError) as error:
                log.error("%s-%d cannot be created: %s", topic.name, part.partition, error)

    def become(
        self,
        name: TopicName,
        topic_id: TopicId,
        part: "PartitionImage",
        *,
        is_new: bool = True,
        is_confirmed: bool = True,
    ) -> None:
        """Hold a replica as `part` says: lead it, or follow its leader.

        One that was here before (not `is_new`) is not made anew while a log directory is offline: it may be in that.
        If it was lost with its disk, it is made anew only where nobody counts on it: an empty leader would have the
        others throw away what they have. `is_confirmed` is as for `Partition.lead`. Raises OSError, an `OttlaError`.
        """
        # Where none leads, or none that has confirmed it, this broker may be the one that has everything (ADR 15).
        has_leader = part.leader != NO_LEADER and is_confirmed
        is_counted_on = not has_leader or self._broker_id in (part.leader, *part.isr)
        if is_new:
            self._refilling.pop(TopicPartition(name, part.partition), None)
        partition = self._hold(name, topic_id, part.partition, is_new=is_new, may_lack=is_new or not is_counted_on)
        leads = part.leader == self._broker_id
        cannot_fill = part.leader == NO_LEADER or (leads and not partition.log.config.unclean_leader_election_enable)
        if cannot_fill and partition.topic_partition in self._refilling:
            self.release(partition)
            raise self._lost(partition.topic_partition)
        listener = self._listeners.get(name)
        if part.leader == self._broker_id:
            partition.lead(part, is_confirmed=is_confirmed)
            self.fetchers.stop(partition)
            if listener is not None and partition.leading:
                listener(part.partition, partition.leader_epoch)
            return
        was_leading = partition.leading
        partition.follow(part)
        if partition.leading:
            return  # that was older than what is known
        if was_leading and listener is not None:
            listener(part.partition, None)
        self.fetchers.follow(partition, topic_id)

    def _hold(
        self, name: TopicName, topic_id: TopicId, number: PartitionId, *, is_new: bool, may_lack: bool
    ) -> Partition:
        """The replica: held already, found on disk, or new. Unless it `may_lack` records, not one that is less than
        what this broker had."""
        tp = TopicPartition(name, number)
        known = self._held.get(tp)
        if known is not None:
            if known.log.topic_id == topic_id:
                return known
            self.drop(name, number)  # deleted and created again, of which this broker has heard only now
        settings = self._metadata.log_config(name)
        found = self._loaded.pop(tp, None)
        if found is not None and found.topic_id not in (None, topic_id):
            self._set_aside(found)  # left by a crash between the end of a topic and that of its files
            found = None
        if found is not None and not may_lack and self.directories.is_stale(found):
            self._loaded[tp] = found
            raise KafkaStorageError(
                f"{tp} is in {found.directory.parent}, an old copy of what this broker had; another replica has to lead"
            )
        if found is None:
            is_set_aside = tp in self._refilling
            if not is_new and (tp in self._offline or not (is_set_aside or self.directories.all_online)):
                raise KafkaStorageError(f"{tp} is in a log directory that has failed, or may be")
            is_lost = is_set_aside or self.directories.lacks(tp)
            if is_lost and not may_lack:
                raise self._lost(tp)
            self._offline.discard(tp)
            if is_lost and not is_new:
                self._refilling.setdefault(tp, set())
            found = self.directories.create_log(tp, topic_id, settings)
        else:
            found.assign_topic_id(topic_id)
            found.update_config(settings)
        flusher = self._flushers[found.directory.parent]
        partition = Partition(tp, found, flusher, self._wake, self._surroundings)
        self._held[tp] = self._held[topic_id, number] = partition
        self.on_held(partition)
        return partition

    def start_over(self, partition: Partition, reason: str) -> None:
        """Follow with an empty log; the files of the one before stay under another name.

        Only out of sync: an empty replica that is counted as in sync would be elected. And once for each leader, until
        the replica has been in sync: what is copied from a leader whose log contradicts itself parts from it again.
        From then on it counts as lost: it does not lead. Raises KafkaStorageError.
        """
        tp, topic_id = partition.topic_partition, partition.log.topic_id
        assert topic_id is not None
        known = self._metadata.image.partition(tp)
        if (
            known is None
            or known.leader_epoch != partition.leader_epoch
            or known.partition_epoch < partition.partition_epoch
            or self._broker_id in known.isr
        ):
            raise KafkaStorageError(
                f"{reason}. Committed records would be truncated, so its log stays as it is until the leader has "
                "dropped this broker from the in-sync set; then it is set aside, and everything is copied anew. Find "
                "out what the leader has lost"
            )
        if partition.leader in self._refilling.get(tp, ()):
            raise KafkaStorageError(
                f"{reason}, though everything was copied from that broker anew: its log contradicts itself (its "
                "leader-epoch-checkpoint may lack an epoch). What was there before is kept in "
                f"{partition.log.directory}.*-stray; have another replica lead"
            )
        state = PartitionImage(
            tp.partition,
            partition.leader,
            partition.leader_epoch,
            partition.replicas,
            known.isr,
            partition.partition_epoch,
        )
        self._let_go(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            kept = self.directories.set_aside(tp)
        except KafkaStorageError:
            self._offline.add(tp)
            raise
        self._refilling.setdefault(tp, set()).add(partition.leader)
        log.error(
            "%s: %s. Committed records would be truncated, so its log is kept in %s, and everything is copied from "
            "broker %d: unless an unclean election was asked for, find out what the leader has lost",
            tp,
            reason,
            kept,
            partition.leader,
        )
        self._refill(tp, topic_id, state)

    def _refill(self, tp: TopicPartition, topic_id: TopicId, state: PartitionImage, *, is_first: bool = True) -> None:
        """Hold an empty replica in place of one set aside; try until that can be, or the controller says more."""
        self._refills.pop(tp, None)
        if tp in self._held or tp not in self._refilling or topic_id not in self._metadata.image.topics_by_id:
            return
        try:
            self.become(tp.topic, topic_id, state, is_new=False)
        except (OSError, OttlaError) as error:
            if is_first:  # once, not for every attempt
                log.error("%s cannot be made anew: %s; it is tried again until it can", tp, sentence(error))
            self._refills[tp] = self._loop.call_later(
                REFILL_AGAIN_SECONDS, lambda: self._refill(tp, topic_id, state, is_first=False)
            )

    def _lost(self, tp: TopicPartition) -> KafkaStorageError:
        if self._refilling.get(tp):
            return KafkaStorageError(
                f"{tp} was set aside by this broker, since it parted from its leader, and has not been in sync since: "
                f"another replica has to lead. What it had is in a directory {tp}.*-stray. If no replica has more, "
                f"`ottla cluster elect {tp.topic} --unclean` begins it anew, empty"
            )
        return KafkaStorageError(
            f"{tp} was lost with a disk of this broker, and another replica has to lead. If none has it, "
            f"`ottla cluster elect {tp.topic} --unclean` begins it anew, empty"
        )

    def change_log(self, partition: Partition, copy: "PartitionLog") -> None:
        """Serve the replica from another log directory, in which there is a copy of its log."""
        partition.change_log(copy, self._flushers[copy.directory.parent])

    def fence(self) -> None:
        """Others may have been elected: lead nothing that somebody else holds, too, until the controller says more."""
        for partition in self.partitions():
            if partition.in_sync is not None:
                self.release(partition)

    def release(self, partition: Partition) -> None:
        """Neither lead nor follow it until the controller says more; its files stay."""
        was_leading = partition.leading
        self.fetchers.stop(partition)
        partition.resign()
        listener = self._listeners.get(partition.topic_partition.topic)
        if was_leading and listener is not None:
            listener(partition.topic_partition.partition, None)

    def drop(self, topic: TopicName, number: PartitionId, *, keep_files: bool = False) -> None:
        """This broker holds the replica no more: its files go, or are set aside."""
        self._offline.discard(TopicPartition(topic, number))
        self._refilling.pop(TopicPartition(topic, number), None)
        self.directories.forget_vanished(TopicPartition(topic, number))
        partition = self._held.get((topic, number))
        if partition is None:
            return
        self._let_go(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if keep_files:
            self._set_aside(partition.log)
        else:
            try:
                self.directories.delete_log(partition.topic_partition)
            except KafkaStorageError as error:
                log.error("%s", error)
        listener = self._listeners.get(topic)
        if listener is not None:
            listener(number, None)

    def _let_go(self, partition: Partition, code: ErrorCode) -> None:
        """Hold it no more; who waits for it is answered with `code`."""
        topic, number = partition.topic_partition
        topic_id = partition.log.topic_id
        assert topic_id is not None
        del self._held[topic, number], self._held[topic_id, number]
        self.fetchers.stop(partition)
        partition.resign(code)
        partition.stop_flushing()

    def take_offline(self, directory: "LogDirectory", reason: str) -> int:
        """The log directory has failed: hold nothing of what is in it any more; how many partitions that were."""
        gone = [partition for partition in self.partitions() if partition.log.directory.parent == directory.path]
        for partition in gone:
            self._let_go(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        unclaimed = {tp for tp, found in self._loaded.items() if found.directory.parent == directory.path}
        for tp in unclaimed:
            del self._loaded[tp]
        self._offline |= {partition.topic_partition for partition in gone} | unclaimed
        directory.fail(reason)
        for partition in gone:
            listener = self._listeners.get(partition.topic_partition.topic)
            if listener is not None:
                listener(partition.topic_partition.partition, None)
        return len(gone)

    async def close(self) -> None:
        """Let the flushers finish, then make everything durable and mark the directories as cleanly shut down."""
        for refill in self._refills.values():
            refill.cancel()
        for flusher in self._flushers.values():
            flusher.close()
        self.threads.close()
        self.record_checkers.shutdown()
        self.directories.close()

    def on_leadership(self, topic: str, listener: LeadershipListener) -> None:
        """Tell `listener` about each partition of `topic` this broker leads, now and later, or leads no more."""
        self._listeners[topic] = listener
        for partition in self.partitions():
            if partition.topic_partition.topic == topic and partition.leading:
                listener(partition.topic_partition.partition, partition.leader_epoch)

    # -- looking up --------------------------------------------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        """Every partition this broker holds, as leader or follower."""
        return [partition for key, partition in self._held.items() if isinstance(key, TopicPartition)]

    @property
    def is_refilling(self) -> bool:
        """Are there replicas that were lost with a disk, and have not been in sync since?"""
        return bool(self._refilling)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Is its replica in a log directory that has failed?"""
        return topic_partition in self._offline

    def full_directories(self) -> frozenset[Path]:
        """The log directories without room: others should lead what is in them, where they have replicas in sync."""
        return frozenset(directory.path for directory in self.directories.directories if directory.is_full)

    def topic_name(self, topic_id: UUID) -> TopicName | None:
        found = self._metadata.image.topics_by_id.get(TopicId(topic_id))
        return None if found is None else found.name

    def find(self, topic: str | UUID, partition: int) -> Partition | None:
        """The partition, by the topic's name or id, if this broker holds it."""
        return self._held.get((topic, partition))

    def leader(self, topic: str | UUID, partition: int) -> Partition:
        """The partition, by the topic's name or id. Raises UnknownTopicOrPartition, UnknownTopicId, NotLeader."""
        found = self._held.get((topic, partition))
        if found is None or not found.leading:
            self._refuse(topic, partition)
        return found

    def _refuse(self, topic: str | UUID, partition: int) -> NoReturn:
        image = self._metadata.image
        if not self._metadata.is_known:
            raise NotLeader(f"no controller has told broker {self._broker_id} yet who leads which partition")
        known = (
            image.topics_by_id.get(TopicId(topic)) if isinstance(topic, UUID) else image.topics.get(TopicName(topic))
        )
        if known is not None and (known.name, partition) in self._offline:
            raise KafkaStorageError(f"{known.name}-{partition} is in a log directory that has failed")
        if known is None and isinstance(topic, UUID):
            raise UnknownTopicId(f"no topic has the id {topic}")
        if known is None or not 0 <= partition < len(known.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic {topic} here")
        leader = known.partitions[partition].leader
        raise NotLeader(
            f"{known.name}-{partition} is led by broker {leader}, not {self._broker_id}"
            if leader != self._broker_id
            else f"{known.name}-{partition} is not led by broker {leader} at present"
        )

    def for_fetch(
        self, topic: str | UUID, partition: int, current_leader_epoch: int, *, from_leader: bool = True
    ) -> Partition:
        """The partition, if the caller's leader epoch is ours (or it named none, -1).

        A follower's will do unless `from_leader` (KIP-392). Raises what `leader` does, FencedLeaderEpoch for an older
        epoch, UnknownLeaderEpoch for a newer one (KIP-320).
        """
        found = self._held.get((topic, partition))
        if found is None:
            self._refuse(topic, partition)
        if current_leader_epoch not in (NO_EPOCH, found.leader_epoch):
            if current_leader_epoch < found.leader_epoch:
                raise FencedLeaderEpoch(
                    f"{found.topic_partition} is at leader epoch {found.leader_epoch}, not {current_leader_epoch}"
                )
            raise UnknownLeaderEpoch(
                f"{found.topic_partition} is only at leader epoch {found.leader_epoch}, not {current_leader_epoch}"
            )
        if from_leader and not found.leading:
            self._refuse(topic, partition)
        return found

    def for_produce(self, topic: str | UUID, partition: int, acks: int, client_id: str | None) -> Partition:
        """The partition, if this client may append to it with these acks now."""
        found = self._held.get((topic, partition))
        if found is None or not found.leading:
            self._refuse(topic, partition)
        if acks == ALL_IN_SYNC:
            _check_in_sync(found)
        if not self.holds_session():
            self._check_still_leads(found, acks)
        if found.topic_partition.topic in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not produce to the internal topic {topic}")
        return found

    def _check_still_leads(self, partition: Partition, acks: int) -> None:
        """While the store cannot be reached, another may have been elected: raise `NotLeader` unless that is certain
        not to have happened, or does no harm.

        Nobody else can lead what nobody else holds. With acks=all, nothing is acknowledged that followers do not fetch
        in this leader epoch.
        """
        in_sync = partition.in_sync
        if in_sync is None:
            return
        alone = (
            in_sync.is_confirmed  # else who led before may lead again
            and in_sync.maximal_isr == (self._broker_id,)
            and not partition.log.config.unclean_leader_election_enable
        )
        if alone or (acks == ALL_IN_SYNC and in_sync.followed_since(self._loop.time() - self._followed_seconds)):
            return
        raise NotLeader(
            f"broker {self._broker_id} may lead {partition.topic_partition} no more: its session is in doubt"
        )

    # -- the broker's own appends and reads (coordinators) -----------------------------------------------------------

    async def append_committed(self, topic: str, partition: int, records: bytearray) -> "AppendInfo":
        """Append the broker's own batches and return once they are committed.

        Raises NotLeader, `ApiError` NOT_ENOUGH_REPLICAS, KafkaStorageError, and whatever the log refuses.
        """
        try:
            found = self.leader(topic, partition)
        except UnknownTopicOrPartition as error:
            raise NotLeader(str(error)) from error
        _check_in_sync(found)
        if not self.holds_session():
            self._check_still_leads(found, ALL_IN_SYNC)
        info = found.append(records, Origin.COORDINATOR)
        await self._until_committed(found, Offset(info.last_offset + 1))
        return info

    async def _until_committed(self, partition: Partition, end: Offset) -> None:
        if partition.high_watermark < end:
            waiter = FutureCommit(self._loop)
            partition.when_committed(end, 0, waiter)
            await waiter.future

    async def _until_kept(self, partition: Partition, end: Offset) -> None:
        if partition.high_watermark >= end:
            return
        waiter = FutureCommit(self._loop)
        partition.when_committed(end, 0, waiter)
        while not (await asyncio.wait([waiter.future], timeout=LOOK_AGAIN_SECONDS))[0]:
            if len(partition.isr) < partition.min_in_sync and partition.replicated >= end:
                waiter.future.cancel()
                return
        waiter.future.result()

    async def read_all(self, topic: str, partition: int) -> "AsyncIterator[Buffer]":
        """The batches from the log's start on, in chunks of whole batches.

        Waits for what is in the log now to be committed: the tail that a crash has left is still to be synced. With too
        few replicas in sync for that, it is enough that all of those have it, since nothing can take it away again.
        Raises as `append_committed`.
        """
        found = self.leader(topic, partition)
        source = found.log
        end = source.log_end_offset
        await self._until_kept(found, end)
        offset = source.log_start_offset
        bound = max(end, source.high_watermark)
        while offset < bound:
            data, offset = await self._loop.run_in_executor(self.threads.loading, _read_chunk, source, offset, bound)
            if not len(data):
                return
            yield data

    # -- flushing and waking -----------------------------------------------------------------------------------------

    def _wake(self, waiting: Waiting) -> None:
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


def _read_chunk(source: "PartitionLog", offset: Offset, bound: Offset) -> "tuple[Buffer, Offset]":
    """Whole batches from `offset` on, and the offset behind them. In a thread."""
    data = source.read_blocking(offset, READ_CHUNK_BYTES, upper_bound=bound, min_one_message=True).data
    return data, Offset(read_header(data, last_batch(data)).next_offset) if len(data) else offset


def _to_nobody(partition: Partition, proposal: "Proposal") -> None:
    raise AssertionError(f"{partition.topic_partition} has followers, but there is no cluster")


def _to_itself(partition: Partition) -> None:
    """Nobody else wants to know."""


def _always() -> bool:
    return True


def _check_in_sync(partition: Partition) -> None:
    """Raise `ApiError` NOT_ENOUGH_REPLICAS if too few replicas are in sync for a record to be safe."""
    if len(partition.isr) < partition.min_in_sync:
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.topic_partition} has {len(partition.isr)} in-sync replicas; "
            f"min.insync.replicas is {partition.log.config.min_insync_replicas}",
        )
