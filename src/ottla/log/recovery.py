"""Opening a partition's directory: what survives a crash.

After a clean shutdown nothing is scanned but the few batches behind the last index entry. After any other one:

- Below the recovery point everything was synced. It is not read again (the indexes' unsynced parts are completed from
  batch headers), and nothing of it is ever cut off: a corrupt batch there is reported with file and position and stays,
  and its readers get CORRUPT_MESSAGE. A segment that ends at the recovery point may have been closed since the sync: it
  is cut again, and its indexes are completed.
- From the recovery point on every batch is checked. At the first torn or corrupt one the log is cut: it and all
  that follows was never acknowledged as durable.

Producer state comes from the newest usable snapshot and the batches after it. The indexes of aborted transactions are
completed from there on too, or from the snapshot before if the newest is at the recovery point.
"""

import logging
from dataclasses import dataclass
from typing import Final

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.ids import Offset, TopicId
from ottla.log.found_files import FoundFiles, Opening, find_files, read_epochs
from ottla.log.fs import FileSystem
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.preallocated import cut_preallocated
from ottla.log.producer_recovery import note_aborted, producer_state, remove_snapshot
from ottla.log.producer_state import ProducerState
from ottla.log.scan import InvalidBatch, scan
from ottla.log.segment import Segment
from ottla.log.segment_recovery import end_of, is_end_certain, recover_segment, reindex

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
    may_be_planned: bool = False,
) -> LoadedLog:
    """Opens the directory, which exists; no descriptor is left open. Where nothing was ever written to the log, its
    segment `may_be_planned`.

    Raises OSError, and KafkaStorageError for a malformed partition.metadata.
    """
    opening = Opening(fs, directory, config, clock, recovery_point, log_start_offset, clean_shutdown)
    found = find_files(opening)
    if may_be_planned and not (
        found.segments or found.snapshots or found.changed or recovery_point > 0 or log_start_offset
    ):
        return _never_written(opening, found.topic_id)
    segments, repaired = _usable_segments(opening, found)
    known = read_epochs(opening) if found.has_epochs else LeaderEpochs()
    epochs = LeaderEpochs() if known is None else known
    segments, end_offset, cut = _up_to_the_end(opening, segments, epochs)
    changed = found.changed or repaired or cut
    log_start = Offset(max(log_start_offset, segments[0].base_offset))
    if not clean_shutdown and not config.compact:
        log_start = _start_after_gaps(segments, log_start)
    if known is None:
        epochs = _epochs_of(segments)
    if not clean_shutdown or end_offset < recovery_point:
        epochs.truncate_end(end_offset)
    epochs.truncate_start(log_start)
    state, snapshots = _producers(opening, found.snapshots, segments, log_start, end_offset)
    synced = end_offset if clean_shutdown and not changed else min(recovery_point, end_offset)
    for segment in segments:
        segment.release()
    return LoadedLog(
        segments,
        Offset(end_offset),
        log_start,
        Offset(max(synced, segments[0].base_offset)),
        epochs,
        state,
        snapshots,
        found.topic_id,
        changed,
    )


def begin(fs: FileSystem, directory: str, config: LogConfig, clock: Clock) -> LoadedLog:
    """A new log in a new directory; its segment is planned."""
    return _never_written(Opening(fs, directory, config, clock, Offset(0), Offset(0), is_clean=True), None)


def _never_written(opening: Opening, topic_id: TopicId | None) -> LoadedLog:
    """A log without segments, whose first one is made when its first record comes."""
    begin = Offset(0)
    return LoadedLog(
        [opening.plan(begin)], begin, begin, begin, LeaderEpochs(), ProducerState(begin), [], topic_id, changed=False
    )


def _usable_segments(opening: Opening, found: FoundFiles) -> tuple[list[Segment], bool]:
    """The segments that are found, with indexes and without strays, at least one; whether anything was repaired."""
    segments = found.segments or [opening.create(opening.log_start_offset)]
    repaired = not found.segments
    for segment in found.without_index:
        if segment.size:
            logger.warning("%s has no index; building it again", segment.path)
            reindex(opening, segment)
            repaired = True
    cut_preallocated(segments, opening.recovery_point)
    kept = _without_strays(opening, segments)
    return kept, repaired or len(kept) < len(segments)


