"""Bringing one segment in order after a crash: what of it was synced stays, what is damaged behind that goes, and the
indexes are completed."""

import logging
from typing import Final, NamedTuple

from ottla.log.found_files import Opening
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.scan import InvalidBatch, find_batch, scan
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.time_index import TimestampOffset
from ottla.records.batch import NO_TIMESTAMP, BatchHeader

logger: Final = logging.getLogger(__name__)


class RecoveredSegment(NamedTuple):
    """A segment after its repair."""

    end_offset: int
    is_whole: bool
    """Whether all of it could be kept."""
    ends_damaged: bool
    """Whether its last batches were synced and are damaged: nothing may be appended behind them."""


class _Synced(NamedTuple):
    """How far a segment holds what was synced."""

    position: int
    end_offset: int
    last_bases: tuple[int, int]
    """Base offsets of the last two batches up to there."""
    ends_damaged: bool = False


def recover_segment(opening: Opening, segment: Segment, epochs: LeaderEpochs) -> RecoveredSegment:
    """Checks the segment from the recovery point on, cuts it at the first damage, completes its indexes and the epochs
    that begin in it. Raises OSError."""
    builder = _IndexBuilder(segment, opening.config.index_interval_bytes)
    recovery_point = opening.recovery_point
    position, end, last_bases, ends_damaged = _walk_synced(segment, builder, recovery_point)
    whole = True
    checked_from = position
    while whole and position < segment.size:
        try:
            for header in scan(segment.file, segment.path, position, segment.size, check_crc=True):
                if not end <= header.base_offset <= segment.base_offset + MAX_RELATIVE_OFFSET:
                    raise _out_of_order(segment, header, end)
                if header.base_offset > end >= recovery_point and not opening.config.compact:
                    raise _out_of_order(segment, header, end)  # no checksum covers it, but only compaction skips
                if header.base_offset >= recovery_point and header.leader_epoch < epochs.latest:
                    raise InvalidBatch(  # nor this, but leader epochs only grow
                        segment.path,
                        header.position,
                        f"its leader epoch is {header.leader_epoch} after {epochs.latest}",
                    )
                builder.add(header)
                epochs.assign_batch(header.leader_epoch, max(end, recovery_point), header.base_offset)
                position, end = header.end_position, header.next_offset
                last_bases = (last_bases[1], header.base_offset)
        except InvalidBatch as problem:
            synced = _find_synced(segment, problem.position, end, recovery_point, last_bases)
            if synced is not None and (synced.position > problem.position or synced.base_offset < end):
                logger.error("%s, below the recovery point %d: kept", problem, recovery_point)
                checked_from = position = synced.position
                end = synced.base_offset
                continue
            if end < recovery_point:
                logger.error("%s, below the recovery point: the log goes on in a new segment", problem)
                ends_damaged = True
                position = checked_from = segment.size
                end = recovery_point
                break
            whole = False
            lost = segment.size - position
            logger.warning("%s; %d bytes past the recovery point, never acknowledged, are cut off", problem, lost)
            segment.truncate_to_position(position)
            segment.file.sync()  # or the next crash brings it back, behind a recovery point perhaps
    segment.mark_checked(checked_from, position)
    segment.transaction_index.truncate_before(end)
    builder.finish()
    return RecoveredSegment(end, whole, ends_damaged)


