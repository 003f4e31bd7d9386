"""Compacts the logs of this broker, led or followed, one at a time, the dirtiest first.

The work is `ottla.log.cleaner`'s and runs in a thread of its own; what changes a log (the steps of
`ottla.log.replacement`) runs on the loop between. The thread gives way to the loop all the time, and keeps to
`log.cleaner.io.max.bytes.per.second`.

What cannot be read in a log is named in the broker's log once, and kept as it is. A log that cannot be compacted at
all is named once, too, and tried again every hour; one for whose copy there is no room every minute.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.clock import Clock
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import CorruptMessage, KafkaStorageError
from ottla.log.cleaner import (
    CleanableLog,
    CleanerLimits,
    Cleaning,
    CleaningAborted,
    DirtyLog,
    cleanable_log,
    find_dirt,
    first_dirty_offset,
)
from ottla.log.fs import LACKS_ROOM
from ottla.log.replacement import Replacement, is_unfinished
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.ids import TopicPartition
    from ottla.log.directories import LogDirectories
    from ottla.log.directory import LogDirectory
    from ottla.log.partition_log import PartitionLog
    from ottla.log.segment import Segment
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

T = TypeVar("T")

_PARTITIONS_PER_TURN: Final = 20
_SPELL_S: Final = 0.0005
"""How long it works at least before it looks up."""
_REST_PER_WORK: Final = 3
_LOOK_S: Final = 0.02
_BUSY_SHARE: Final = 0.01
"""Share of a core: when the rest of the process uses more, compaction gives way."""
_READ_AT_TAKEOVER_BYTES: Final = 16 << 20
"""What a coordinator's log may have in its active segment, which is not compacted: some 200,000 records."""
_RETRY_AFTER_S: Final = 60.0
"""How long a log rests that could not be copied for want of room ..."""
_RETRY_DAMAGED_AFTER_S: Final = 3600.0
"""... and one that could not be compacted for another reason: retention, or a new copy of it, may have mended it."""