def _up_to_the_end(opening: Opening, segments: list[Segment], epochs: LeaderEpochs) -> tuple[list[Segment], int, bool]:
    """The segments of the log up to its end, the end offset, and whether anything was looked for, repaired or cut."""
    end_offset = _end_after_clean_shutdown(opening, segments[-1]) if opening.is_clean else None
    changed = end_offset is None
    if end_offset is None:
        segments, end_offset = _recover(opening, segments, epochs)
    if end_offset >= opening.log_start_offset:
        return segments, end_offset, changed
    logger.error(
        "%s ends at offset %d, before its log start offset %d: its segments are removed",
        opening.directory, end_offset, opening.log_start_offset,
    )  # fmt: skip
    for segment in segments:
        opening.remove(segment)
    epochs.clear()
    return [opening.create(opening.log_start_offset)], opening.log_start_offset, True


def _producers(
    opening: Opening, found: list[int], segments: list[Segment], log_start: Offset, end_offset: int
) -> tuple[ProducerState, list[int]]:
    """What is known of producers at the end of the log, and the snapshots that are left."""
    snapshots = list(found)
    if not opening.is_clean:  # later ones may be of a past that was truncated away: nothing that is not synced is sure
        while snapshots and snapshots[-1] > opening.recovery_point:
            remove_snapshot(opening.fs, opening.directory, snapshots.pop())
    if opening.is_clean and not snapshots:
        return ProducerState(end_offset), []  # as Kafka: a clean log without snapshots has no producers to speak of
    state, snapshots, aborted = producer_state(
        opening.fs, opening.directory, segments, snapshots, log_start, end_offset
    )
    point = opening.recovery_point
    if not opening.is_clean and snapshots and snapshots[-1] == point and state.has_markers:
        # The log may have been synced just before the snapshot was written. Then a power failure may have left the
        # snapshot, but not the index of the segment before, which only the next sync would have brought to the disk.
        _, earlier, before = producer_state(opening.fs, opening.directory, segments, snapshots[:-1], log_start, point)
        snapshots = [*earlier, point]
        aborted = before + aborted
    for segment, transaction in reversed(aborted):  # of each segment the first at last, and what is torn with it
        segment.transaction_index.truncate_before(transaction.last_offset)
    note_aborted(opening.fs, aborted)
    return state, snapshots


def _end_after_clean_shutdown(opening: Opening, segment: Segment) -> int | None:
    """The offset after the last batch; None if the segment does not end cleanly after all."""
    try:
        end = end_of(segment)
    except InvalidBatch as problem:
        logger.error("%s although it was shut down cleanly; recovering", problem)
        return None
    if end < opening.recovery_point:
        logger.error(
            "%s ends at offset %d although it was synced up to %d: what lay between is lost",
            segment.path, end, opening.recovery_point,
        )  # fmt: skip
    return end


def _without_strays(opening: Opening, found: list[Segment]) -> list[Segment]:
    """A roll that failed on a full disk may have left an empty segment, and the one before may have grown on."""
    segments = list(found)
    for number in range(len(segments) - 1, 0, -1):
        segment = segments[number]
        if segment.size:
            continue
        is_last = number + 1 == len(segments)
        # Compaction leaves gaps only below what is synced: an empty last segment that begins there was never used.
        may_skip = opening.config.compact and (not is_last or segment.base_offset < opening.recovery_point)
        if _goes_past(segments[number - 1], segment.base_offset, may_skip=may_skip):
            logger.warning("%s is empty and begins before the end of the one before; it is removed", segment.path)
            opening.remove(segments.pop(number))
    return segments


