"""What a broker does by the clock: checkpoints, retention, time-based rolls and flushes, expiry of producers.

The decisions are the log's; this only calls them when it is time. Every replica gets its turn, led or followed: as in
Kafka, each deletes by itself, within its own high watermark and recovery point. Each round gives the loop back after a
few partitions, so that two thousand of them never make a request wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clock import Clock
from ottla.errors import KafkaStorageError, sentence
from ottla.ids import Offset
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.ids import TopicPartition
    from ottla.log.directories import LogDirectories
    from ottla.log.retention import Deletion
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

PARTITIONS_PER_TURN: Final = 20
BYTES_PER_CHECKPOINT: Final = 256 << 20
"""Approximate bytes appended between two checkpoints: a start after a crash reads and checks this much again."""
EARLY_CHECK_S: Final = 0.5


class _Progress(NamedTuple):
    """Progress of all replicas. It never falls: what deleted topics have counted stays in it."""

    appended_bytes: int
    moves: int
    """How often the start of a log was moved."""


class Maintenance:
    """The periodic tasks of one broker; `start` them, `close` ends them."""

    def __init__(
        self,
        config: "BrokerConfig",
        replicas: "ReplicaManager",
        directories: "LogDirectories",
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._directories = directories
        self._loop = loop
        self._clock = clock
        self._began = clock.now_ms(), clock.monotonic()
        self._tasks = Tasks()
        self._written: dict[Path, dict[TopicPartition, Offset]] = {}
        """The recovery points that the checkpoint file of each log directory has."""
        self._writing = asyncio.Lock()
        self._at_checkpoint = _Progress(0, 0)
        """How far the replicas had come when checkpoints were last written early."""

    def start(self) -> None:
        """Spawn the periodic tasks."""
        config = self._config
        initial, expiry = config.log_initial_task_delay_ms, config.producer_id_expiration_check_interval_ms
        for first_ms, every_ms, work in (
            (initial, config.log_retention_check_interval_ms, self.apply_retention),
            (initial, config.log_flush_scheduler_interval_ms, self.flush_by_time),
            (initial, config.log_flush_offset_checkpoint_interval_ms, self.write_checkpoints),
            (0, config.log_segment_delete_delay_ms, self.remove_deleted),
            (expiry, expiry, self.expire_producers),
        ):
            self._tasks.spawn(self._repeat(first_ms / 1000, every_ms / 1000, work), f"maintenance: {work.__name__}")
        early = self._repeat(EARLY_CHECK_S, EARLY_CHECK_S, self.write_checkpoints_early)
        self._tasks.spawn(early, "maintenance: early checkpoints")

    async def close(self) -> None:
        await self._tasks.close()

    async def _repeat(self, first_seconds: float, every_seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(first_seconds)
        while True:
            try:
                await work()
            except (OSError, KafkaStorageError) as error:  # of the disk: no fault of the program
                log.error("%s; it will be tried again in %.0f s", sentence(error), every_seconds)
            except Exception:
                log.exception("periodic work failed; it will be tried again in %.0f s", every_seconds)
            await asyncio.sleep(every_seconds)

    async def _each(self, work: "Callable[[Partition], None]") -> None:
        for number, partition in enumerate(self._replicas.partitions()):
            try:
                work(partition)
            except (OSError, KafkaStorageError) as error:
                log.error("maintenance of %s failed: %s", partition.topic_partition, error)
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def apply_retention(self) -> None:
        """Roll what is old enough and delete what `retention.ms`, `retention.bytes` and the log start let go."""
        await self.write_checkpoints()
        now_ms = self._clock.now_ms()
        deletions: list[tuple[Partition, Deletion]] = []

        def apply(partition: "Partition") -> None:
            points = self._written.get(partition.log.log_dir, {})
            written = min(points.get(partition.topic_partition, Offset(0)), partition.log.recovery_point)
            deletion = partition.log.apply_retention(now_ms, before=written)
            needed = max(partition.log.segments[-1].base_offset, partition.log.log_start_offset)
            if partition.log.awaits_flush or partition.log.recovery_point < needed:
                partition.mark_dirty()  # nothing is deleted or compacted before it is on the disk
            if deletion is not None:
                deletions.append((partition, deletion))

        await self._each(apply)
        for partition, deletion in deletions:
            log.info(
                "%s: retention deletes %d segments, %d bytes; the log starts at offset %d now",
                partition.topic_partition,
                deletion.segment_count,
                deletion.size_bytes,
                partition.log.log_start_offset,
            )
            delay_s = partition.log.config.file_delete_delay_ms / 1000
            self._tasks.spawn(self._remove_after(delay_s, deletion), f"removal of files of {partition.topic_partition}")

    async def _remove_after(self, delay_s: float, deletion: "Deletion") -> None:
        """Remove a deleted log after a delay; a log left when the broker stops is removed at its next start."""
        await asyncio.sleep(delay_s)
        try:
            await self._loop.run_in_executor(self._replicas.threads.deletions, deletion.remove)
        except OSError as error:
            log.error("%s; the next start will try again to remove the file", sentence(error))

    async def flush_by_time(self) -> None:
        """Sync partitions that do not sync before they acknowledge, by `flush.ms`."""
        now_ms = self._clock.now_ms()
        await self._each(lambda partition: partition.flush_if_due(now_ms))

    async def write_checkpoints(self) -> None:
        """Write recovery points, log starts and high watermarks; in a thread, since that syncs files."""
        async with self._writing:
            await self._write_checkpoints()

    async def write_checkpoints_early(self) -> None:
        """Write them before their time when much was appended, since recovery reads only past the recovery points on
        disk, and when records were deleted on request, since a crash would bring those back."""
        replicas, before = self._replicas, self._at_checkpoint
        now = _Progress(replicas.throughput.appended_bytes, replicas.start_moves)
        if now.appended_bytes - before.appended_bytes >= BYTES_PER_CHECKPOINT or now.moves != before.moves:
            self._at_checkpoint = now
            await self.write_checkpoints()

    async def _write_checkpoints(self) -> None:
        for directory in self._directories.online:
            points = {tp: partition_log.checkpointed[0] for tp, partition_log in directory.logs.items()}
            checkpoints = directory.prepare_checkpoints()
            try:
                await self._loop.run_in_executor(self._replicas.threads.checkpoints, checkpoints.write)
            except OSError as error:
                log.error(
                    "cannot write the checkpoints in %s, the older ones stay: %s", directory.path, sentence(error)
                )
                directory.report(error)
            else:
                self._written[directory.path] = points

    async def remove_deleted(self) -> None:
        """Remove the files of deleted topics; in a thread, since that takes long."""
        for directory in self._directories.online:
            try:
                await self._loop.run_in_executor(self._replicas.threads.deletions, directory.remove_deleted)
            except OSError as error:
                directory.report(error)
                raise

    async def expire_producers(self) -> None:
        """Forget idempotent producers that have been silent for `producer.id.expiration.ms`.

        By a clock that does not jump: a producer that is forgotten too early has its next retry appended twice.
        """
        wall_ms, began = self._began
        now_ms = wall_ms + int((self._clock.monotonic() - began) * 1000)
        limit_ms = self._replicas.config.producer_id_expiration_ms

        def expire(partition: "Partition") -> None:
            partition.log.producer_state.remove_expired(now_ms, limit_ms)

        await self._each(expire)
