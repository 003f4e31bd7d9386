"""The partitions of this broker: created and removed with the metadata, appended to, committed, read.

The manager owns the lifecycle of every `Partition` and one flusher per log directory. On a standalone broker it
follows each new image; in a cluster, the controller's requests (`roles.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from operator import attrgetter
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
)
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.refill_marks import Refill
from ottla.replication.delayed import ParkedFetches, Wakings
from ottla.replication.disk_threads import DiskThreads
from ottla.replication.environment import LedChanges, ReplicaEnvironment
from ottla.replication.group_commit import GroupCommit, NewFlusher
from ottla.replication.image_follower import ImageFollower
from ottla.replication.partition import Partition
from ottla.replication.refills import Refills
from ottla.replication.refused_producers import SentBack
from ottla.replication.starting_over import StartingOver
from ottla.replication.throughput import ThroughputByTopic
from ottla.replication.timeouts import Timeouts

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.log.directory import LogDirectory
    from ottla.log.new_log import NewLog
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.view import MetadataView
    from ottla.replication.decisions.in_sync import Proposal

log = logging.getLogger(__name__)

NO_EPOCH: Final = -1
ALL_IN_SYNC: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka lets a client of this name, and no other, produce to internal topics."""

FOLLOWED_SLACK_S: Final = 0.5
"""A follower still follows if it fetched within two of the longest waits of a fetch, and this."""

LeadershipListener = Callable[[PartitionId, LeaderEpoch | None], None]
"""Called with a partition of the topic and the epoch this broker leads it from, or None when it no longer leads."""


class Fetchers(Protocol):
    """Copies the partitions that this broker follows from their leaders."""

    def follow(self, partition: Partition, topic_id: TopicId) -> None:
        """Copy from `partition.leader` from now on, in its leader epoch; a broker that is no leader answers with an
        error.
        """
        ...

    def stop(self, partition: Partition) -> None:
        """Stop copying it; does nothing for a partition that is not copied."""
        ...