def _goes_past(segment: Segment, offset: int, *, may_skip: bool = False) -> bool:
    """Whether intact batches lead past this offset, without a gap unless they `may_skip` offsets. A header alone
    is not believed: a flipped bit in it must not cost what lies behind."""
    indexed, position = segment.offset_index.last()  # the last offset of the batch there, or the segment's first
    end = -1
    try:
        for header in scan(segment.file, segment.path, position, segment.size, check_crc=True):
            if not may_skip and (header.base_offset > indexed if end < 0 else header.base_offset != end):
                return False
            if header.base_offset < end:
                return False
            end = header.next_offset
    except InvalidBatch:
        pass  # recovery reports it, or readers do; what was intact before it counts, as behind a torn write
    return end > offset


def _recover(opening: Opening, found: list[Segment], epochs: LeaderEpochs) -> tuple[list[Segment], int]:
    """Checks all from the recovery point on, cuts at the first damage, completes the indexes; the segments that are
    left, and the end offset."""
    segments = list(found)
    number = 0
    while number + 1 < len(segments) and segments[number + 1].base_offset <= opening.recovery_point:
        number += 1
    begins = segments[number].base_offset
    if number and begins >= opening.recovery_point and _goes_past(segments[number - 1], begins - 1):
        # Nothing of the later one was synced since the roll: neither what was cut off the one before, nor its indexes.
        # Synced data is not doubted because of a header.
        number -= 1
    end = segments[number].base_offset
    ends_damaged = False
    epochs.truncate_end(opening.recovery_point)
    while number < len(segments):
        segment = segments[number]
        if _does_not_follow(opening, segment, end, is_last=number + 1 == len(segments)):
            _drop_from(opening, segments, number)
            break
        end, is_whole, ends_damaged = recover_segment(opening, segment, epochs)
        number += 1
        if not is_whole:
            _drop_from(opening, segments, number)
    if ends_damaged and segments[-1].base_offset < end:
        segments.append(opening.create(end))
    if end < opening.recovery_point:
        logger.error(
            "%s ends at offset %d although it was synced up to %d: what lay between is lost",
            opening.directory, end, opening.recovery_point,
        )  # fmt: skip
    return segments, end


def _does_not_follow(opening: Opening, segment: Segment, end: int, *, is_last: bool) -> bool:
    """Whether a segment past the recovery point is none of the log that ends at `end`.

    One that begins earlier was removed by a truncation that was not synced, and is back since the crash. One that
    begins later has outlived the end of the segment before it, unless compaction has made the gap. An empty last
    one proves no compaction: what is compacted lies below the recovery point.
    """
    if segment.base_offset <= end:
        return segment.base_offset < end
    may_be_compacted = opening.config.compact and not (is_last and not segment.size)
    return end >= opening.recovery_point and not may_be_compacted


def _drop_from(opening: Opening, segments: list[Segment], number: int) -> None:
    for segment in segments[number:]:
        logger.warning("%s does not continue the log and is removed", segment.path)
        opening.remove(segment)
    del segments[number:]


def _start_after_gaps(segments: list[Segment], log_start: Offset) -> Offset:
    """Retention removes from the oldest on. Where a crash has brought back some of what it removed, but not all,
    the log begins behind the last segment that is missing."""
    for number in range(len(segments) - 1, 0, -1):
        base = segments[number].base_offset
        if base <= log_start:
            break
        try:
            end = end_of(segments[number - 1])
            if end < base and is_end_certain(segments[number - 1], end):
                return Offset(base)
        except InvalidBatch:
            continue  # reported already, or to be found by its readers
    return log_start


def _epochs_of(segments: list[Segment]) -> LeaderEpochs:
    """The epochs that the batches say, where the checkpoint is damaged. Raises OSError."""
    epochs = LeaderEpochs()
    end = segments[0].base_offset
    for segment in segments:
        try:
            for header in scan(segment.file, segment.path, 0, segment.size, check_crc=False):
                epochs.assign_batch(header.leader_epoch, end, header.base_offset)
                end = header.next_offset
        except InvalidBatch as problem:
            logger.error("%s; epochs that begin behind it in the segment are not known", problem)
    epochs.dirty = True
    return epochs
