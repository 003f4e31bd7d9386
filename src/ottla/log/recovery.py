"""Opening a partition's directory: what survives a crash.

After a clean shutdown nothing is scanned but the few batches behind the last index entry. After any other one:

- Below the recovery point everything was synced. It is not read again (the indexes' unsynced parts are completed from
  batch headers), and nothing of it is ever cut off: a corrupt batch there is reported with file and position and stays,
  and its readers get CORRUPT_MESSAGE.
- From the recovery point on every batch is checked. At the first torn or corrupt one the log is cut: it and all
  that follows was never acknowledged as durable.

Producer state comes from the newest usable snapshot and the batches after it.
"""

import logging
from dataclasses import dataclass
from typing import Final

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import Offset, TopicId
from ottla.log import checkpoints, names
from ottla.log.fs import FileSystem
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.producer_recovery import note_aborted, producer_state, remove_snapshot
from ottla.log.producer_state import ProducerState
from ottla.log.scan import InvalidBatch, find_batch, scan
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.time_index import TimestampOffset
from ottla.records.batch import NO_TIMESTAMP, BatchHeader

logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLog:
    """What a partition's directory holds."""

    segments: list[Segment]
    end_offset: Offset
    log_start_offset: Offset
    recovery_point: Offset
    leader_epochs: LeaderEpochs
    producer_state: ProducerState
    snapshots: list[int]
    """Offsets of the snapshot files, ascending."""
    topic_id: TopicId | None
    changed: bool
    """Whether anything was created, repaired or cut."""


def load(
    fs: FileSystem,
    directory: str,
    config: LogConfig,
    clock: Clock,
    *,
    recovery_point: Offset,
    log_start_offset: Offset,
    clean_shutdown: bool,
) -> LoadedLog:
    """Opens the directory, which exists; no descriptor is left open. Raises OSError, and KafkaStorageError for a
    malformed partition.metadata."""
    loader = _Loader(fs, directory, config, clock, recovery_point, log_start_offset, clean_shutdown)
    return loader.load()