class Compaction:
    """`start` it on the loop's thread; `close` waits for the step under way, and nothing of it is lost.

    `settings` gives the broker's settings as they hold now.
    """

    def __init__(
        self,
        settings: "Callable[[], BrokerConfig]",
        replicas: "ReplicaManager",
        directories: "LogDirectories",
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._directories = directories
        self._loop = loop
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla compaction")
        self._closing = asyncio.Event()
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._checkpoints: dict[TopicPartition, int] = {}
        """Up to where each log is compacted."""
        self._logs: dict[TopicPartition, PartitionLog] = {}
        """The logs that those offsets are about."""
        self.uncleanable: dict[TopicPartition, tuple[PartitionLog, str]] = {}
        """Logs that could not be compacted the last time, and why."""
        self.debt: dict[TopicPartition, tuple[int, float]] = {}
        """Bytes to compact of each log, due or not, and their share of what could be cleaned; as of the last look."""
        self._unreadable: dict[TopicPartition, frozenset[int]] = {}
        """Base offsets of the batches that were reported as such."""
        self._resting: dict[TopicPartition, float] = {}
        """When they are tried again (monotonic seconds)."""

    def start(self) -> None:
        """Begin, unless `log.cleaner.enable` is false."""
        if self._settings().log_cleaner_enable:
            self._task = supervised(self._loop, self._run(), "log cleaner")

    async def close(self) -> None:
        """Stop the cleaner, and wait for it."""
        self._closing.set()
        self._stop.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        for directory in self._directories.online:
            try:
                offsets = await self._in_thread(directory.read_cleaner_offsets)
                # A replica that was moved has left its offset in the directory that it came from.
                self._checkpoints |= {tp: offset for tp, offset in offsets.items() if tp in directory.logs}
            except (OSError, KafkaStorageError) as error:
                log.warning("%s; the logs in %s are compacted from their start", error, directory.path)
        while not self._closing.is_set():
            try:
                worked = await self.compact_dirtiest()
            except Exception:
                log.exception("compaction failed; it goes on after log.cleaner.backoff.ms")
                worked = False
            if not worked:
                await self._rest(self._settings().log_cleaner_backoff_ms / 1000)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._thread, work)

    # -- what next ---------------------------------------------------------------------------------------------------

    async def compact_dirtiest(self) -> bool:
        """One round over the log that needs it most; whether there was one and it was compacted."""
        candidates = await self._candidates()
        now_ms = self._clock.now_ms()
        for view in candidates:
            checkpoint = self._checkpoints.get(view.topic_partition)
            if checkpoint is not None and first_dirty_offset(view, checkpoint) != checkpoint:
                log.info("%s: the compacted part ended at %d, which the log has not", view.topic_partition, checkpoint)
                del self._checkpoints[view.topic_partition]
        checkpoints = dict(self._checkpoints)

        def choose() -> list[DirtyLog]:
            dirty: list[DirtyLog] = []
            for view in candidates:
                try:
                    found = find_dirt(view, checkpoints.get(view.topic_partition), now_ms)
                except (OSError, CorruptMessage) as error:
                    log.warning("%s cannot be looked at for compaction: %s", view.topic_partition, error)
                    continue
                if found is not None:
                    dirty.append(found)
            return dirty

        dirty = await self._in_thread(choose) if candidates else []
        self.debt = {each.log.topic_partition: (each.dirty_bytes, each.ratio) for each in dirty}
        due = max((each for each in dirty if each.is_due), key=lambda each: each.ratio, default=None)
        return due is not None and await self._compact(due)

    async def _candidates(self) -> list[CleanableLog]:
        """The logs with closed segments that no round has seen; those not yet synced are synced first."""
        candidates: list[CleanableLog] = []
        monotonic = self._clock.monotonic()
        partitions = self._replicas.partitions()
        here = {partition.topic_partition: partition.log for partition in partitions}
        self._forget_all_but(here)
        await self._follow_truncations(here)
        for number, partition in enumerate(partitions):
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            tp, partition_log = partition.topic_partition, partition.log
            if not partition_log.config.compact:
                continue
            if self._resting.get(tp, monotonic) > monotonic or is_unfinished(partition_log):
                continue
            if tp.topic in INTERNAL_TOPICS:
                self._close_in_time(partition_log)
            active = partition_log.segments[-1].base_offset
            if active <= max(self._checkpoints.get(tp, 0), partition_log.segments[0].base_offset):
                continue
            if partition_log.recovery_point < active:
                partition.mark_dirty()
            candidates.append(cleanable_log(partition_log, partition_log.recovery_point))
        return candidates

    def _close_in_time(self, partition_log: "PartitionLog") -> None:
        """Has a coordinator's log compacted before its segment is full, at 100 MB: the next leader has to read it."""
        if partition_log.segments[-1].size >= _READ_AT_TAKEOVER_BYTES:
            try:
                partition_log.roll()
            except KafkaStorageError as error:
                log.warning("rolling a coordinator's log failed: %s", error)

    def _forget_all_but(self, here: "dict[TopicPartition, PartitionLog]") -> None:
        """Forgets deleted topics, whose names others may get, and logs that a copy in another directory has replaced:
        the copy may have been taken before its source was compacted."""
        self._checkpoints = {
            tp: offset
            for tp, offset in self._checkpoints.items()
            if tp in here and self._logs.get(tp) in (None, here[tp])
        }
        self._logs = {tp: partition_log for tp, partition_log in here.items() if partition_log.config.compact}
        self.uncleanable = {tp: known for tp, known in self.uncleanable.items() if here.get(tp) is known[0]}
        self._resting = {tp: until for tp, until in self._resting.items() if tp in here}
        self._unreadable = {tp: offsets for tp, offsets in self._unreadable.items() if tp in here}

    async def _follow_truncations(self, here: "dict[TopicPartition, PartitionLog]") -> None:
        """Lowers the checkpoints of logs that were truncated below them: what has come since is dirty."""
        lowered: set[LogDirectory] = set()
        for tp, checkpoint in self._checkpoints.items():
            end = here[tp].take_lowest_end()
            directory = self._directories.directory_of(tp)
            if end is not None and end < checkpoint and directory is not None:
                log.info("%s: was compacted up to offset %d, and truncated to %d", tp, checkpoint, end)
                self._checkpoints[tp] = end
                lowered.add(directory)
        for directory in lowered:
            try:
                await self._write_checkpoints(directory)
            except OSError as error:
                directory.report(error)

    async def _write_checkpoints(self, directory: "LogDirectory") -> None:
        offsets = {tp: offset for tp, offset in self._checkpoints.items() if tp in directory.logs}
        await self._in_thread(partial(directory.write_cleaner_offsets, offsets))

    # -- one round ---------------------------------------------------------------------------------------------------

    async def _compact(self, dirty: DirtyLog) -> bool:
        tp = dirty.log.topic_partition
        partition_log = self._directories.get(tp)
        directory = self._directories.directory_of(tp)
        if partition_log is None or directory is None or directory.offline_reason is not None:
            return False
        try:
            return await self._round(dirty, partition_log, directory)
        except CleaningAborted:
            return False
        except (CorruptMessage, OSError) as error:
            if self._directories.get(tp) is not partition_log or not partition_log.holds(
                dirty.log.segments[:-1], dirty.log.generation
            ):
                return False  # deleted, truncated or shortened by retention meanwhile
            if isinstance(error, OSError) and error.errno in LACKS_ROOM:
                self._resting[tp] = self._clock.monotonic() + _RETRY_AFTER_S
                log.warning("%s is not compacted for now: %s", tp, error)
            else:
                self._resting[tp] = self._clock.monotonic() + _RETRY_DAMAGED_AFTER_S
                if self.uncleanable.get(tp) != (partition_log, str(error)):
                    self.uncleanable[tp] = (partition_log, str(error))
                    log.error("%s cannot be compacted, and is left as it is for an hour: %s", tp, error)
                if isinstance(error, OSError):
                    directory.report(error)
            return False

    async def _round(self, dirty: DirtyLog, partition_log: "PartitionLog", directory: "LogDirectory") -> bool:
        config = self._settings()
        started = self._clock.monotonic()
        throttle = Throttle(lambda: self._settings().log_cleaner_io_max_bytes_per_second, self._clock, self._stop)
        limits = CleanerLimits(
            config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_size, throttle.pause
        )  # fmt: skip
        await self._in_thread(directory.prepare_checkpoints().write)  # see cleanable_log
        cleaning = Cleaning(dirty, directory.fs, self._clock.now_ms(), limits)
        await self._in_thread(cleaning.prepare)
        for group in cleaning.groups:
            cleaned = await self._in_thread(partial(cleaning.clean, group))
            if cleaned is not None and not await self._replace(partition_log, directory, group, cleaned, dirty):
                return False
        tp = dirty.log.topic_partition
        self._checkpoints[tp] = cleaning.end_offset
        await self._write_checkpoints(directory)
        self.uncleanable.pop(tp, None)
        stats = cleaning.stats
        self._report_unreadable(tp, stats.unreadable)
        log.info(
            "compacted %s up to offset %d: %d of %d records, %d of %d bytes are left; %.2f s",
            tp, cleaning.end_offset, stats.records_written, stats.records_read, stats.bytes_written, stats.bytes_read,
            self._clock.monotonic() - started,
        )  # fmt: skip
        return True

    def _report_unreadable(self, tp: "TopicPartition", unreadable: dict[int, str]) -> None:
        new = unreadable.keys() - self._unreadable.get(tp, frozenset())
        if new:
            log.error(
                "%s has %d batches that cannot be read; they are kept as they are, and the rest is compacted. "
                "The first new one begins at offset %d: %s",
                tp, len(unreadable), min(new), unreadable[min(new)],
            )  # fmt: skip
        self._unreadable[tp] = frozenset(unreadable)

    async def _replace(
        self,
        partition_log: "PartitionLog",
        directory: "LogDirectory",
        old: "list[Segment]",
        new: "Segment",
        dirty: DirtyLog,
    ) -> bool:
        replacement = Replacement(partition_log, directory.fs, old, new, dirty.log.generation)
        if not replacement.begin():
            return False
        await self._in_thread(replacement.sync)
        if not replacement.swap():
            await self._in_thread(replacement.sync)
            return False
        await self._in_thread(replacement.sync)
        replacement.finish()
        await self._in_thread(replacement.sync)
        await self._in_thread(replacement.remove)
        return True


