"""Segments with `preallocate` after a crash: the zeros behind their batches, which are neither damage nor batches."""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.ids import Offset
from ottla.log.fs import File
from ottla.log.scan import InvalidBatch, scan
from ottla.log.segment import Segment
from ottla.records.batch import HEADER_SIZE

logger: Final = logging.getLogger(__name__)

_CHUNK: Final = bytes(1 << 20)


def cut_preallocated(segments: Sequence[Segment], recovery_point: Offset) -> None:
    """Cut off the zeros that a crash has left at the end of segments. Raises OSError.

    Nothing below the recovery point is touched: zeros where something was synced are damage, which recovery reports.
    """
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].base_offset < recovery_point:
            continue  # cut when it was closed, and synced since
        if not is_zero(segment.file, max(segment.size - 1, 0), segment.size):
            continue
        position, end = _end_of_batches(segment)
        if end < recovery_point:
            continue
        if is_zero(segment.file, position, min(position + HEADER_SIZE, segment.size) if is_last else segment.size):
            logger.info("%s was preallocated; the last %d bytes of it, never written, are cut off",
                        segment.path, segment.size - position)  # fmt: skip
            segment.truncate_to_position(position)


def is_zero(file: File, start: int, end: int) -> bool:
    """Whether a part of a file has nothing but zeros, and is not empty. Raises OSError."""
    position = start
    while position < end:
        piece = bytes(file.read(position, min(len(_CHUNK), end - position)))
        if not piece or piece != (_CHUNK if len(piece) == len(_CHUNK) else bytes(len(piece))):
            return False
        position += len(piece)
    return end > start


def _end_of_batches(segment: Segment) -> tuple[int, int]:
    """The position and the offset at which a walk over the headers ends."""
    offset, position = segment.offset_index.last()
    if position >= segment.size or not _is_batch(segment, position):
        offset, position = segment.base_offset, 0
    end = offset
    try:
        for header in scan(segment.file, segment.path, position, segment.size, check_crc=False):
            position, end = header.end_position, header.next_offset
    except InvalidBatch as problem:
        position = problem.position
    return position, end


def _is_batch(segment: Segment, position: int) -> bool:
    try:
        return next(scan(segment.file, segment.path, position, segment.size, check_crc=False), None) is not None
    except InvalidBatch:
        return False