class NoFetchers:
    """The fetchers of a standalone broker, which follows no leader."""

    def follow(self, partition: Partition, topic_id: TopicId) -> None:
        """Do nothing: the partition waits for a leader."""

    def stop(self, partition: Partition) -> None:
        """Do nothing: the partition is not copied."""


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
        """Logs found on disk whose topic is not yet known."""
        self._offline: set[TopicPartition] = set()
        """Replicas in log directories that have failed."""
        self._refilling = Refills(directories)
        self._starting_over = StartingOver(self, metadata, self._refilling, loop)
        self._image_follower = ImageFollower(self, metadata, loop)
        self._end_following: Callable[[], None] | None = None
        self._flushers: dict[Path, GroupCommit] = {}
        self._wakings = Wakings(loop)
        self.throughput = ThroughputByTopic()
        """What went into and out of its partitions."""
        self.timeouts = Timeouts(loop)
        self.parked_fetches = ParkedFetches(loop)
        """Timers of the requests that wait for replicas."""
        self.sent_back = SentBack()
        """Batches of idempotent producers that were not taken."""
        self.led_changes = LedChanges()
        self.start_moves = 0
        """How often the start of a log was moved, since records were deleted."""
        config = metadata.static_config
        self._followed_seconds = 2 * config.replica_fetch_wait_max_ms / 1000 + FOLLOWED_SLACK_S
        self._environment = ReplicaEnvironment(
            self._broker_id,
            loop.time,
            config.replica_lag_time_max_ms / 1000,
            lambda: self._metadata.in_sync_candidates,
            lambda partition, proposal: self.propose(partition, proposal),
            self.led_changes,
            lambda: self.in_sync_sets_are_shown,
        )
        self.in_sync_sets_are_shown = False
        """Whether the metadata shows a leader its in-sync set after each change of it."""
        self.fetchers: Fetchers = NoFetchers()
        """Copies the partitions that this broker follows."""
        self.holds_session: Callable[[], bool] = _always
        """Whether this broker's session certainly exists, so that no other broker was elected in its place."""
        self.only_in_sync_may_lead: Callable[[Partition], bool] = _always
        """Whether no replica out of sync is elected while one in sync may be alive, as far as this broker knows."""
        self.is_coming: Callable[[str | UUID], bool] = _never
        """Whether this broker is about to hold partitions of a topic, by name or id, that the metadata may lack."""
        self.propose: Callable[[Partition, Proposal], None] = _to_nobody
        """Where changes of in-sync replicas are proposed."""
        self.on_held: Callable[[Partition], None] = _to_itself
        """Called with each replica that was created."""
        self.on_moved: Callable[[Partition], None] = _to_itself
        """Called with each replica whose log is in another log directory now."""
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

        A standalone broker leads every partition in the metadata at once; in a cluster the controller assigns its
        replicas.
        """
        for directory in self.directories.online:
            flusher = self._new_flusher(str(directory.path), self._loop, self._wakings.run)
            flusher.on_error = directory.report
            self._flushers[directory.path] = flusher
            flusher.start()
            directory.on_start_moved = self._start_moved
        self._loaded = loaded
        self._refilling.load()
        if in_cluster:
            self._end_following = self._metadata.subscribe(self._follow_cluster)
            return
        self._image_follower.start()
        self.set_strays_aside()
        self._end_following = self._metadata.subscribe(self._follow)
        self._metadata.until_followed = self._image_follower.until_followed

    def set_strays_aside(self, kept: Collection[tuple[str, int]] = (), most: int | None = None) -> bool:
        """What was found on disk and belongs to no topic is not served, but its files are kept. `kept` are partitions
        that do, though they cannot be held now. Whether more than `most` were found, so that some are left."""
        strays = [tp for tp in self._loaded if tp not in kept]
        for tp in strays[:most]:
            self._set_aside(self._loaded.pop(tp))
        return most is not None and len(strays) > most

    def _set_aside(self, stray: "PartitionLog") -> None:
        self._refilling.end(stray.topic_partition)
        try:
            kept = self.directories.set_aside(stray.topic_partition)
        except KafkaStorageError as error:
            log.error("setting a stray log aside failed: %s", error)
        else:
            log.warning("%s belongs to no topic; its files are kept in %s", stray.topic_partition, kept)

    def _follow(self, old: "MetadataImage", new: "MetadataImage") -> None:
        self._image_follower.follow(old, new)
        self._follow_configs(old, new)

    def _follow_cluster(self, old: "MetadataImage", new: "MetadataImage") -> None:
        if self._metadata.is_known:  # while the log is read anew, it shows what was so before a replica was lost
            self._refilling.end_where_in_sync(old, new, self._broker_id)
        self._follow_configs(old, new)
        if old.brokers is not new.brokers:
            for partition in filter(attrgetter("leading"), self.partitions()):
                partition.advance()  # a lost follower holds nothing back, if it was not in sync
                partition.take_in_followers()  # one that has become alive has perhaps fetched before

    def _follow_configs(self, old: "MetadataImage", new: "MetadataImage") -> None:
        if old.configs is not new.configs:
            for partition in self.partitions():
                partition.update_config(self._metadata.log_config(partition.topic_partition.topic))

    async def prepare_logs(self, new: Iterable[tuple[TopicName, TopicId, PartitionId]]) -> "list[PartitionLog]":
        """Have a thread make the files of logs that `become` will ask for; those logs, for `remove_unclaimed`.

        What is not simply new is left to `become`, as is the report of a failure.
        """
        begun: list[tuple[LogDirectory, NewLog]] = []
        for name, topic_id, number in new:
            tp = TopicPartition(name, number)
            if not any(tp in known for known in (self._held, self._loaded, self._offline, self._refilling)):
                with suppress(KafkaStorageError):
                    begun.append(self.directories.begin_log(tp, topic_id, self._metadata.log_config(name)))
        if not begun:
            return []
        await self._loop.run_in_executor(self.threads.creations, _make_all, [log for _, log in begun])
        made: list[PartitionLog] = []
        for directory, new_log in begun:
            with suppress(OttlaError):
                found = self._loaded[new_log.partition] = self.directories.take_log(directory, new_log)
                made.append(found)
        return made

    async def reopen_logs(self, partitions: Iterable[TopicPartition]) -> None:
        """Have a thread open logs for `become` that could not be opened at the start, for lack of room or the like.

        A failure is left to `become` to report.
        """
        if not any(directory.lacks_logs for directory in self.directories.online):
            return
        for tp in partitions:
            directory = self.directories.lacking_to_open(tp)
            if directory is None or tp in self._held or tp in self._loaded:  # a move has left it in two directories
                continue
            config = self._metadata.log_config(tp.topic)
            try:
                found = await self._loop.run_in_executor(self.threads.creations, directory.open, tp, config)
                directory.take_reopened(found)
            except (OSError, KafkaStorageError) as problem:
                if directory.has_unopened(tp):
                    directory.note_unopened(tp, problem)
                if isinstance(problem, OSError):
                    directory.report(problem)
            else:
                self._loaded[tp] = found
                self._refilling.take_over(tp)

    def remove_unclaimed(self, made: "Iterable[PartitionLog]") -> None:
        """Remove prepared logs that were not claimed: their topics have been deleted again."""
        for each in made:
            if self._loaded.get(each.topic_partition) is each:
                del self._loaded[each.topic_partition]
                self._delete_log(each.topic_partition)

    def become(
        self,
        name: TopicName,
        topic_id: TopicId,
        part: "PartitionImage",
        *,
        is_new: bool = True,
        is_confirmed: bool = True,
    ) -> None:
        """Create or update a replica as `part` assigns it: lead it, or follow its leader.

        One that was here before (not `is_new`) is not made anew while a log directory is offline: it may be in that.
        If it was lost with its disk, it is created anew only where that is safe: an empty leader would make the
        others truncate their logs. `is_confirmed` is as for `Partition.lead`. Raises OSError, an `OttlaError`.
        """
        # Where none leads, or none that has confirmed it, this broker may be the one that has everything (ADR 15).
        has_leader = part.leader != NO_LEADER and is_confirmed
        is_counted_on = not has_leader or self._broker_id in (part.leader, *part.isr)
        if is_new:
            self._refilling.end(TopicPartition(name, part.partition))
        partition = self._find_or_create(
            name, topic_id, part.partition, is_new=is_new, may_lack=is_new or not is_counted_on
        )
        leads = part.leader == self._broker_id
        cannot_fill = part.leader == NO_LEADER or (leads and not partition.log.config.unclean_leader_election_enable)
        if cannot_fill and partition.topic_partition in self._refilling:
            self.stop_replica(partition)
            raise self._refilling.lost(partition.topic_partition)
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

    def _find_or_create(
        self, name: TopicName, topic_id: TopicId, number: PartitionId, *, is_new: bool, may_lack: bool
    ) -> Partition:
        """The replica: held already, found on disk, or new. Unless it `may_lack` records, not one that is less than
        what this broker had."""
        tp = TopicPartition(name, number)
        known = self._held.get(tp)
        if known is not None:
            if known.log.topic_id == topic_id:
                return known
            self.remove_replica(name, number)  # deleted and created again, which this broker learns only now
        settings = self._metadata.log_config(name)
        found = self._loaded.get(tp)
        if found is not None and found.topic_id not in (None, topic_id):
            del self._loaded[tp]
            self._set_aside(found)  # left by a crash between the end of a topic and that of its files
            found = None
        if found is not None and not may_lack and self.directories.is_stale(found):
            raise KafkaStorageError(
                f"{tp} is in {found.log_dir}, an old copy of what this broker had; another replica has to lead"
            )
        if found is None:
            is_set_aside = tp in self._refilling
            if not is_new and (tp in self._offline or not (is_set_aside or self.directories.all_online)):
                raise KafkaStorageError(f"{tp} is in a log directory that has failed, or may be")
            is_lost = is_set_aside or self.directories.lacks(tp)
            if is_lost and not may_lack:
                raise self._refilling.lost(tp)
            self._offline.discard(tp)
            refill = self._refilling.anew(tp, self._metadata.image, self._broker_id) if is_lost and not is_new else None
            found = self.directories.create_log(tp, topic_id, settings, refill=refill)
            if refill is not None:
                self._refilling.begin(tp, refill)
        else:
            found.assign_topic_id(topic_id)  # where that fails, the log is found again by the next attempt
            del self._loaded[tp]
            found.update_config(settings)
        flusher = self._flushers[found.log_dir]
        throughput = self.throughput.held(name)
        partition = Partition(tp, found, flusher, self._wakings.wake, self._environment, throughput)
        self._held[tp] = self._held[topic_id, number] = partition
        if self.directories.stayed_open:  # the flusher before may have left something to this one
            partition.mark_dirty()
        self.on_held(partition)
        return partition

    def start_over(self, partition: Partition, reason: str) -> None:
        """Follow with an empty log; the files of the one before stay under another name. See `StartingOver.begin`."""
        self._starting_over.begin(partition, reason)

    def set_replica_aside(self, partition: Partition, leaders: frozenset[BrokerId]) -> Path:
        """Remove a replica that is to be filled again, and not from these leaders; where its files are kept. Raises
        KafkaStorageError; then it counts as offline."""
        tp, refill = partition.topic_partition, Refill(leaders)
        self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            kept = self.directories.set_aside(tp, refill=refill)
        except KafkaStorageError:
            self._offline.add(tp)
            raise
        self._refilling.begin(tp, refill)
        return kept

    def change_log(self, partition: Partition, copy: "PartitionLog") -> None:
        """Serve the replica from another log directory, in which there is a copy of its log."""
        partition.change_log(copy, self._flushers[copy.log_dir])
        self.on_moved(partition)

    def fence(self) -> None:
        """Others may have been elected: stop leading partitions with other replicas until the controller's next
        request.
        """
        for partition in self.partitions():
            if partition.in_sync is not None:
                self.stop_replica(partition)

    def stop_replica(self, partition: Partition) -> None:
        """Neither lead nor follow it until the controller's next request; its files stay."""
        was_leading = partition.leading
        self.fetchers.stop(partition)
        partition.stop_leading()
        listener = self._listeners.get(partition.topic_partition.topic)
        if was_leading and listener is not None:
            listener(partition.topic_partition.partition, None)

    def remove_replica(self, topic: TopicName, number: PartitionId, *, keep_files: bool = False) -> None:
        """This broker is no longer a replica: delete the files, or set them aside."""
        self._offline.discard(TopicPartition(topic, number))
        self._refilling.end(TopicPartition(topic, number))
        self.directories.forget_vanished(TopicPartition(topic, number))
        partition = self._held.get((topic, number))
        if partition is None:
            if not keep_files:
                self._delete_unopened(TopicPartition(topic, number))
            return
        self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if keep_files:
            self._set_aside(partition.log)
        else:
            self._delete_log(partition.topic_partition)
        listener = self._listeners.get(topic)
        if listener is not None:
            listener(number, None)

    def _delete_unopened(self, topic_partition: TopicPartition) -> None:
        try:
            self.directories.delete_unopened(topic_partition)
        except KafkaStorageError as error:
            log.error("deleting a log that could not be opened failed: %s", error)

    def _delete_log(self, topic_partition: TopicPartition) -> None:
        try:
            self.directories.delete_log(topic_partition)
        except KafkaStorageError as error:
            log.error("deleting a log failed: %s", error)

    def _remove(self, partition: Partition, code: ErrorCode) -> None:
        """Remove the replica, and answer its waiting requests with `code`."""
        topic, number = partition.topic_partition
        topic_id = partition.log.topic_id
        assert topic_id is not None
        del self._held[topic, number], self._held[topic_id, number]
        self.throughput.released(topic)
        self.fetchers.stop(partition)
        partition.stop_leading(code)
        partition.stop_flushing()

    def take_offline(self, directory: "LogDirectory", reason: str) -> int:
        """The log directory has failed: hold nothing of what is in it any more; how many partitions that were."""
        gone = [partition for partition in self.partitions() if partition.log.log_dir == directory.path]
        for partition in gone:
            self._remove(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        unclaimed = {tp for tp, found in self._loaded.items() if found.log_dir == directory.path}
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
        """Let the flushers finish, then make everything durable and mark the directories as cleanly shut down.

        That is done in a thread: thousands of logs take seconds, in which a controller of this process goes on to lead.
        """
        if self._end_following is not None:
            self._end_following()  # from now on only the thread touches the logs
            self._end_following = None
        self._starting_over.close()
        await self._image_follower.close()
        for flusher in self._flushers.values():
            flusher.close()
        self.threads.close()
        self.record_checkers.shutdown()
        closing = self._loop.run_in_executor(None, self.directories.close)
        try:
            await asyncio.shield(closing)
        finally:  # logs are touched by one thread only, also where this is cancelled
            await asyncio.wait([closing])

    def on_leadership(self, topic: str, listener: LeadershipListener) -> None:
        """Call `listener` for each partition of `topic` that this broker leads, now and later, or no longer leads."""
        self._listeners[topic] = listener
        for partition in self.partitions():
            if partition.topic_partition.topic == topic and partition.leading:
                listener(partition.topic_partition.partition, partition.leader_epoch)

    def _start_moved(self) -> None:
        self.start_moves += 1
        self.led_changes.note_any()

    # -- looking up --------------------------------------------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        """Every partition this broker holds, as leader or follower."""
        return [partition for key, partition in self._held.items() if isinstance(key, TopicPartition)]

    def flushers(self) -> Mapping[Path, GroupCommit]:
        """The flusher of each log directory that was online at the start."""
        return self._flushers

    def offline_count(self) -> int:
        """How many replicas are in log directories that have failed."""
        return len(self._offline)

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

    def is_in_full_directory(self, partition: Partition) -> bool:
        """Is its log in one of them?"""
        return any(each.is_full and each.path == partition.log.log_dir for each in self.directories.directories)

    def topic_name(self, topic_id: UUID) -> TopicName | None:
        """The name of the topic with this id; None if there is none."""
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
        known = self._metadata.image.topics.get(found.topic_partition.topic)
        if known is not None and known.topic_id != found.log.topic_id:
            raise NotLeader(f"{found.topic_partition} was deleted and created again, and is not led here yet")
        return found

    def _refuse(self, topic: str | UUID, partition: int) -> NoReturn:
        image = self._metadata.image
        if not self._metadata.is_known:
            raise NotLeader(f"broker {self._broker_id} has not yet received the partition leaders from a controller")
        known = (
            image.topics_by_id.get(TopicId(topic)) if isinstance(topic, UUID) else image.topics.get(TopicName(topic))
        )
        if known is not None and (known.name, partition) in self._offline:
            raise KafkaStorageError(f"{known.name}-{partition} is in a log directory that has failed")
        if self.is_coming(topic) and (known is None or partition >= len(known.partitions)):
            raise NotLeader(f"broker {self._broker_id} does not lead partition {partition} of {topic} yet")
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
        return self.leader(topic, partition) if from_leader else found

    def for_produce(self, topic: str | UUID, partition: int, acks: int, client_id: str | None) -> Partition:
        """The partition, if this client may append to it with these acks now."""
        found = self.leader(topic, partition)
        if acks == ALL_IN_SYNC:
            _check_in_sync(found)
        if not self.holds_session():
            self._check_still_leads(found, acks)
        if found.topic_partition.topic in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not produce to the internal topic {topic}")
        return found

    def for_own_append(self, topic: str, partition: int) -> Partition:
        """The partition, if this broker may append its own records to it now, to be committed.

        Raises NotLeader, `ApiError` NOT_ENOUGH_REPLICAS, KafkaStorageError.
        """
        try:
            found = self.leader(topic, partition)
        except UnknownTopicOrPartition as error:
            raise NotLeader(str(error)) from error
        _check_in_sync(found)
        if not self.holds_session():
            self._check_still_leads(found, ALL_IN_SYNC)
        return found

    def _check_still_leads(self, partition: Partition, acks: int) -> None:
        """While the store cannot be reached, another broker may have been elected: raise `NotLeader` unless that is
        certainly not the case, or does no harm.

        A partition without other replicas has no other leader. With acks=all, nothing is acknowledged that followers do
        not fetch in this leader epoch. Where another replica is eligible, it may lead already (KIP-966).
        """
        in_sync = partition.in_sync
        if in_sync is None:
            return
        alone = (
            in_sync.is_confirmed  # else the previous leader may lead again
            and in_sync.maximal_isr == (self._broker_id,)
            and not partition.log.config.unclean_leader_election_enable
        )
        followed = acks == ALL_IN_SYNC and in_sync.followed_since(self._loop.time() - self._followed_seconds)
        if (alone or followed) and self.only_in_sync_may_lead(partition):
            return
        raise NotLeader(
            f"broker {self._broker_id} no longer leads {partition.topic_partition}: its session in the "
            "cluster may have expired"
        )


def _make_all(logs: "Iterable[NewLog]") -> None:
    """In a thread."""
    for new in logs:
        new.make()


def _to_nobody(partition: Partition, proposal: "Proposal") -> None:
    raise AssertionError(f"{partition.topic_partition} has followers, but there is no cluster")


def _to_itself(partition: Partition) -> None:
    """The default callback: do nothing."""


def _always(*_: object) -> bool:
    return True


def _never(topic: str | UUID) -> bool:
    return False


def _check_in_sync(partition: Partition) -> None:
    """Raise `ApiError` NOT_ENOUGH_REPLICAS if too few replicas are in sync for a record to be safe."""
    if len(partition.isr) < partition.min_in_sync:
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.topic_partition} has {len(partition.isr)} in-sync replicas; "
            f"min.insync.replicas is {partition.log.config.min_insync_replicas}",
        )