class _Loader:
    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        clock: Clock,
        recovery_point: Offset,
        log_start_offset: Offset,
        clean_shutdown: bool,
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.config = config
        self.clock = clock
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.clean = clean_shutdown
        self.changed = False
        self.last_bases = (-1, -1)
        """Base offsets of the last two batches that recovery has taken."""
        self.ends_damaged = False
        self.epochs_lost = False
        self.snapshots: list[int] = []
        self.without_index: set[int] = set()
        self.topic_id: TopicId | None = None
        self.epochs = LeaderEpochs()

    def load(self) -> LoadedLog:
        segments = self._find_segments()
        if not segments:
            segments = [self._create(self.log_start_offset)]
        for segment in segments:
            if segment.base_offset in self.without_index and segment.size:
                logger.warning("%s has no index; building it again", segment.path)
                self._reindex(segment)
        self._drop_strays(segments)
        end_offset = self._end_offset_after_clean_shutdown(segments[-1]) if self.clean else None
        if end_offset is None:
            end_offset = self._recover(segments)
        if end_offset < self.log_start_offset:
            logger.error(
                "%s ends at offset %d, before its log start offset %d: its segments are removed",
                self.directory, end_offset, self.log_start_offset,
            )  # fmt: skip
            for segment in segments:
                self._remove(segment)
            segments[:] = [self._create(self.log_start_offset)]
            end_offset = self.log_start_offset
            self.epochs.clear()
        log_start = Offset(max(self.log_start_offset, segments[0].base_offset))
        if not self.clean and not self.config.compact:
            log_start = self._start_after_gaps(segments, log_start)
        if self.epochs_lost:
            self._rebuild_epochs(segments)
        if not self.clean or end_offset < self.recovery_point:
            self.epochs.truncate_end(end_offset)
        self.epochs.truncate_start(log_start)
        if not self.clean:  # later ones may be of a past that was truncated away: nothing that is not synced is sure
            while self.snapshots and self.snapshots[-1] > self.recovery_point:
                remove_snapshot(self.fs, self.directory, self.snapshots.pop())
        if self.clean and not self.snapshots:
            state = ProducerState(end_offset)  # as Kafka: a clean log without snapshots has no producers to speak of
        else:
            state, self.snapshots, aborted = producer_state(
                self.fs, self.directory, segments, self.snapshots, log_start, end_offset
            )
            note_aborted(aborted)
        recovery_point = end_offset if self.clean and not self.changed else min(self.recovery_point, end_offset)
        for segment in segments:
            segment.release()
        return LoadedLog(
            segments,
            Offset(end_offset),
            log_start,
            Offset(max(recovery_point, log_start)),
            self.epochs,
            state,
            self.snapshots,
            self.topic_id,
            self.changed,
        )

    # --- files -------------------------------------------------------------------------------------------------

    def _find_segments(self) -> list[Segment]:
        sizes = {name: size for name, is_directory, size in self.fs.names(self.directory) if not is_directory}
        if any(name.endswith((names.DELETED, names.CLEANED, names.SWAP, ".tmp")) for name in sizes):
            self._finish_interrupted(sizes)
            sizes = {name: size for name, is_directory, size in self.fs.names(self.directory) if not is_directory}
        bases: list[int] = []
        indexes: list[str] = []
        for name in sizes:
            suffix = name[20:]
            if suffix == names.LOG:
                base = names.offset_of(name)
                if base is not None:
                    bases.append(base)
            elif suffix == names.PRODUCER_SNAPSHOT:
                offset = names.offset_of(name)
                if offset is not None:
                    self.snapshots.append(offset)
            elif suffix in names.SEGMENT_SUFFIXES:
                indexes.append(name)
            elif name == names.LEADER_EPOCHS:
                self._read_epochs(f"{self.directory}/{name}")
            elif name == names.PARTITION_METADATA:
                self.topic_id = checkpoints.read_partition_metadata(self.fs, f"{self.directory}/{name}")
        bases.sort()
        self.snapshots.sort()
        for name in indexes:
            if name[:20] + names.LOG not in sizes:
                logger.warning("%s/%s belongs to no segment and is removed", self.directory, name)
                self.fs.remove(f"{self.directory}/{name}")
        return [self._segment(base, sizes) for base in bases]

    def _read_epochs(self, path: str) -> None:
        try:
            self.epochs = LeaderEpochs(checkpoints.read_epochs(self.fs, path))
        except KafkaStorageError as problem:
            logger.error("%s: building it again from the batches", problem)
            self.epochs_lost = True

    def _segment(self, base: int, sizes: dict[str, int]) -> Segment:
        stem = f"{base:020d}"
        index_bytes = sizes.get(stem + names.OFFSET_INDEX)
        time_bytes = sizes.get(stem + names.TIME_INDEX)
        if index_bytes is None or time_bytes is None or index_bytes % 8 or time_bytes % 12:
            self.without_index.add(base)
        return Segment(
            self.fs,
            self.directory,
            base,
            created_ms=self.clock.now_ms(),
            log_bytes=sizes[stem + names.LOG],
            offset_index_bytes=index_bytes or 0,
            time_index_bytes=time_bytes or 0,
            transaction_index_bytes=sizes.get(stem + names.TRANSACTION_INDEX, 0),
        )

    def _create(self, base: int) -> Segment:
        self.changed = True
        return Segment.create(self.fs, self.directory, base, created_ms=self.clock.now_ms())

    def _remove(self, segment: Segment) -> None:
        self.changed = True
        for path in segment.file_paths():
            self._remove_file(path)
        segment.release()

    def _remove_file(self, path: str) -> None:
        try:
            self.fs.remove(path)
        except FileNotFoundError:
            logger.debug("%s was gone already", path)

    def _finish_interrupted(self, sizes: dict[str, int]) -> None:
        """Completes what a crash interrupted: deletions, and compaction's replacement of segments.

        Compaction writes `.cleaned` files, renames them to `.swap` when they are complete and synced, removes the
        segments they replace, and drops the suffix. So `.cleaned` is worth nothing and `.swap` is worth all, unless
        a `.cleaned` with no greater offset says that the renaming to `.swap` itself was cut short.
        """
        self.changed = True
        cleaned = [names.offset_of(name) for name in sizes if name.endswith(names.CLEANED)]
        first_cleaned = min((offset for offset in cleaned if offset is not None), default=2**63)
        swaps: list[str] = []
        for name in sizes:
            if name.endswith(names.SWAP) and (names.offset_of(name) or 0) < first_cleaned:
                swaps.append(name)
            elif name.endswith((names.DELETED, names.CLEANED, names.SWAP, ".tmp")):
                self.fs.remove(f"{self.directory}/{name}")
        swapped = sorted(name for name in swaps if name.endswith(names.LOG + names.SWAP))
        if swapped:
            first = names.offset_of(swapped[0]) or 0
            path = f"{self.directory}/{swapped[-1]}"
            after = names.offset_of(swapped[-1]) or 0
            for header in scan(self.fs.open(path), path, 0, sizes[swapped[-1]], check_crc=False):
                after = header.next_offset
            for name in sizes:
                offset = names.offset_of(name)
                replaced = offset is not None and first <= offset < after and name[20:] in names.SEGMENT_SUFFIXES
                if replaced:
                    self.fs.remove(f"{self.directory}/{name}")
        if swaps:
            self.fs.sync_directory(self.directory)  # what is replaced must not come back beside what replaces it
        for name in swaps:
            logger.info("completing an interrupted compaction: %s/%s", self.directory, name)
            self.fs.rename(f"{self.directory}/{name}", f"{self.directory}/{name.removesuffix(names.SWAP)}")

    # --- the end of the log ------------------------------------------------------------------------------------

    def _end_offset_after_clean_shutdown(self, segment: Segment) -> int | None:
        """The offset after the last batch; None if the segment does not end cleanly after all."""
        try:
            end = end_of(segment)
        except InvalidBatch as problem:
            logger.error("%s although it was shut down cleanly; recovering", problem)
            return None
        if end < self.recovery_point:
            logger.error(
                "%s ends at offset %d although it was synced up to %d: what lay between is lost",
                segment.path, end, self.recovery_point,
            )  # fmt: skip
        return end

    def _drop_strays(self, segments: list[Segment]) -> None:
        """A roll that failed on a full disk may have left an empty segment, and the one before may have grown on."""
        for number in range(len(segments) - 1, 0, -1):
            segment = segments[number]
            if segment.size:
                continue
            if self._goes_past(segments[number - 1], segment.base_offset):
                logger.warning("%s is empty and begins before the end of the one before; it is removed", segment.path)
                self._remove(segments.pop(number))

    def _goes_past(self, segment: Segment, offset: int) -> bool:
        """Whether intact batches without a gap lead past this offset. A header alone is not believed: a flipped bit
        in it must not cost what lies behind."""
        indexed, position = segment.offset_index.last()  # the last offset of the batch there, or the segment's first
        end = -1
        try:
            for header in scan(segment.file, segment.path, position, segment.size, check_crc=True):
                if header.base_offset > indexed if end < 0 else header.base_offset != end:
                    return False
                end = header.next_offset
        except InvalidBatch:
            return False  # recovery will tell, or its readers
        return end > offset

    def _recover(self, segments: list[Segment]) -> int:
        """Checks all from the recovery point on, cuts at the first damage, completes the indexes; the end offset."""
        self.changed = True
        number = 0
        while number + 1 < len(segments) and segments[number + 1].base_offset <= self.recovery_point:
            number += 1
        begins = segments[number].base_offset
        if number and begins >= self.recovery_point and self._goes_past(segments[number - 1], begins):
            self._drop_from(
                segments, number
            )  # nothing in it was synced; what was is not doubted for what a header says
            number -= 1
        end = segments[number].base_offset
        self.epochs.truncate_end(self.recovery_point)
        while number < len(segments):
            segment = segments[number]
            if self._does_not_follow(segment, end):
                self._drop_from(segments, number)
                break
            self.ends_damaged = False
            end, whole = self._recover_segment(segment)
            number += 1
            if not whole:
                self._drop_from(segments, number)
        if self.ends_damaged and segments[-1].base_offset < end:
            segments.append(self._create(end))
        if end < self.recovery_point:
            logger.error(
                "%s ends at offset %d although it was synced up to %d: what lay between is lost",
                self.directory, end, self.recovery_point,
            )  # fmt: skip
        return end

    def _does_not_follow(self, segment: Segment, end: int) -> bool:
        """Whether a segment past the recovery point is none of the log that ends at `end`.

        One that begins earlier was removed by a truncation that was not synced, and is back since the crash. One that
        begins later has outlived the end of the segment before it, unless compaction has made the gap.
        """
        if segment.base_offset <= end:
            return segment.base_offset < end
        return end >= self.recovery_point and not self.config.compact

    def _drop_from(self, segments: list[Segment], number: int) -> None:
        for segment in segments[number:]:
            logger.warning("%s does not continue the log and is removed", segment.path)
            self._remove(segment)
        del segments[number:]

    def _recover_segment(self, segment: Segment) -> tuple[int, bool]:
        """End offset of the segment after repair, and whether all of it could be kept."""
        builder = _IndexBuilder(segment, self.config.index_interval_bytes)
        self.last_bases = (segment.base_offset - 1,) * 2
        position, end = self._walk_synced(segment, builder)
        whole = True
        checked_from = position
        while whole and position < segment.size:
            try:
                for header in scan(segment.file, segment.path, position, segment.size, check_crc=True):
                    if not end <= header.base_offset <= segment.base_offset + MAX_RELATIVE_OFFSET:
                        raise _out_of_order(segment, header, end)
                    if header.base_offset > end >= self.recovery_point and not self.config.compact:
                        raise _out_of_order(segment, header, end)  # no checksum covers it, but only compaction skips
                    if header.base_offset >= self.recovery_point and header.leader_epoch < self.epochs.latest:
                        raise InvalidBatch(  # nor this, but leader epochs only grow
                            segment.path,
                            header.position,
                            f"its leader epoch is {header.leader_epoch} after {self.epochs.latest}",
                        )
                    builder.add(header)
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                    position, end = header.end_position, header.next_offset
                    self.last_bases = (self.last_bases[1], header.base_offset)
            except InvalidBatch as problem:
                synced = self._find_synced(segment, problem.position, end)
                if synced is not None and (synced.position > problem.position or synced.base_offset < end):
                    logger.error("%s, below the recovery point %d: kept", problem, self.recovery_point)
                    checked_from = position = synced.position
                    end = synced.base_offset
                    continue
                if end < self.recovery_point:
                    logger.error("%s, below the recovery point: the log goes on in a new segment", problem)
                    self.ends_damaged = True
                    position = checked_from = segment.size
                    end = self.recovery_point
                    break
                whole = False
                lost = segment.size - position
                logger.warning("%s; %d bytes past the recovery point, never acknowledged, are cut off", problem, lost)
                segment.truncate_to_position(position)
                segment.file.sync()  # or the next crash brings it back, behind a recovery point perhaps
        segment.mark_checked(checked_from, position)
        segment.transaction_index.truncate_before(end)
        builder.finish()
        return end, whole

    def _walk_synced(self, segment: Segment, builder: "_IndexBuilder") -> tuple[int, int]:
        """Position and offset up to which the segment holds what was synced; indexes it up to there.

        Only batches behind the last index entry that can be trusted are looked at, and only their headers.
        """
        target = self.recovery_point
        trusted: list[tuple[int, int]] = []
        previous = (segment.base_offset - 1, 0)
        for entry in segment.offset_index.entries():
            if entry[0] <= previous[0] or entry[1] <= previous[1] or entry[0] >= target or entry[1] >= segment.size:
                break
            previous = entry
            trusted.append(entry)
        while trusted and not self._begins_batch(segment, *trusted[-1]):
            trusted.pop()
        segment.offset_index.truncate_to_entries(len(trusted))
        last_kept, position = trusted[-1] if trusted else (segment.base_offset - 1, 0)
        segment.trim_time_index(last_kept)
        builder.begin()
        end = segment.base_offset
        while position < segment.size:
            try:
                for header in scan(segment.file, segment.path, position, segment.size, check_crc=False):
                    if header.base_offset >= target:
                        return position, end
                    if header.base_offset < end:
                        raise _out_of_order(segment, header, end)
                    builder.add(header)
                    position, end = header.end_position, header.next_offset
                    self.last_bases = (self.last_bases[1], header.base_offset)
            except InvalidBatch as problem:
                if end >= target:
                    return position, end
                logger.error("%s, below the recovery point %d: kept, its readers get CORRUPT_MESSAGE", problem, target)
                found = find_batch(segment.file, problem.position + 1, segment.size, min_offset=end)
                if found is None:
                    logger.error("%s has nothing intact behind that; the log goes on in a new segment", segment.path)
                    self.ends_damaged = True
                    return segment.size, target
                position = found.position
        return position, end

    def _find_synced(self, segment: Segment, position: int, end: int) -> BatchHeader | None:
        """An intact batch from `position` on that was synced: then damage to a header only seems to end the log.

        Either to the one at `position`, or to the last one that was taken, which claims offsets past the recovery point
        that it has not. A batch that begins before the last but one is none: a torn write may have left it without its
        base offset, which lies outside its CRC.
        """
        if end < self.recovery_point:
            found = find_batch(segment.file, position + 1, segment.size, min_offset=end)
            highest = segment.base_offset + MAX_RELATIVE_OFFSET
            return found if found is not None and found.base_offset <= highest else None
        if end == self.recovery_point:
            return None
        found = find_batch(segment.file, position, segment.size, min_offset=self.last_bases[0] + 1)
        return found if found is not None and found.base_offset < self.recovery_point else None

    def _begins_batch(self, segment: Segment, offset: int, position: int) -> bool:
        try:
            header = next(scan(segment.file, segment.path, position, segment.size, check_crc=False))
        except (InvalidBatch, StopIteration):
            return False
        return header.base_offset <= offset

    def _start_after_gaps(self, segments: list[Segment], log_start: Offset) -> Offset:
        """Retention removes from the oldest on. Where a crash has brought back some of what it removed, but not all,
        the log begins behind the last segment that is missing."""
        for number in range(len(segments) - 1, 0, -1):
            base = segments[number].base_offset
            if base <= log_start:
                break
            try:
                if end_of(segments[number - 1]) < base:
                    return Offset(base)
            except InvalidBatch:
                continue  # reported already, or to be found by its readers
        return log_start

    def _rebuild_epochs(self, segments: list[Segment]) -> None:
        self.epochs.clear()
        for segment in segments:
            try:
                for header in scan(segment.file, segment.path, 0, segment.size, check_crc=False):
                    self.epochs.assign(header.leader_epoch, header.base_offset)
            except InvalidBatch as problem:
                logger.error("%s; epochs that begin behind it in the segment are not known", problem)
        self.epochs.dirty = True

    def _reindex(self, segment: Segment) -> None:
        """Builds the indexes of a segment from its batches' headers."""
        self.changed = True
        segment.offset_index.truncate_to_entries(0)
        segment.time_index.truncate_to_entries(0)
        builder = _IndexBuilder(segment, self.config.index_interval_bytes)
        builder.begin()
        end = segment.base_offset
        try:
            for header in scan(segment.file, segment.path, 0, segment.size, check_crc=False):
                if not end <= header.base_offset <= segment.base_offset + MAX_RELATIVE_OFFSET:
                    raise _out_of_order(segment, header, end)
                builder.add(header)
                end = header.next_offset
        except InvalidBatch as problem:
            logger.error("%s; its index ends there", problem)
        builder.finish()
        for index in (segment.offset_index, segment.time_index):
            if not self.fs.exists(index.path):
                self.fs.write_bytes(index.path, b"", sync=False)


