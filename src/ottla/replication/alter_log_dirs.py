"""Moves replicas from one log directory of this broker to another, while they are led or followed (KIP-113).

    copy     into t-0.<id>-future, through the page cache and no faster than
             replica.alter.log.dirs.io.max.bytes.per.second allows
    close    all of it is synced, in a thread
    swap     in one turn of the loop: renamed, opened, the tail that came meanwhile copied, served instead
    remove   the files in the old directory, once that tail is synced as well

Some at once, in threads of their own, so that moving a whole directory leaves other readers of the disk their share;
the
others wait with nothing copied. A move that is cut short by the end of the process begins anew with the
next one; what it had copied is removed.
Source: Kafka 3.9, `ReplicaManager.alterReplicaLogDirs`, `ReplicaAlterLogDirsThread`.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ApiError, ErrorCode, KafkaStorageError, OffsetOutOfRange, OttlaError, sentence
from ottla.ids import LeaderEpoch, Offset, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.directory import LogDirectory
from ottla.replication.decisions.throttles import ByteRate
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.log.flush import FlushTicket
    from ottla.log.partition_log import PartitionLog
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
LAST_BYTES: Final = CHUNK_BYTES // 4
"""A copy of a log that still grows has caught up when at most this much is missing."""
UNSYNCED_BYTES: Final = 64 << 20
"""Bytes copied before a sync, so that the last sync is a short one."""
POLL_INTERVAL_S: Final = 0.05
AT_ONCE: Final = 2
"""Moves that copy at the same time. (Kafka: one for each log directory.)"""
NO_EPOCH: Final = -1


class _Gone(Exception):
    """The partition is not here any more, or in another directory already."""


class _Move:
    __slots__ = ("directory", "future", "partition", "task")

    def __init__(self, partition: "Partition", directory: LogDirectory) -> None:
        self.partition = partition
        self.directory = directory
        self.future: PartitionLog | None = None
        self.task: asyncio.Task[None] | None = None


class Future(NamedTuple):
    """A copy that is under way."""

    directory: LogDirectory
    size_bytes: int
    lag: int
    """How many offsets it is behind the log it is copied from."""


class AlterLogDirs:
    """Moves the replicas of one broker between its log directories. On the loop's thread."""

    def __init__(
        self,
        replicas: "ReplicaManager",
        directories: LogDirectories,
        loop: asyncio.AbstractEventLoop,
        bytes_per_s: Callable[[], int],
    ) -> None:
        """`bytes_per_s` is how fast all of them may copy now."""
        self._replicas = replicas
        self._directories = directories
        self._loop = loop
        self._bytes_per_s = bytes_per_s
        self._rate = ByteRate(bytes_per_s())
        self._moves: dict[TopicPartition, _Move] = {}
        self._beginning = asyncio.Lock()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ottla move")
        self._clearing: dict[TopicPartition, asyncio.Task[None]] = {}
        """Partitions that have been moved, and whose old files are still there."""
        self._is_closed = False
        replicas.on_held = self._go_on

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin to move a replica to the log directory `path`, in place of wherever it is being moved.

        Raises `ApiError`: LOG_DIR_NOT_FOUND, INVALID_REPLICA_ASSIGNMENT for a directory that is cordoned,
        REPLICA_NOT_AVAILABLE for a replica that is not here, which will be in that directory if it comes;
        `KafkaStorageError`.
        """
        directory = self._directories.at(path)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        if directory.offline_reason is not None:
            raise KafkaStorageError(f"{path} is offline: {directory.offline_reason}")
        if directory.path in self._directories.cordoned:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        partition = self._replicas.find(*topic_partition)
        if partition is None:
            if self._replicas.is_offline(topic_partition):
                raise KafkaStorageError(f"{topic_partition} is in a log directory that has failed")
            self._directories.preferred[topic_partition] = directory
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} is not on this broker")
        going = self._moves.get(topic_partition)
        if going is not None and going.directory is directory:
            return
        self._cancel(topic_partition)
        if partition.log.log_dir != directory.path:
            self._begin(partition, directory)

    def futures(self) -> dict[TopicPartition, Future]:
        """The copies that are under way, or about to be."""
        return {at: _future(move) for at, move in self._moves.items()}

    async def close(self) -> None:
        """Copy nothing any more; the next process goes on."""
        self._is_closed = True
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        tasks += self._clearing.values()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown()

    def _go_on(self, partition: "Partition") -> None:
        """The replica has just come to be held: a process before this one may have been moving it."""
        at = partition.topic_partition
        for directory in self._directories.online:
            name = directory.futures.pop(at, None)
            if name is not None:
                self._in_thread(partial(directory.remove_future, name))
                if partition.log.log_dir != directory.path and at not in self._moves:
                    self._begin(partition, directory)

    def _in_thread(self, work: Callable[[], None]) -> None:
        def done(result: "asyncio.Future[None]") -> None:
            if not result.cancelled() and result.exception() is not None:
                log.error("moving a replica failed, and its files stay: %s", result.exception())

        self._loop.run_in_executor(self._threads, work).add_done_callback(done)

    def _begin(self, partition: "Partition", directory: LogDirectory) -> None:
        move = self._moves[partition.topic_partition] = _Move(partition, directory)
        log.info("%s is moved to %s", partition.topic_partition, directory.path)
        move.task = supervised(self._loop, self._run(move), f"move of {partition.topic_partition}")

    def _cancel(self, topic_partition: TopicPartition) -> None:
        move = self._moves.pop(topic_partition, None)
        if move is not None and move.task is not None:
            move.task.cancel()

    async def _run(self, move: _Move) -> None:
        at = move.partition.topic_partition
        try:
            async with self._beginning:  # one in a turn of the loop; the next process finds it, and goes on
                source = self._source(move)
                move.future = move.directory.begin_future(source.topic_partition, source.topic_id, source.config)
                await asyncio.sleep(0)
            async with self._slots:
                if at in self._clearing:  # it comes back to where it is still being removed
                    await asyncio.wait([self._clearing[at]])
                await self._copy(move)
                await self._swap(move)
        except _Gone:
            log.info("%s is not moved to %s any more: it is not here", at, move.directory.path)
        except (OSError, OttlaError) as error:
            log.error("%s cannot be moved to %s: %s", at, move.directory.path, sentence(error))
        except Exception:  # a defect; the replica stays where it is
            log.exception("the move of %s failed", at)
        finally:
            if self._moves.get(at) is move:
                del self._moves[at]
            self._give_up(move)

    def _give_up(self, move: _Move) -> None:
        """Remove what has been copied, unless it is in use or the next process is to go on."""
        future, move.future = move.future, None
        if future is None:
            return
        future.release()
        if not self._is_closed and move.directory.offline_reason is None:
            self._in_thread(partial(move.directory.remove_future, future.directory.name))

    # -- copying -----------------------------------------------------------------------------------------------------

    def _source(self, move: _Move) -> "PartitionLog":
        """The log to copy. Raises _Gone."""
        if self._replicas.find(*move.partition.topic_partition) is not move.partition:
            raise _Gone
        return move.partition.log

    async def _copy(self, move: _Move) -> None:
        """Return when everything is copied, and but for the last of it synced."""
        future = move.future
        assert future is not None
        unsynced, has_caught_up = 0, False
        while not has_caught_up or unsynced:
            if unsynced >= UNSYNCED_BYTES or (has_caught_up and unsynced):
                unsynced = 0
                await self._sync(future, future.prepare_flush())
            end, size = await self._copy_some(move, future)
            unsynced += size
            has_caught_up = future.log_end_offset >= end
            await self._keep_to_the_rate(move, size)
            # The last sync has to be a short one: what comes meanwhile is copied in one turn of the loop.
            if has_caught_up and size <= LAST_BYTES and unsynced <= LAST_BYTES:
                return

    async def _copy_some(self, move: _Move, future: "PartitionLog") -> tuple[Offset, int]:
        """Where the log ended that was copied, and how many bytes were."""
        source = self._source(move)
        self._align(source, future)
        start, end = future.log_end_offset, source.log_end_offset
        if start == end:
            return end, 0
        read = partial(source.read_blocking, start, CHUNK_BYTES, upper_bound=end, min_one_message=True)
        try:
            found = await self._loop.run_in_executor(self._threads, read)
            if self._source(move) is source:
                self._align(source, future)
                if future.log_end_offset == start:
                    copied = future.append_as_follower(found.data)
                    _settle_gaps(source, future)
                    return end, copied.size_bytes
        except OffsetOutOfRange:  # what is copied has been deleted or truncated meanwhile: from its start once more
            future.truncate_fully_and_start_at(source.log_start_offset)
            await asyncio.sleep(POLL_INTERVAL_S)
        return end, 0

    async def _keep_to_the_rate(self, move: _Move, size: int) -> None:
        self._rate.change(self._bytes_per_s(), self._loop.time())
        self._rate.spend(size, self._loop.time())
        while (wait_s := self._rate.wait_s(self._loop.time())) > 0:
            await asyncio.sleep(min(wait_s, POLL_INTERVAL_S))
            self._rate.change(self._bytes_per_s(), self._loop.time())
            self._source(move)

    @staticmethod
    def _align(source: "PartitionLog", future: "PartitionLog") -> None:
        """Drop from the copy what the log that is copied has not, or not any more."""
        if future.log_end_offset < source.log_start_offset:
            future.truncate_fully_and_start_at(source.log_start_offset)
        epoch = future.latest_epoch
        if epoch == NO_EPOCH:
            if future.log_end_offset > source.log_end_offset:
                future.truncate_to(source.log_end_offset)
            return
        found = source.end_offset_for_epoch(LeaderEpoch(epoch))
        if found.epoch < epoch or found.end_offset < future.log_end_offset:
            future.truncate_to(Offset(max(min(found.end_offset, source.log_end_offset), source.log_start_offset)))

    async def _sync(self, future: "PartitionLog", ticket: "FlushTicket | None") -> None:
        if ticket is not None:
            await self._loop.run_in_executor(self._threads, ticket.sync)
            future.flushed(ticket)

    # -- the swap ----------------------------------------------------------------------------------------------------

    async def _swap(self, move: _Move) -> None:
        """The copy has all but the last: let it be the log. What comes while it is closed is copied in the end."""
        future = move.future
        assert future is not None
        await self._sync(future, future.prepare_close())
        source = self._source(move)
        self._align(source, future)
        future.release()
        directory, partition = move.directory, move.partition
        refill = self._directories.refilling.get(partition.topic_partition)
        copy = move.future = directory.promote(future, source.config, refill=refill)
        while copy.log_end_offset < source.log_end_offset:
            found = source.read_blocking(
                copy.log_end_offset, CHUNK_BYTES, upper_bound=source.log_end_offset, min_one_message=True
            )
            copy.append_as_follower(found.data)
        _settle_gaps(source, copy)
        copy.succeed(source)
        old = self._directories.directory_of(partition.topic_partition)
        assert old is not None
        old.give_away(partition.topic_partition)
        directory.take_in(copy)
        move.future = None
        self._replicas.change_log(partition, copy)
        at = partition.topic_partition
        log.info("%s was moved to log directory %s", at, directory.path)
        clearing = self._clearing[at] = supervised(
            self._loop, self._discard(move, old, source, copy), f"former files of {at}"
        )
        clearing.add_done_callback(lambda _: self._clearing.pop(at))

    async def _until_synced(self, partition: "Partition", copy: "PartitionLog", end: Offset) -> None:
        """Wait for the flusher, which notifies only the partition, by polling. A partition that was removed meanwhile,
        perhaps with its topic, is no longer synced."""
        while (  # noqa: ASYNC110
            partition.log is copy
            and self._replicas.find(*partition.topic_partition) is partition
            and copy.recovery_point < min(end, copy.log_end_offset)
        ):
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _discard(self, move: _Move, old: LogDirectory, source: "PartitionLog", copy: "PartitionLog") -> None:
        """Remove the old files as soon as the new ones are known to be on the disk."""
        end = copy.log_end_offset
        try:
            await self._until_synced(move.partition, copy, end)
            await self._loop.run_in_executor(self._threads, move.directory.sync_names)
            for directory in (move.directory, old):
                await self._write_checkpoints(directory)
            old.discard(source)
        except asyncio.CancelledError:  # the broker stops
            copy.flush()
            move.directory.sync_names()
            old.discard(source)
            raise
        except (OSError, OttlaError) as error:
            log.error(
                "%s: its moved copy in %s could not be removed: %s", old.path, move.directory.path, sentence(error)
            )

    async def _write_checkpoints(self, directory: LogDirectory) -> None:
        """Where that fails, on a full disk for example, the next ones will do: they only spare the next start work."""
        if directory.offline_reason is None:
            try:
                await self._loop.run_in_executor(self._threads, directory.prepare_checkpoints().write)
            except (OSError, OttlaError) as error:
                log.warning("%s: its checkpoints cannot be written now: %s", directory.path, sentence(error))


def _future(move: _Move) -> Future:
    log_moved, copied = move.partition.log, move.future
    if copied is None:
        return Future(move.directory, 0, log_moved.log_end_offset - log_moved.log_start_offset)
    return Future(move.directory, copied.size_bytes, max(0, log_moved.log_end_offset - copied.log_end_offset))


def _settle_gaps(source: "PartitionLog", copy: "PartitionLog") -> None:
    """Where epochs begin of which compaction has left nothing is known by the log that was copied only."""
    while gaps := copy.leader_epochs.gaps:
        copy.leader_epochs.settle(gaps[-1], source.end_offset_for_epoch(LeaderEpoch(gaps[-1].epoch - 1)))
