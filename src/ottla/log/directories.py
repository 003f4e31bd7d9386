"""All of `log.dirs`, as one place to find a partition's log."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import BrokerId, TopicId, TopicPartition
from ottla.log.directory import ConfigFor, LogDirectory
from ottla.log.fs import FileSystem
from ottla.log.partition_log import PartitionLog

logger: Final = logging.getLogger(__name__)


class LogDirectories:
    """The directories of one broker. Belongs to the thread that owns their logs."""

    def __init__(self, paths: Iterable[Path], *, fs: FileSystem, clock: Clock, goes_on: bool = False) -> None:
        """With `goes_on`, one that fails is left out, as long as there is another: others hold what is in it, too."""
        self.directories = [LogDirectory(path, fs=fs, clock=clock) for path in paths]
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Where partitions that are not here yet shall be, if they come."""
        self._goes_on = goes_on
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
        """What was missing or stale has been replaced."""
        self.is_incomplete = False
        for directory in self.directories:
            directory.is_stale = False

    def lacks(self, partition: TopicPartition) -> bool:
        """Was a partition that is not here perhaps on a disk that is missing?"""
        return self.is_incomplete or any(
            directory.is_stale or partition in directory.vanished for directory in self.online
        )

    def forget_vanished(self, partition: TopicPartition) -> None:
        """It does not matter any more that a partition is not where it was."""
        for directory in self.directories:
            directory.vanished.discard(partition)

    def is_stale(self, log: PartitionLog) -> bool:
        """Is a log that was found here perhaps older than what this broker had?"""
        return any(directory.is_stale and directory.path == log.directory.parent for directory in self.online)

    @property
    def online(self) -> list[LogDirectory]:
        """Those that have not failed."""
        return [directory for directory in self.directories if directory.offline_reason is None]

    @property
    def all_online(self) -> bool:
        """Has none failed?"""
        return len(self.online) == len(self.directories)

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
                try:
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
        for directory in self.directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        return None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.directories if partition in directory.logs), None)

    def create_log(self, partition: TopicPartition, topic_id: TopicId | None, config: LogConfig) -> PartitionLog:
        """A new log in the directory with the fewest. Raises KafkaStorageError."""
        if not self.online:
            raise KafkaStorageError(f"no log directory is left to create {partition} in; see the errors above")
        holder = next((directory for directory in self.directories if directory.has_unopened(partition)), None)
        chosen = holder or self.preferred.pop(partition, None)
        self.forget_vanished(partition)
        if chosen is None or chosen.offline_reason is not None:
            chosen = min(self.online, key=lambda directory: len(directory.logs))
        return chosen.create(partition, topic_id, config)

    def at(self, path: str) -> LogDirectory | None:
        """The directory with this absolute path, as `log.dirs` names it."""
        return next((directory for directory in self.directories if str(directory.path.absolute()) == path), None)

    def set_aside(self, partition: TopicPartition) -> Path:
        """As `LogDirectory.set_aside`, in whichever directory has the log."""
        return next(d for d in self.directories if partition in d.logs).set_aside(partition)

    def delete_log(self, partition: TopicPartition) -> None:
        """Raises KafkaStorageError; nothing happens if there is no such log."""
        directory = self.directory_of(partition)
        if directory is not None:
            directory.delete(partition)

    def close(self) -> None:
        for directory in self.directories:
            directory.close()


def _age(log: PartitionLog) -> tuple[int, int]:
    """Grows with what a log has been given."""
    return log.latest_epoch, log.log_end_offset
