"""All of `log.dirs`, as one place to find a partition's log."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, TopicId, TopicPartition
from ottla.log import incarnations
from ottla.log.broker_epochs import UNKNOWN_EPOCH
from ottla.log.directory import ConfigFor, LogDirectory
from ottla.log.fs import FileSystem
from ottla.log.meta_properties import directory_uuid
from ottla.log.new_log import NewLog
from ottla.log.partition_log import PartitionLog
from ottla.log.refill_marks import Refill

logger: Final = logging.getLogger(__name__)


class LogDirectories:
    """The directories of one broker. Belongs to the thread that owns their logs."""

    def __init__(self, paths: Iterable[Path], *, fs: FileSystem, clock: Clock, goes_on: bool = False) -> None:
        """With `goes_on`, one that fails is left out, as long as there is another: others hold what is in it, too."""
        self.fs, self.clock = fs, clock
        self.directories = [LogDirectory(path, fs=fs, clock=clock) for path in paths]
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Where partitions that are not here yet shall be, if they come."""
        self.cordoned: Collection[Path] = ()
        """Paths of those that get no new logs."""
        self.of_metadata: LogDirectory | None = None
        """The directory of the metadata log, once the controller of this process has opened it."""
        self._had_by: dict[UUID, list[UUID]] = {}
        """Earlier processes that had each of the directories, by its id."""
        self._goes_on = goes_on
        self.wants_to_stay_open = False
        """Whether the logs stay open, if they can, while one broker of this process ends and another begins."""
        self.stayed_open = False
        """Whether they did so the last time."""
        self.is_incomplete = False
        """Whether a directory that this broker had in its cluster is missing."""

    # -- are these the disks that were here before? ------------------------------------------------------------------

    def compare(self, recorded: Mapping[str, int]) -> None:
        """Compare what is here with the generations, by directory id, that the cluster has recorded; it has none of a
        new broker."""
        found = {directory.directory_id: directory for directory in self.online}
        for directory_id, generation in recorded.items():
            directory = found.get(directory_id)
            if directory is None:
                self.is_incomplete = True
            elif directory.generation < generation:
                directory.is_stale = True
                logger.error(
                    "%s is an old copy (generation %d; this broker had %d last): what it holds counts as out of sync",
                    directory.path,
                    directory.generation,
                    generation,
                )
        if self.is_incomplete and self.all_online:
            logger.error(
                "a log directory of this broker is missing: of those in use before, %s are not among %s. Replicas that "
                "are not found count as lost, and do not lead",
                sorted(recorded.keys() - found.keys()),
                [str(directory.path) for directory in self.directories],
            )

    @property
    def is_in_doubt(self) -> bool:
        """Is any of them missing, or an old copy?"""
        return self.is_incomplete or any(directory.is_stale for directory in self.online)

    def take_into_use(self, recorded: Mapping[str, int], *, trusted: bool = False) -> dict[str, int]:
        """Note in the directories that they are in use once more; what to record of all.

        What is missing or stale stays recorded as it was, unless it is `trusted`; so does a directory that cannot be
        written.
        """
        generation = max(recorded.values(), default=0) + 1
        found = dict(recorded)
        if trusted:
            present = {directory.directory_id for directory in self.online}
            found = {directory_id: known for directory_id, known in recorded.items() if directory_id in present}
        for directory in self.online:
            if directory.is_stale and not trusted:
                continue
            try:
                directory.write_generation(generation)
            except OSError as problem:
                logger.warning("cannot note the use of %s, the note before it stays: %s", directory.path, problem)
                directory.report(problem)
            else:
                found[directory.directory_id] = generation
        return found

    def trust(self) -> None:
        """Missing or stale state has been replaced."""
        self.is_incomplete = False
        for directory in self.directories:
            directory.is_stale = False

    def lacks(self, partition: TopicPartition) -> bool:
        """Was a partition that is not here perhaps on a disk that is missing?"""
        return bool(self.loss_of(partition))

    def loss_of(self, partition: TopicPartition) -> str:
        """What shows that a partition that is not here was here, or may have been; empty if nothing does."""
        if any(partition in directory.vanished for directory in self.online):
            return "this broker had it, or was to have it"
        if self.is_incomplete:
            return "a log directory that this broker had is missing, and may have it"
        stale = next((directory.path for directory in self.online if directory.is_stale), None)
        return "" if stale is None else f"{stale} is an old copy of what this broker had, which may have had it"

    def expect(self, partition: TopicPartition) -> None:
        """The cluster has put a partition here: unless its log was found, it is lost."""
        if self.get(partition) is None and self.online:
            self.online[0].vanished.add(partition)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the broker that last had all of them, if nothing that it wrote is lost; else -1."""
        found = {directory.previous_broker_epoch for directory in self.online}
        return found.pop() if len(found) == 1 and self.all_online else UNKNOWN_EPOCH

    def note_broker_epoch(self, epoch: int) -> None:
        """Note in the directories which epoch they are used in."""
        for directory in self.online:
            try:
                directory.note_broker_epoch(epoch)
            except OSError as problem:
                logger.warning("cannot note the broker epoch in %s: %s", directory.path, problem)

    def note_incarnation(self, incarnation: UUID) -> None:
        """Note in the directories, before it registers, that this process has them; in any thread."""
        for directory in self.online:
            path = str(directory.path / incarnations.INCARNATIONS)
            try:
                known = incarnations.read(self.fs, path)
                incarnations.note(self.fs, path, known, incarnation)
            except OSError as problem:
                logger.warning("cannot note in %s that this process has it: %s", directory.path, problem)
                directory.report(problem)
            else:
                self._had_by[directory_uuid(directory.directory_id)] = known

    def were_had_by(self, incarnation: UUID | None) -> bool:
        """Whether an earlier process had all of them: none is replaced, or an old copy."""
        ids = [directory_uuid(directory.directory_id) for directory in self.online]
        return self.all_online and all(incarnation in self._had_by.get(each, ()) for each in ids)

    def forget_vanished(self, partition: TopicPartition) -> None:
        """It does not matter any more that a partition is not where it was."""
        for directory in self.directories:
            directory.vanished.discard(partition)

    def is_stale(self, log: PartitionLog) -> bool:
        """Is a log that was found here perhaps older than what this broker had?"""
        return any(directory.is_stale and directory.path == log.log_dir for directory in self.online)

    @property
    def online(self) -> list[LogDirectory]:
        """Those that have not failed."""
        return [directory for directory in self.directories if directory.offline_reason is None]

    @property
    def all_online(self) -> bool:
        """Has none failed?"""
        return len(self.online) == len(self.directories)

    @property
    def were_clean(self) -> bool:
        """Whether all that work were closed cleanly."""
        return all(directory.was_clean for directory in self.online)

    def find_cluster_id(self) -> str | None:
        """The cluster that meta.properties of the first directory with one names; None for new directories."""
        for directory in self.online:
            cluster_id = directory.owner().get("cluster.id")
            if cluster_id:
                return cluster_id
        return None

    def lock(self) -> None:
        """Locks all. Raises KafkaStorageError."""
        self._do(LogDirectory.lock)

    def _do(self, work: Callable[[LogDirectory], object]) -> None:
        for directory in self.online:
            try:
                work(directory)
            except KafkaStorageError as problem:
                if not self._goes_on or len(self.online) == 1 or not isinstance(problem.__cause__, OSError):
                    raise
                logger.error("%s; the broker goes on without this directory", problem)
                directory.fail(str(problem))

    def acquire(self, *, cluster_id: str, node_id: BrokerId, zookeeper: bool = False) -> None:
        """As `LogDirectory.acquire`, of all."""
        self._do(lambda directory: directory.acquire(cluster_id=cluster_id, node_id=node_id, zookeeper=zookeeper))

    def abandon_load(self) -> None:
        """Have `load_all` end soon, with KafkaStorageError; in any thread."""
        for directory in self.directories:
            directory.abandon_load()

    def load_all(self, config_for: ConfigFor) -> dict[TopicPartition, PartitionLog]:
        """Opens all partitions. Of one that is in two directories, since a move was cut short, that with the later
        leader epoch is served or, within one epoch, the longer one; the other is set aside.

        Raises KafkaStorageError.
        """
        found: dict[TopicPartition, PartitionLog] = {}
        self._do(lambda directory: directory.load(config_for))
        for directory in self.online:
            for partition, log in list(directory.logs.items()):
                twin = found.get(partition)
                if twin is None:
                    found[partition] = log
                    continue
                older = log if _age(log) <= _age(twin) else twin
                owner = next(d for d in self.directories if d.logs.get(partition) is older)
                found[partition] = twin if older is log else log
                refill = self.refilling.get(partition)
                try:
                    if refill is not None:  # one is a copy of the other: both are incomplete
                        kept_by = next(d for d in self.directories if d.logs.get(partition) is found[partition])
                        kept_by.mark_incomplete(partition, refill)
                    kept = owner.set_aside(partition)
                except KafkaStorageError as problem:
                    logger.error("%s is there twice, and %s", partition, problem)
                else:
                    logger.error("%s is there twice; the files of the older one are kept in %s", partition, kept)
        for directory in self.online:
            directory.remove_futures_without(found)
            directory.vanished -= found.keys()
        return found

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, in whichever directory it is; None if there is none."""
        for directory in self.directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        return None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.directories if partition in directory.logs), None)

    @property
    def refilling(self) -> dict[TopicPartition, Refill]:
        """Replicas that are not filled again yet; see `RefillMarks.marked`."""
        return {tp: refill for directory in self.online for tp, refill in directory.refills.marked.items()}

    def end_refill(self, partition: TopicPartition) -> None:
        """As `RefillMarks.end`, in all."""
        for directory in self.online:
            directory.refills.end(partition)

    def create_log(
        self,
        partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        refill: Refill | None = None,
    ) -> PartitionLog:
        """A new log in the directory with the fewest, of those that are neither cordoned nor full; see
        `LogDirectory.create`.

        Raises KafkaStorageError.
        """
        log = self._for_new(partition).create(partition, topic_id, config, refill=refill)
        self.forget_vanished(partition)  # only now: what cannot be made, and marked, is lost still
        return log

    def begin_log(
        self, partition: TopicPartition, topic_id: TopicId | None, config: LogConfig
    ) -> tuple[LogDirectory, NewLog]:
        """As `create_log`, up to where files are made; `take_log` has to follow. Raises KafkaStorageError."""
        directory = self._for_new(partition)
        return directory, directory.begin(partition, topic_id, config)

    def take_log(self, directory: LogDirectory, new: NewLog) -> PartitionLog:
        """The log that has been made. Raises KafkaStorageError."""
        log = directory.take(new)
        self.forget_vanished(new.partition)
        return log

    def _for_new(self, partition: TopicPartition) -> LogDirectory:
        if not self.online:
            raise KafkaStorageError(f"no log directory is left to create {partition} in; see the errors above")
        holder = next((directory for directory in self.directories if directory.has_unopened(partition)), None)
        chosen = holder or self.preferred.pop(partition, None)
        if chosen is None or chosen.offline_reason is not None:
            open_to_new = [directory for directory in self.online if directory.path not in self.cordoned]
            # Placed here before all were cordoned: somewhere it has to be, as in Kafka.
            chosen = min(
                open_to_new or self.online[:1], key=lambda each: (each.is_full, len(each.logs) + len(each.being_made))
            )
        return chosen

    def lacking_to_open(self, partition: TopicPartition) -> LogDirectory | None:
        """The directory that has the partition's log, and may be able to open it now (`LogDirectory.may_reopen`)."""
        return next((directory for directory in self.directories if directory.may_reopen(partition)), None)

    def at(self, path: str) -> LogDirectory | None:
        """The directory with this absolute path, as `log.dirs` names it."""
        return next((directory for directory in self.directories if str(directory.path.absolute()) == path), None)

    def set_aside(self, partition: TopicPartition, *, refill: Refill | None = None) -> Path:
        """As `LogDirectory.set_aside`, in whichever directory has the log."""
        holder = next(d for d in self.directories if partition in d.logs)
        return holder.set_aside(partition, refill=refill)

    def delete_log(self, partition: TopicPartition) -> None:
        """Raises KafkaStorageError; nothing happens if there is no such log."""
        directory = self.directory_of(partition)
        if directory is not None:
            directory.delete(partition)
        self.delete_unopened(partition)

    def delete_unopened(self, partition: TopicPartition) -> None:
        """As `delete_log`, of what could not be opened."""
        for directory in self.online:
            if directory.has_unopened(partition):
                directory.delete(partition)

    def unload(self) -> None:
        """As `LogDirectory.unload`, of all, unless they stay open."""
        if not self._stay_open():
            for directory in self.directories:
                directory.unload()

    def close(self) -> None:
        """As `unload`; frees the locks."""
        if not self._stay_open():
            for directory in self.directories:
                directory.close()

    def _stay_open(self) -> bool:
        """Whether the logs stay open. What is not synced yet is the affair of those that go on with them."""
        self.stayed_open = self.wants_to_stay_open and all(each.may_stay_open() for each in self.directories)
        return self.stayed_open


def _age(log: PartitionLog) -> tuple[int, int]:
    """Grows with what a log has been given."""
    return log.latest_epoch, log.log_end_offset
