"""Log directories: their owner, their partitions, and the checkpoints for all of them.

Files of a log directory, all in Kafka's formats: `.lock` (held while the process lives), `meta.properties`,
`.kafka_cleanshutdown` (there only between a clean shutdown and the next start), `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks), `cleaner-offset-checkpoint`.
Ottla's own: `ottla.generation`, `ottla.boot` (`broker_epochs`), `ottla.incarnations` (`incarnations`).
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import InvalidConfig, KafkaStorageError
from ottla.ids import BrokerId, Offset, TopicId, TopicName, TopicPartition
from ottla.log import broker_epochs, checkpoints, meta_properties, names
from ottla.log.broker_epochs import UNKNOWN_EPOCH
from ottla.log.closing import close_logs
from ottla.log.directory_checkpoints import DirectoryCheckpoints, DirectoryOffsets
from ottla.log.fs import LACKING, FileSystem, replace_atomically
from ottla.log.new_log import NewLog
from ottla.log.partition_log import PartitionLog
from ottla.log.refill_marks import Refill, RefillMarks

logger: Final = logging.getLogger(__name__)

LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
GENERATION: Final = "ottla.generation"
"""Ottla's own: how often the directory has been taken into use in its cluster."""

ConfigFor = Callable[[TopicName], LogConfig]


