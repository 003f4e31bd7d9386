"""Offsets by timestamp, for ListOffsets. Reads and may wait for the disk; safe in any thread."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.ids import LeaderEpoch, Offset
from ottla.log.scan import scan
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader, is_intact
from ottla.records.record import Record, decode_records


class FoundOffset(NamedTuple):
    """A record's offset, its timestamp (ms), and the leader epoch in which it was written."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


def first_at_or_after(segments: Sequence[Segment], timestamp_ms: int, start_offset: int) -> FoundOffset | None:
    """The first record from `start_offset` on whose timestamp is at or after `timestamp_ms`; None if there is none.

    Raises CorruptMessage, OSError.
    """
    for number, segment in enumerate(segments):
        past = number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset
        if past or segment.max_timestamp().timestamp_ms < timestamp_ms:
            continue
        begin = max(segment.time_index.floor(timestamp_ms).offset, start_offset)
        position = segment.offset_index.floor(begin, blocking=True)[1]
        for header in scan(segment.file, segment.path, position, segment.size, check_crc=False):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for record in _records(segment, header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return _found(record, header)
    return None


def latest_timestamp(segments: Sequence[Segment], start_offset: int) -> FoundOffset | None:
    """The first record with the largest timestamp of all; None if no record has one. Raises CorruptMessage, OSError."""
    best = max(segments, key=lambda segment: segment.max_timestamp().timestamp_ms)
    timestamp_ms, offset = best.max_timestamp()
    if timestamp_ms < 0:
        return None
    position = best.offset_index.floor(offset, blocking=True)[1]
    for header in scan(best.file, best.path, position, best.size, check_crc=False):
        if header.max_timestamp == timestamp_ms and header.last_offset >= start_offset:
            for record in _records(best, header):
                if record.timestamp_ms == timestamp_ms and record.offset >= start_offset:
                    return _found(record, header)
    return None


def _records(segment: Segment, header: BatchHeader) -> "list[Record]":
    batch = segment.file.read(header.position, header.size_bytes)
    at_start = header._replace(position=0)
    if not is_intact(batch, at_start):
        raise segment.corrupt(header.position, "its CRC is wrong")
    return list(decode_records(batch, at_start))


def _found(record: Record, header: BatchHeader) -> FoundOffset:
    return FoundOffset(Offset(record.offset), record.timestamp_ms, LeaderEpoch(header.leader_epoch))
