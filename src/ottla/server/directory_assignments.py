"""Reports to the controller in which log directories the replicas of this broker are (KIP-858).

    log: directory A, or none yet     here: in directory B     --> AssignReplicasToDirs: B
    log: directory A, which is here   here: not found in A     --> LOST, so that another replica leads; but it begins
                                                                   empty if A has lost nothing that was synced
    log: directory A, which is here   here: in A, not filled   --> LOST while no other replica leads
    log: directory A, which is full   another one is in sync   --> the mark of A as full, until there is room in A

The log distinguishes a new replica from a lost one: one that was never put anywhere may begin empty.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.client.errors import BrokerUnavailable
from ottla.cluster.metadata_log.levels import DIRECTORIES_SINCE
from ottla.cluster.metadata_log.partitions import LOST, MIGRATING, UNASSIGNED, PartitionState, marked_full
from ottla.cluster.replica_directories import reported_directory
from ottla.errors import ErrorCode
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.log.meta_properties import directory_uuid
from ottla.metadata.quorum_metadata import QuorumMetadata
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.schema import Message
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.log.directories import LogDirectories
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

VERSION: Final = 0
AT_ONCE: Final = 2250
"""Replicas in one request, as many as genuine Kafka sends."""
RETRY_S: Final = 0.5
AFTER_A_MOVE_S: Final = 5.0
"""How long a broker that comes from ZooKeeper waits before its first report, which is about all of its replicas: at
first it and its followers have more important things to do."""

AskController = Callable[[Message, int], Any]
Key = tuple[UUID, int]
"""A partition, by topic id and number."""


class DirectoryAssignments:
    """Compares the directories of this broker's replicas with those in the log, and reports the differences.

    On the loop's thread.
    """

    def __init__(
        self,
        metadata: QuorumMetadata,
        replicas: "ReplicaManager",
        directories: "LogDirectories",
        ask_controller: AskController,
        broker_epoch: Callable[[], int],
        *,
        wait_s: float = 0.0,
    ) -> None:
        """`ask_controller` is a coroutine function: the answer to a request of a version. The first report comes after
        `wait_s`."""
        self._wait_s = wait_s
        self._metadata = metadata
        self._replicas = replicas
        self._directories = directories
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self.lost: set[Key] = set()
        """Replicas that cannot be held, since their log is gone, or is not filled again yet."""
        self._due = asyncio.Event()
        self._changed: set[Key] | None = set()
        """The partitions to look at when it is due; None for all."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        replicas.on_moved = lambda partition: self.look()

    async def close(self) -> None:
        """Stop reporting."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def assigned(self, key: Key) -> UUID:
        """The directory that the log has for this broker's replica; `MIGRATING` for none."""
        partition = self._known(key)
        return MIGRATING if partition is None else self._recorded(partition)

    def _recorded(self, partition: PartitionState) -> UUID:
        return partition.directories[partition.image.replicas.index(self._metadata.broker_id)]

    def _known(self, key: Key) -> PartitionState | None:
        """The partition in the log; None if this broker has no replica of it."""
        topic = self._metadata.state.topics.states.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return partition if partition is not None and self._metadata.broker_id in partition.image.replicas else None

    def mark_new(self, request: LeaderAndIsrRequest) -> None:
        """Mark the replicas that were never anywhere as new, and have those that should be here and are not count as
        lost, unless they were never synced here."""
        intact = self._intact()
        for topic in request.topic_states:
            for state in topic.partition_states:
                where = self.assigned((topic.topic_id, state.partition_index))
                if where == UNASSIGNED:
                    state.is_new = True
                elif where not in (MIGRATING, LOST, *intact) and not state.is_new and len(state.replicas) > 1:
                    self._directories.expect(
                        TopicPartition(TopicName(topic.topic_name), PartitionId(state.partition_index))
                    )

    def _intact(self) -> set[UUID]:
        """The directories, and their marks as full, if all are what they were when this broker registered last; else
        none."""
        former = self._metadata.state.former_incarnations.get(self._metadata.broker_id)
        if not self._directories.were_had_by(former):
            return set()
        return _with_marks(directory_uuid(directory.directory_id) for directory in self._directories.online)

    def note(self, outcomes: Mapping[Key, ErrorCode]) -> None:
        """Take the outcomes of roles that were assigned: a replica that cannot be held is lost, or its directory."""
        if self._changed is not None:
            self._changed.update(outcomes)
        for key, code in outcomes.items():
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.lost.add(key)
            else:
                self.lost.discard(key)

    def look(self, partitions: Collection[Key] | None = None) -> None:
        """Report whatever differs from the log, in the background: of all replicas, or of some that have changed."""
        if partitions is None:
            self._changed = None
        elif self._changed is not None:
            self._changed.update(partitions)
        self._due.set()
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = supervised(asyncio.get_running_loop(), self._run(), "directories of replicas")

    async def _run(self) -> None:
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
            self._wait_s = 0.0
        while self._due.is_set():
            self._due.clear()
            changed, self._changed = self._changed, None  # if this fails, the next look is at all
            if self._metadata.state.metadata_version < DIRECTORIES_SINCE:
                return
            differing = self._differing(changed)
            self._changed = set()
            try:
                while differing:
                    some, differing = differing[:AT_ONCE], differing[AT_ONCE:]
                    if not await self._report(some):
                        self._changed = None
                        self._due.set()
            except BaseException:
                self._changed = None
                raise
            if self._due.is_set():
                await asyncio.sleep(RETRY_S)

    def _differing(self, changed: Collection[Key] | None) -> list[tuple[Key, UUID]]:
        online = {directory.path: directory_uuid(directory.directory_id) for directory in self._directories.online}
        full, alive = self._replicas.full_directories(), self._metadata.image.brokers
        found: list[tuple[Key, UUID]] = []
        # What is reported of those in a full directory depends on others, too.
        partitions = self._replicas.partitions() if changed is None or full else map(self._find, changed)
        for partition in filter(None, partitions):
            path, topic_id = partition.log.log_dir, partition.log.topic_id
            where = online.get(path)
            if topic_id is None or where is None:
                continue
            key: Key = (topic_id, partition.topic_partition.partition)
            known = self._known(key)
            if known is None or key in self.lost:  # held, but refused to lead: it is one that is filled again
                continue
            reported = reported_directory(known, self._metadata.broker_id, alive, where, is_full=path in full)
            if self._recorded(known) != reported:
                found.append((key, reported))
        self.lost = {key for key in self.lost if self._known(key) is not None}
        here = {UNASSIGNED} | _with_marks(online.values())
        found += [(key, LOST) for key in self.lost if self.assigned(key) in here]
        return found

    def _find(self, key: Key) -> "Partition | None":
        return self._replicas.find(*key)

    async def _report(self, some: list[tuple[Key, UUID]]) -> bool:
        """Report the directories of some replicas; returns whether the controller has taken them."""
        directories: dict[UUID, dict[UUID, list[PartitionData]]] = {}
        for (topic_id, number), where in some:
            topics = directories.setdefault(where, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=number))
        request = AssignReplicasToDirsRequest(
            broker_id=self._metadata.broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=where,
                    topics=[TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
                )
                for where, topics in directories.items()
            ],
        )
        try:
            answer = await self._ask_controller(request, VERSION)
        except BrokerUnavailable as problem:
            log.info("reporting the directories of replicas failed; retrying: %s", problem)
            return False
        if answer.error_code:
            log.info("the controller takes no directories of replicas now: %s", ErrorCode(answer.error_code).name)
            return False
        answered = (each for directory in answer.directories for topic in directory.topics for each in topic.partitions)
        if any(each.error_code for each in answered):
            self._changed = None  # it may know better by the next change
        return True


def _with_marks(directories: Iterable[UUID]) -> set[UUID]:
    """The directories, and the mark of each as full."""
    return {each for directory in directories for each in (directory, marked_full(directory))}
