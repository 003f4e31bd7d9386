"""Marks in the directories of replicas that are filled again after a loss: they lack records, and must not lead yet.

The file outlives the process, so a restart in the middle does not make a complete replica of one. Its content names the
partition, the leaders that made its earlier log be set aside, and the partition epoch in which the replica was neither
in sync nor eligible, if that is known: ``topic partition leader leader ... @epoch``

A log that is set aside gets the mark first. Until the empty log in its place has one of its own, the mark of the old
log
shows that the partition was here.
"""

import logging
import os
from collections.abc import Collection, Iterable, KeysView
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.log import names
from ottla.log.fs import FileSystem

logger: Final = logging.getLogger(__name__)

MARK: Final = "ottla.refilling"

NOT_KNOWN: Final = -1


class Refill(NamedTuple):
    """Why and since when a replica is filled again."""

    leaders: Collection[BrokerId] = ()
    """The leaders for whose sake its log was set aside; none if it was lost with a disk."""
    since: int = NOT_KNOWN
    """A partition epoch in which nobody counted on it: it was neither in sync nor eligible."""


class RefillMarks:
    """The marks in one log directory. Belongs to the thread that owns its logs."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self.marked: dict[TopicPartition, Refill] = {}
        """Replicas that are not filled again yet."""
        self._replaced: dict[TopicPartition, list[str]] = {}

    @property
    def replaced(self) -> KeysView[TopicPartition]:
        """Partitions of which a log was set aside, so that an empty one takes its place."""
        return self._replaced.keys()

    def read(self, partitions: Iterable[TopicPartition], strays: Iterable[str]) -> None:
        """Find the marks of these partitions, and of logs set aside under these names. Raises OSError."""
        for partition in partitions:
            found = self._read(f"{self._path}/{partition}")
            if found is not None:
                self.marked[partition] = found[1]
        for name in strays:
            found = self._read(f"{self._path}/{name}")
            if found is not None and found[0] is not None:
                self.was_replaced(found[0], f"{self._path}/{name}")

    def _read(self, directory: str) -> tuple[TopicPartition | None, Refill] | None:
        try:
            text = self._fs.read_bytes(f"{directory}/{MARK}").decode(errors="replace")
        except FileNotFoundError:
            return None
        with suppress(ValueError):
            words, _, epoch = text.partition("@")
            topic, number, *leaders = words.split()
            partition = TopicPartition(TopicName(topic), PartitionId(int(number)))
            named = frozenset(BrokerId(int(leader)) for leader in leaders)
            return partition, Refill(named, int(epoch) if epoch else NOT_KNOWN)
        return names.set_apart_partition_of(os.path.basename(directory)), Refill()  # torn by a power failure

    def mark(self, directory: str, partition: TopicPartition, refill: Refill) -> None:
        """The log in this directory is to be filled again. Raises OSError."""
        self._write(directory, partition, refill)
        self.marked[partition] = refill

    def mark_replaced(self, directory: str, partition: TopicPartition, refill: Refill) -> None:
        """The log in this directory is about to be set aside. Raises OSError."""
        self._write(directory, partition, refill)

    def was_replaced(self, partition: TopicPartition, directory: str) -> None:
        """A marked log has been set aside, and is in this directory."""
        self._replaced.setdefault(partition, []).append(directory)

    def end(self, partition: TopicPartition) -> None:
        """A replica is complete, or is not the one any longer that was to be filled."""
        directories = self._replaced.pop(partition, [])
        if self.marked.pop(partition, None) is not None:
            directories.append(f"{self._path}/{partition}")
        for directory in directories:
            try:
                self._fs.remove(f"{directory}/{MARK}")
            except FileNotFoundError:
                continue
            except OSError as problem:
                logger.warning(
                    "cannot remove %s/%s, so %s counts as incomplete again after a restart, until it is in sync: %s",
                    directory,
                    MARK,
                    partition,
                    problem,
                )

    def _write(self, directory: str, partition: TopicPartition, refill: Refill) -> None:
        """On the disk before anything goes on: after a power failure, an empty log without a mark would pass for
        complete, and might lead."""
        words: list[object] = [partition.topic, partition.partition, *sorted(refill.leaders)]
        if refill.since != NOT_KNOWN:
            words.append(f"@{refill.since}")
        self._fs.write_bytes(f"{directory}/{MARK}", " ".join(map(str, words)).encode(), sync=True)
        self._fs.sync_directory(directory)