def end_of(segment: Segment) -> int:
    """The offset after the last batch of a segment; notes its largest timestamp too. Raises InvalidBatch, OSError."""
    end = segment.base_offset
    if segment.size:
        latest = segment.time_index.last()
        position = segment.offset_index.last()[1]
        for header in scan(segment.file, segment.path, position, segment.size, check_crc=False):
            end = header.next_offset
            if header.max_timestamp > latest.timestamp_ms:
                latest = TimestampOffset(header.max_timestamp, header.last_offset)
        segment.note_max_timestamp(latest)
    return end


def _out_of_order(segment: Segment, header: BatchHeader, end: int) -> InvalidBatch:
    return InvalidBatch(segment.path, header.position, f"it begins at offset {header.base_offset} after {end}")


class _IndexBuilder:
    """Adds index entries for batches in turn, by the rules of an append."""

    __slots__ = ("_interval", "_max", "_since", "segment")

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self.segment = segment
        self._interval = interval_bytes
        self._since = 0
        self._max = TimestampOffset(NO_TIMESTAMP, segment.base_offset)

    def begin(self) -> None:
        """Goes on from what the time index has."""
        self._max = self.segment.time_index.last()

    def add(self, header: BatchHeader) -> None:
        if header.max_timestamp > self._max.timestamp_ms:
            self._max = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._since > self._interval:
            self.segment.offset_index.append(header.last_offset, header.position)
            self.segment.time_index.append(*self._max)
            self._since = 0
        self._since += header.size_bytes

    def finish(self) -> None:
        self.segment.note_max_timestamp(self._max)
        self.segment.finish()