class Throttle:
    """Makes the thread that compacts wait, so that it moves at most `bytes_per_second()`, and so that the loop hardly
    notices it: while the rest of the process works, it takes a quarter of the time at most, in short spells, because
    the loop has to wait for the interpreter whenever it wakes up in one of them.
    """

    def __init__(self, bytes_per_second: Callable[[], float], clock: Clock, stop: threading.Event) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._stop = stop
        self._since = clock.monotonic()
        self._moved = 0
        self._resumed = self._looked = time.perf_counter()
        self._others_cpu = self._cpu_of_others()
        self._is_busy = False

    def pause(self, moved_bytes: int) -> None:
        """To be called after so many bytes. Raises CleaningAborted when the broker stops."""
        if self._stop.is_set():
            raise CleaningAborted
        self._moved += moved_bytes
        now = time.perf_counter()
        worked = now - self._resumed
        if worked < _SPELL_S:
            return
        if now - self._looked > _LOOK_S:
            others_cpu = self._cpu_of_others()
            self._is_busy = others_cpu - self._others_cpu > _BUSY_SHARE * (now - self._looked)
            self._looked, self._others_cpu = now, others_cpu
        ahead = self._moved / max(self._bytes_per_second(), 1.0) - (self._clock.monotonic() - self._since)
        if self._is_busy:
            ahead = max(ahead, _REST_PER_WORK * worked)
        if ahead > 0:
            self._stop.wait(ahead)
        else:
            time.sleep(0)  # lets go of the interpreter
        self._resumed = time.perf_counter()

    @staticmethod
    def _cpu_of_others() -> float:
        return time.process_time() - time.thread_time()