def _walk_synced(segment: Segment, builder: "_IndexBuilder", target: int) -> _Synced:
    """How far the segment holds what was synced, which is all below `target`; indexes it up to there.

    Only batches behind the last index entry that can be trusted are looked at, and only their headers.
    """
    trusted: list[tuple[int, int]] = []
    previous = (segment.base_offset - 1, 0)
    for entry in segment.offset_index.entries():
        if entry[0] <= previous[0] or entry[1] <= previous[1] or entry[0] >= target or entry[1] >= segment.size:
            break
        previous = entry
        trusted.append(entry)
    while trusted and not _begins_batch(segment, *trusted[-1]):
        trusted.pop()
    segment.offset_index.truncate_to_entries(len(trusted))
    last_kept, position = trusted[-1] if trusted else (segment.base_offset - 1, 0)
    segment.trim_time_index(last_kept)
    builder.begin()
    end = segment.base_offset
    last: BatchHeader | None = None
    last_bases = (end - 1, end - 1)
    while position < segment.size:
        try:
            for header in scan(segment.file, segment.path, position, segment.size, check_crc=False):
                if header.base_offset >= target:
                    return _Synced(position, end, last_bases)
                if header.base_offset < end:
                    raise _out_of_order(segment, header, end)
                last = header
                builder.add(header)
                position, end = header.end_position, header.next_offset
                last_bases = (last_bases[1], header.base_offset)
        except InvalidBatch as problem:
            if end >= target:
                return _Synced(position, end, last_bases)
            logger.error("%s, below the recovery point %d: kept, its readers get CORRUPT_MESSAGE", problem, target)
            found = find_batch(segment.file, problem.position + 1, segment.size, min_offset=end)
            if found is None:
                logger.error("%s has nothing intact behind that; the log goes on in a new segment", segment.path)
                return _Synced(segment.size, target, last_bases, ends_damaged=True)
            position = found.position
    if last is not None and end > target and not _is_intact(segment, last):
        logger.error(
            "%s: its last batch, at position %d, is damaged: kept, its readers get CORRUPT_MESSAGE; "
            "the log goes on in a new segment",
            segment.path,
            last.position,
        )
        return _Synced(segment.size, target, last_bases, ends_damaged=True)
    return _Synced(position, end, last_bases)


def _find_synced(
    segment: Segment, position: int, end: int, recovery_point: int, last_bases: tuple[int, int]
) -> BatchHeader | None:
    """An intact batch from `position` on that was synced: then damage to a header only seems to end the log.

    Either to the one at `position`, or to the last one that was taken, which claims offsets past the recovery point
    that it has not. A batch that begins before the last but one is none: a torn write may have left it without its
    base offset, which lies outside its CRC.
    """
    if end < recovery_point:
        found = find_batch(segment.file, position + 1, segment.size, min_offset=end)
        highest = segment.base_offset + MAX_RELATIVE_OFFSET
        return found if found is not None and found.base_offset <= highest else None
    if end == recovery_point:
        return None
    found = find_batch(segment.file, position, segment.size, min_offset=last_bases[0] + 1)
    return found if found is not None and found.base_offset < recovery_point else None


def _begins_batch(segment: Segment, offset: int, position: int) -> bool:
    try:
        header = next(scan(segment.file, segment.path, position, segment.size, check_crc=False))
    except (InvalidBatch, StopIteration):
        return False
    return header.base_offset <= offset


def reindex(opening: Opening, segment: Segment) -> None:
    """Builds the indexes of a segment from its batches' headers. Raises OSError."""
    segment.offset_index.truncate_to_entries(0)
    segment.time_index.truncate_to_entries(0)
    builder = _IndexBuilder(segment, opening.config.index_interval_bytes)
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
        if not opening.fs.exists(index.path):
            opening.fs.write_bytes(index.path, b"", sync=False)


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


def is_end_certain(segment: Segment, end: int) -> bool:
    """Whether the segment really has no batch from `end` on, as `end_of` found: its last batches are intact and in
    order, and no entry of its index lies behind them. A flipped bit in a base offset, which no checksum covers, can
    make a segment seem to end early. Raises OSError."""
    if not segment.size:
        return True
    indexed, position = segment.offset_index.last()
    following = segment.base_offset
    try:
        for header in scan(segment.file, segment.path, position, segment.size, check_crc=True):
            if header.base_offset < following:
                return False
            following = header.next_offset
    except InvalidBatch:
        return False
    return indexed < end


def _is_intact(segment: Segment, header: BatchHeader) -> bool:
    """Whether the batch has the checksum in its header."""
    try:
        return any(scan(segment.file, segment.path, header.position, header.end_position, check_crc=True))
    except InvalidBatch:
        return False


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