class LogDirectory:
    """One of `log.dirs`. Belongs to the thread that owns its logs; exceptions are documented."""

    def __init__(self, path: Path, *, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.directory_id = ""
        self.generation = 0
        """How often it has been taken into use in its cluster; 0 for never."""
        self.is_stale = False
        """Whether its cluster has seen it later than it is: an old copy of it has been put back."""
        self.vanished: set[TopicPartition] = set()
        """Partitions that had something on this disk, by its checkpoints, and of which nothing is here."""
        self.refills = RefillMarks(fs, os.fspath(path))
        """Replicas here that are not filled again yet."""
        self.being_made: set[TopicPartition] = set()
        """Partitions whose logs are being made in a thread."""
        self.was_clean = False
        """Whether the last process that had the directory shut it down cleanly."""
        self.previous_broker_epoch = UNKNOWN_EPOCH
        """The broker epoch of that process, if it was under a quorum of controllers, and nothing that it wrote is lost
        (`broker_epochs`)."""
        self.broker_epoch = UNKNOWN_EPOCH
        """This process's."""
        self.offline_reason: str | None = None
        """Why nothing is read or written here any more; None while all is well."""
        self.is_full = False
        """Whether a write has failed for lack of room, and there is none yet (`replication.full_directories`)."""
        self.on_error: Callable[[LogDirectory, OSError], None] = _nobody
        """Called, in any thread, with every error of the disk; it may decide that the directory has failed."""
        self.on_start_moved: Callable[[], None] = _nothing
        """Called when records were deleted from one of its logs."""
        self._fs = fs
        self._clock = clock
        self._path = os.fspath(path)
        self._lock: object | None = None
        self._offsets = DirectoryOffsets(fs, self._path)
        self._loaded = False
        self._is_abandoned = False
        self._unopened: dict[TopicPartition, OSError | None] = {}
        """Partitions that are there but could not be opened, with the error of the disk if that was the reason: what
        the checkpoints say of them is kept."""
        self.futures: dict[TopicPartition, str] = {}
        """Copies that were under way to this directory when the last process ended, with the names they have."""

    def __repr__(self) -> str:
        return f"LogDirectory({self._path}, {len(self.logs)} logs)"

    def has_unopened(self, partition: TopicPartition) -> bool:
        """Is it there, though it could not be opened?"""
        return partition in self._unopened

    @property
    def lacks_logs(self) -> bool:
        """Is any there that could not be opened?"""
        return bool(self._unopened)

    def note_unopened(self, partition: TopicPartition, problem: OSError | KafkaStorageError) -> None:
        """It could not be opened, now or again."""
        logger.error("cannot open %s/%s: %s", self._path, partition, problem)
        cause = problem if isinstance(problem, OSError) else problem.__cause__
        self._unopened[partition] = cause if isinstance(cause, OSError) else None

    def may_reopen(self, partition: TopicPartition) -> bool:
        """Could it not be opened for lack of something that may be there by now?"""
        problem = self._unopened.get(partition)
        return problem is not None and problem.errno in LACKING and not self.is_full and self.offline_reason is None

    @property
    def fs(self) -> FileSystem:
        """Where its files are."""
        return self._fs

    def report(self, problem: OSError) -> None:
        """Something could not be done with a file here; in any thread."""
        self.on_error(self, problem)

    def fail(self, reason: str) -> None:
        """Stops reads and writes. The owner of its logs releases them first."""
        self.offline_reason = reason
        self._note_loss()
        for log in self.logs.values():
            log.release()
        self.logs.clear()

    def _note_loss(self) -> None:
        """What could not be written may be lost, though the machine runs on: the kernel drops it."""
        with suppress(OSError):
            self._fs.remove(self._file(broker_epochs.BOOT))

    def read_cleaner_offsets(self) -> dict[TopicPartition, Offset]:
        """Up to where compaction has come, by partition. Raises KafkaStorageError, OSError."""
        return checkpoints.read_offsets(self._fs, self._file(CLEANER_OFFSETS))

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """In any thread, but one at a time. Raises OSError."""
        checkpoints.write(self._fs, self._file(CLEANER_OFFSETS), checkpoints.encode_offsets(offsets))

    def lock(self) -> None:
        """Makes the directory if needed, and locks it.

        Raises KafkaStorageError if another process has it, InvalidConfig if directories of several brokers are in it.
        """
        if self._lock is not None:
            return
        try:
            self._fs.make_directory(self._path)
            self._lock = self._fs.lock(self._file(LOCK))
        except BlockingIOError:
            raise KafkaStorageError(
                f"{self._path} is in use by another process; stop it, or name another directory in log.dirs"
            ) from None
        except OSError as problem:
            raise KafkaStorageError(f"cannot use the log directory {self._path}: {problem}") from problem
        try:
            meta_properties.check_is_no_units(self._fs, self._path)
        except InvalidConfig:
            self._lock = None
            raise

    def acquire(self, *, cluster_id: str, node_id: BrokerId, zookeeper: bool = False) -> None:
        """Locks the directory if that has not been done, and sees that it is this node's.

        With `zookeeper`, a new one is marked as Kafka's brokers with ZooKeeper want it.

        Raises KafkaStorageError if another process has it or it cannot be used, InvalidConfig if it belongs to
        another cluster or node.
        """
        self.lock()
        try:
            if self._loaded:  # its logs have stayed open: only its owner may be another part of the process
                meta_properties.claim(self._fs, self._path, cluster_id, node_id, zookeeper=zookeeper)
                return
            try:
                self.directory_id = meta_properties.claim(
                    self._fs, self._path, cluster_id, node_id, zookeeper=zookeeper
                )
            except InvalidConfig:
                self._lock = None
                raise
            self._offsets.read()
            self.was_clean = self._fs.exists(self._file(CLEAN_SHUTDOWN))
            self.previous_broker_epoch = self._read_broker_epoch()
            self.generation = self._read_generation()
        except OSError as problem:
            raise KafkaStorageError(f"cannot use the log directory {self._path}: {problem}") from problem

    def _read_broker_epoch(self) -> int:
        if self.was_clean:
            return broker_epochs.clean_epoch(self._fs, self._file(CLEAN_SHUTDOWN))
        return broker_epochs.killed_epoch(self._fs, self._file(broker_epochs.BOOT))

    def note_broker_epoch(self, epoch: int) -> None:
        """The broker works in this epoch now. Raises OSError."""
        self.broker_epoch = epoch
        broker_epochs.note(self._fs, self._file(broker_epochs.BOOT), epoch)

    def _read_generation(self) -> int:
        try:
            return int(self._fs.read_bytes(self._file(GENERATION)))
        except (FileNotFoundError, ValueError):
            return 0

    def write_generation(self, generation: int) -> None:
        """It is in use once more. Raises OSError."""
        replace_atomically(self._fs, self._file(GENERATION), b"%d\n" % generation)
        self.generation = generation

    def owner(self) -> dict[str, str]:
        """The content of meta.properties; empty if it does not exist yet. Raises OSError."""
        return meta_properties.read(self._fs, self._path)

    def abandon_load(self) -> None:
        """Have `load` end after the partition it is at; in any thread."""
        self._is_abandoned = True

    def load(self, config_for: ConfigFor) -> dict[TopicPartition, PartitionLog]:
        """Opens all partitions, recovering them unless the last shutdown was clean.

        A partition that cannot be opened is named in the log and left out; the next shutdown is then no clean one.
        Raises KafkaStorageError, also when it has been abandoned: the directory counts as not loaded then.
        """
        if self._loaded:  # they have stayed open
            return self.logs
        try:
            entries = sorted(name for name, is_directory, _ in self._fs.names(self._path) if is_directory)
            if self.was_clean:
                self._fs.remove(self._file(CLEAN_SHUTDOWN))
                self._fs.sync_directory(self._path)
        except OSError as problem:
            raise KafkaStorageError(f"cannot read the log directory {self._path}: {problem}") from problem
        strays = sum(name.endswith(names.STRAY) for name in entries)
        if strays:
            logger.warning(
                "%s has %d directories of partitions that were set aside: their topics are gone, or their leaders had "
                "lost records, of which they may be the only copy; `ottla log strays %s` lists them",
                self._path,
                strays,
                self._path,
            )
        configs: dict[TopicName, LogConfig] = {}
        set_apart = {apart for name in entries if (apart := names.set_apart_partition_of(name)) is not None}
        for name in entries:
            if self._is_abandoned:
                raise KafkaStorageError(f"not everything in {self._path} has been loaded: the broker stops")
            future = names.future_partition_of(name)
            if future is not None:
                self.futures[future] = name
            partition = names.partition_of(name)
            if partition is None or partition.topic == names.METADATA_TOPIC or names.is_deletion_name(name):
                continue
            config = configs.get(partition.topic)
            if config is None:
                config = configs[partition.topic] = config_for(partition.topic)
            try:
                log = self.open(partition, config, name)
            except (OSError, KafkaStorageError) as problem:
                self.note_unopened(partition, problem)
                continue
            self._adopt(log)
        try:
            self.refills.read(self.logs, [name for name in entries if name.endswith(names.STRAY)])
        except OSError as problem:
            raise KafkaStorageError(f"cannot read the log directory {self._path}: {problem}") from problem
        self.vanished = {tp for tp, synced in self._offsets.recovery_points.items() if synced > 0} - set_apart
        self.vanished |= self.refills.replaced
        self.vanished -= {*self.logs, *self._unopened}
        self._loaded = True
        return self.logs

    def open(self, partition: TopicPartition, config: LogConfig, name: str = "") -> PartitionLog:
        """The log that the last process has left, for `take_reopened`; in any thread. Raises OSError,
        KafkaStorageError."""
        log = PartitionLog.open(
            self._file(name or str(partition)),
            partition,
            config,
            fs=self._fs,
            clock=self._clock,
            recovery_point=self._offsets.recovery_points.get(partition, Offset(0)),
            log_start_offset=self._offsets.log_starts.get(partition, Offset(0)),
            clean_shutdown=self.was_clean,
            may_be_planned=True,
            is_there=True,
        )
        log.high_watermark = self._offsets.high_watermarks.get(partition, Offset(0))
        return log

    def take_reopened(self, log: PartitionLog) -> None:
        """Have a log that could not be opened at the start. Raises OSError, KafkaStorageError; it is left as it was
        then."""
        try:
            if self.offline_reason is not None or log.topic_partition not in self._unopened:
                raise KafkaStorageError(f"{self._path} is offline: {self.offline_reason or 'the broker stops'}")
            self.refills.read([log.topic_partition], [])
        except BaseException:
            log.release()
            raise
        del self._unopened[log.topic_partition]
        self._adopt(log)

    def create(
        self,
        partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        refill: Refill | None = None,
    ) -> PartitionLog:
        """A new, empty log. If it takes the place of a lost one, it is marked with `refill` until `refills.end`. Raises
        KafkaStorageError."""
        new = self.begin(partition, topic_id, config, refill=refill)
        new.make()
        return self.take(new)

    def begin(
        self,
        partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        refill: Refill | None = None,
    ) -> NewLog:
        """As `create`, up to where files are made; `take` has to follow. Raises KafkaStorageError."""
        if self.offline_reason is not None:
            raise KafkaStorageError(f"{self._path} is offline: {self.offline_reason}")
        if partition in self._unopened and not self._makes_way(partition, topic_id):
            problem = self._unopened[partition]
            raise KafkaStorageError(
                f"{self._path}/{partition} is there but could not be opened: {problem or 'see the error at the start'}"
            ) from problem

        def mark(directory: str) -> None:
            self.refills.mark(directory, partition, refill or Refill())

        self.being_made.add(partition)
        # Of a deleted or lost one of that name: what was true of it must not outlive it.
        checkpoints = self.prepare_checkpoints() if self._offsets.names(partition) else None
        return NewLog(
            self._file(str(partition)),
            partition,
            topic_id,
            config,
            fs=self._fs,
            clock=self._clock,
            prepare=None if refill is None else mark,
            before=checkpoints if refill is None else None,
            # Until it is marked, only the checkpoints record that it was here.
            after=None if refill is None else checkpoints,
        )

    def _makes_way(self, partition: TopicPartition, topic_id: TopicId | None) -> bool:
        """Whether a log that could not be opened is that of a deleted topic, and is set aside for one with another id.

        Raises KafkaStorageError.
        """
        try:
            found = checkpoints.read_partition_metadata(self._fs, self._file(f"{partition}/{names.PARTITION_METADATA}"))
        except (OSError, KafkaStorageError):
            return False
        if found is None or found == topic_id:
            return False
        kept = self.set_aside(partition)
        logger.warning("%s is of another topic, which is gone; its files are kept in %s", partition, kept)
        return True

    def take(self, new: NewLog) -> PartitionLog:
        """The log that has been made. Raises KafkaStorageError."""
        self.being_made.discard(new.partition)
        try:
            log = new.result()
        except OSError as problem:
            self.report(problem)
            raise KafkaStorageError(f"cannot create {new.partition} in {self._path}: {problem}") from problem
        if self.offline_reason is not None:
            log.release()
            raise KafkaStorageError(f"{self._path} is offline: {self.offline_reason}")
        self._adopt(log)
        return log

    # -- moves from one directory to another ---------------------------------------------------------------------

    def begin_future(self, partition: TopicPartition, topic_id: TopicId | None, config: LogConfig) -> PartitionLog:
        """An empty log for a copy that shall become the partition's; `load` finds its name after a restart.
        Raises KafkaStorageError."""
        return self._open_or_remove(names.future_name(partition), partition, topic_id, config, Offset(0))

    def promote(self, future: PartitionLog, config: LogConfig, *, refill: Refill | None = None) -> PartitionLog:
        """Gives a copy that has been closed the partition's name, and opens it: not yet to be served.

        `refill` is that of a replica that is not filled again yet. The copy is marked before it gets the name:
        a process that ends right after that must not find an incomplete log without a mark. Raises KafkaStorageError.
        """
        name = str(future.topic_partition)
        try:
            if refill is not None:
                self.refills.mark(os.fspath(future.directory), future.topic_partition, refill)
            self._fs.rename(os.fspath(future.directory), self._file(name))
        except OSError as problem:
            self.report(problem)
            raise KafkaStorageError(f"cannot take {name} into {self._path}: {problem}") from problem
        return self._open_or_remove(name, future.topic_partition, future.topic_id, config, future.recovery_point)

    def _open_or_remove(
        self,
        name: str,
        partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        recovery_point: Offset,
    ) -> PartitionLog:
        if self.offline_reason is not None:
            raise KafkaStorageError(f"{self._path} is offline: {self.offline_reason}")
        try:
            log = PartitionLog.open(
                Path(self._path, name),
                partition,
                config,
                fs=self._fs,
                clock=self._clock,
                recovery_point=recovery_point,
                clean_shutdown=True,
                topic_id=topic_id,
            )
        except OSError as problem:
            self.report(problem)
            with suppress(OSError):
                self._fs.remove_tree(self._file(name))  # or the next start would find it
            raise KafkaStorageError(f"cannot copy {partition} to {self._path}: {problem}") from problem
        log.on_error = self.report
        return log

    def take_in(self, log: PartitionLog) -> None:
        """A copy that has been promoted is the partition's log from now on."""
        self._adopt(log)

    def give_away(self, partition: TopicPartition) -> None:
        """The partition's log is in another directory from now on; the files here stay until `discard`."""
        del self.logs[partition]

    def sync_names(self) -> None:
        """Brings the names of the partitions to the disk; in any thread. Raises OSError."""
        self._fs.sync_directory(self._path)

    def discard(self, log: PartitionLog) -> None:
        """Closes a log that is none of this directory's any more, and has its files removed with the deleted ones.

        Raises KafkaStorageError.
        """
        log.release()
        try:
            self._fs.rename(os.fspath(log.directory), self._file(names.deletion_name(log.topic_partition)))
        except OSError as problem:
            self.report(problem)
            raise KafkaStorageError(f"cannot remove {log.directory}: {problem}") from problem

    def remove_futures_without(self, logs: Collection[TopicPartition]) -> None:
        """Removes copies of what is not here any more."""
        for partition in self.futures.keys() - set(logs):
            try:
                self.remove_future(self.futures.pop(partition))
            except OSError as problem:
                logger.error("cannot remove a copy of %s from %s: %s", partition, self._path, problem)

    def remove_future(self, name: str) -> None:
        """Removes what is left of a copy. Slow, for any thread. Raises OSError."""
        self._fs.remove_tree(self._file(name))

    # -- checkpoints, end --------------------------------------------------------------------------------------------

    def _adopt(self, log: PartitionLog) -> None:
        log.prepare_checkpoints = self.prepare_checkpoints
        log.on_error = self.report
        log.on_start_moved = self._start_moved
        self.logs[log.topic_partition] = log

    def _start_moved(self) -> None:
        self.on_start_moved()

    def delete(self, partition: TopicPartition) -> None:
        """Takes the log away at once, also one that could not be opened; its files go with the next `remove_deleted`.
        Raises KafkaStorageError."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.release()
        try:
            self._fs.rename(self._file(str(partition)), self._file(names.deletion_name(partition)))
        except OSError as problem:
            self.report(problem)
            raise KafkaStorageError(f"cannot delete {partition} in {self._path}: {problem}") from problem
        self._unopened.pop(partition, None)

    def set_aside(self, partition: TopicPartition, *, refill: Refill | None = None) -> Path:
        """Takes away a log that belongs to no topic, or to one deleted before another got its name, or that parts from
        its leader's; where its files are kept. With `refill`, an empty log is to take its place: see `create`.

        Raises KafkaStorageError.
        """
        log = self.logs.pop(partition, None)
        if log is not None:
            log.release()
        path, kept = self._file(str(partition)), self._file(names.stray_name(partition))
        try:
            self.refills.end(partition)
            if refill is not None:
                self.refills.mark_replaced(path, partition, refill)
            self._fs.rename(path, kept)
        except OSError as problem:
            self.report(problem)
            raise KafkaStorageError(f"cannot set {partition} in {self._path} aside: {problem}") from problem
        self._unopened.pop(partition, None)
        if refill is not None:
            self.refills.was_replaced(partition, kept)
        return Path(kept)

    def mark_incomplete(self, partition: TopicPartition, refill: Refill) -> None:
        """Marks a log that is to be filled again; see `RefillMarks`. Raises KafkaStorageError."""
        try:
            self.refills.mark(self._file(str(partition)), partition, refill)
        except OSError as problem:
            self.report(problem)
            raise KafkaStorageError(f"cannot mark {partition} in {self._path} as incomplete: {problem}") from problem

    def remove_deleted(self) -> int:
        """Removes the directories of deleted partitions, those of earlier processes too; how many. Slow, for any
        thread. Raises OSError."""
        removed = 0
        for name, is_directory, _ in self._fs.names(self._path):
            if is_directory and names.is_deletion_name(name):
                self._fs.remove_tree(self._file(name))
                removed += 1
        return removed

    def prepare_checkpoints(self) -> DirectoryCheckpoints:
        """The checkpoints as of now, to be written in any thread. The old entries of partitions that are being made
        again are left out."""
        logs = self.logs
        for log in logs.values():
            log.snapshot_producers_if_due()
        missing = (self._unopened.keys() | self.vanished) - self.being_made
        return self._offsets.prepare(logs, missing)

    def close(self) -> None:
        """As `unload`; frees the lock."""
        self.unload()
        self._lock = None

    def may_stay_open(self) -> bool:
        """Whether another part of this process can go on with the logs as they are, since they are all there is."""
        if not self._loaded or self.offline_reason is not None or self.being_made or self._unopened:
            return False
        try:
            found = [name for name, is_directory, _ in self._fs.names(self._path) if is_directory]
        except OSError:
            return False
        there = {partition for name in found if (partition := names.partition_of(name)) is not None}
        is_moving = any(names.future_partition_of(name) is not None for name in found)
        return not is_moving and {each for each in there if each.topic != names.METADATA_TOPIC} == self.logs.keys()

    def unload(self) -> None:
        """Closes all logs, writes checkpoints and, if all went well, the clean-shutdown marker; `acquire` and `load`
        may follow.

        A directory that was not loaded is left as it was found. Does nothing when there is nothing (more) to close.
        """
        if not self._loaded or self.offline_reason is not None:
            for log in self.logs.values():
                log.release()
            self.logs.clear()
            return
        self._loaded = False
        clean = close_logs(self.logs.values(), self._fs, self._path, self._note_loss) and not self._unopened
        try:
            self.prepare_checkpoints().write()
            if clean:
                # A process that was never registered has lost nothing of what the one before it had.
                epoch = self.previous_broker_epoch if self.broker_epoch == UNKNOWN_EPOCH else self.broker_epoch
                marker = broker_epochs.clean_marker(epoch)
                self._fs.write_bytes(self._file(CLEAN_SHUTDOWN), marker, sync=True)
                self._fs.sync_directory(self._path)
        except OSError as problem:
            clean = False
            logger.error("cannot note the clean shutdown of %s: %s; it will be recovered", self._path, problem)
        self.was_clean = clean
        self.logs.clear()
        self._unopened.clear()
        self.futures.clear()

    def _file(self, name: str) -> str:
        return f"{self._path}/{name}"


def _nothing() -> None:
    """The default callback of a directory whose logs serve no partitions yet."""


def _nobody(directory: LogDirectory, problem: OSError) -> None:
    """The default callback: the failed operation raises the error anyway."""
