"""What lies in a partition's directory when its log is opened: segments, snapshots, checkpoints; and what a crash has
interrupted there, completed."""

import logging
from collections.abc import Set
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import Offset, TopicId
from ottla.log import checkpoints, names
from ottla.log.fs import FileSystem
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.scan import scan
from ottla.log.segment import Segment

logger: Final = logging.getLogger(__name__)

_OF_NO_SEGMENT: Final = frozenset({names.LEADER_EPOCHS, names.PARTITION_METADATA})
"""All that most partitions without a record have: a broker that starts may find ten thousand."""


class Opening(NamedTuple):
    """What a log is opened with."""

    fs: FileSystem
    directory: str
    config: LogConfig
    clock: Clock
    recovery_point: Offset
    log_start_offset: Offset
    is_clean: bool
    """Whether the log was closed before."""

    def create(self, base: int) -> Segment:
        """A new, empty segment. Raises OSError."""
        return Segment.create(
            self.fs,
            self.directory,
            base,
            created_ms=self.clock.now_ms(),
            preallocated_bytes=self.config.preallocated_bytes,
        )

    def plan(self, base: int) -> Segment:
        """A new segment that has no files yet."""
        return Segment.planned(self.fs, self.directory, base, created_ms=self.clock.now_ms())

    def remove(self, segment: Segment) -> None:
        """The segment's files. Raises OSError."""
        for path in segment.file_paths():
            try:
                self.fs.remove(path)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)
        segment.release()


class FoundFiles(NamedTuple):
    """What the directory holds."""

    segments: list[Segment]
    """Ascending."""
    without_index: list[Segment]
    """Those of them whose indexes are missing or cannot be used."""
    snapshots: list[int]
    """Offsets of the snapshots of producers, ascending."""
    has_epochs: bool
    """Whether there is a checkpoint of leader epochs."""
    topic_id: TopicId | None
    changed: bool
    """Whether something was completed that a crash had interrupted."""


def find_files(opening: Opening) -> FoundFiles:
    """Raises OSError, and KafkaStorageError for a malformed partition.metadata."""
    fs, directory = opening.fs, opening.directory
    sizes = _sizes(opening)
    names_of_segments = sizes.keys() - _OF_NO_SEGMENT
    changed = any(name.endswith((names.DELETED, names.CLEANED, names.SWAP, ".tmp")) for name in names_of_segments)
    if changed:
        _finish_interrupted(fs, directory, sizes)
        sizes = _sizes(opening)
        names_of_segments = sizes.keys() - _OF_NO_SEGMENT
    for name in names_of_segments:
        is_index = name[20:] in names.SEGMENT_SUFFIXES and name[20:] not in (names.LOG, names.PRODUCER_SNAPSHOT)
        if is_index and name[:20] + names.LOG not in sizes:
            logger.warning("%s/%s belongs to no segment and is removed", directory, name)
            fs.remove(f"{directory}/{name}")
    segments = [_segment(opening, base, sizes) for base in _offsets(names_of_segments, names.LOG)]
    return FoundFiles(
        segments,
        [segment for segment in segments if not _has_indexes(segment.base_offset, sizes)],
        _offsets(names_of_segments, names.PRODUCER_SNAPSHOT),
        names.LEADER_EPOCHS in sizes,
        checkpoints.read_partition_metadata(fs, f"{directory}/{names.PARTITION_METADATA}")
        if names.PARTITION_METADATA in sizes
        else None,
        changed,
    )


def _sizes(opening: Opening) -> dict[str, int]:
    return {name: size for name, is_directory, size in opening.fs.names(opening.directory) if not is_directory}


def _offsets(found: Set[str], suffix: str) -> list[int]:
    if not found:
        return []
    offsets = (names.offset_of(name) for name in found if name[20:] == suffix)
    return sorted(offset for offset in offsets if offset is not None)


def read_epochs(opening: Opening) -> LeaderEpochs | None:
    """Those of the checkpoint; None if it is damaged."""
    path = f"{opening.directory}/{names.LEADER_EPOCHS}"
    try:
        return LeaderEpochs(checkpoints.read_epochs(opening.fs, path))
    except KafkaStorageError as problem:
        logger.error("%s: building it again from the batches", problem)
        return None


def _has_indexes(base: int, sizes: dict[str, int]) -> bool:
    index_bytes = sizes.get(f"{base:020d}{names.OFFSET_INDEX}")
    time_bytes = sizes.get(f"{base:020d}{names.TIME_INDEX}")
    return index_bytes is not None and time_bytes is not None and not index_bytes % 8 and not time_bytes % 12


def _segment(opening: Opening, base: int, sizes: dict[str, int]) -> Segment:
    stem = f"{base:020d}"
    return Segment(
        opening.fs,
        opening.directory,
        base,
        created_ms=opening.clock.now_ms(),
        log_bytes=sizes[stem + names.LOG],
        offset_index_bytes=sizes.get(stem + names.OFFSET_INDEX, 0),
        time_index_bytes=sizes.get(stem + names.TIME_INDEX, 0),
        transaction_index_bytes=sizes.get(stem + names.TRANSACTION_INDEX, 0),
    )


def _finish_interrupted(fs: FileSystem, directory: str, sizes: dict[str, int]) -> None:
    """Completes what a crash interrupted: deletions, and compaction's replacement of segments.

    Compaction writes `.cleaned` files, renames them to `.swap` when they are complete and synced, removes the
    segments they replace, and drops the suffix. So a `.cleaned` file is discarded and a `.swap` file is
    complete, unless a `.cleaned` file with the same or a lower offset remains: then the crash came during the renaming.
    """
    cleaned = [names.offset_of(name) for name in sizes if name.endswith(names.CLEANED)]
    first_cleaned = min((offset for offset in cleaned if offset is not None), default=2**63)
    swaps: list[str] = []
    for name in sizes:
        if name.endswith(names.SWAP) and (names.offset_of(name) or 0) < first_cleaned:
            swaps.append(name)
        elif name.endswith((names.DELETED, names.CLEANED, names.SWAP, ".tmp")):
            fs.remove(f"{directory}/{name}")
    swapped = sorted(name for name in swaps if name.endswith(names.LOG + names.SWAP))
    if swapped:
        first = names.offset_of(swapped[0]) or 0
        path = f"{directory}/{swapped[-1]}"
        after = names.offset_of(swapped[-1]) or 0
        for header in scan(fs.open(path), path, 0, sizes[swapped[-1]], check_crc=False):
            after = header.next_offset
        for name in sizes:
            offset = names.offset_of(name)
            replaced = offset is not None and first <= offset < after and name[20:] in names.SEGMENT_SUFFIXES
            if replaced:
                fs.remove(f"{directory}/{name}")
    if swaps:
        fs.sync_directory(directory)  # what is replaced must not come back beside what replaces it
    for name in swaps:
        logger.info("completing an interrupted compaction: %s/%s", directory, name)
        fs.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(names.SWAP)}")
