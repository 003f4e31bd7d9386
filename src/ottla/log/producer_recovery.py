"""What is known of a log's producers when it is opened: the newest usable snapshot, and the batches after it."""

import logging
from typing import Final

from ottla.errors import CorruptMessage, InvalidRecord
from ottla.log import names
from ottla.log.fs import FileSystem
from ottla.log.producer_state import ProducerState, decode_snapshot
from ottla.log.scan import InvalidBatch, find_batch, scan
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.records.control import decode_end_transaction

logger: Final = logging.getLogger(__name__)


def producer_state(
    fs: FileSystem,
    directory: str,
    segments: list[Segment],
    snapshots: list[int],
    log_start: int,
    end_offset: int,
) -> tuple[ProducerState, list[int]]:
    """The state at `end_offset`, from the newest usable snapshot and the batches after it; and the snapshots left.

    Producers that have been silent for too long are in it still: whoever opens the log knows how long that is.
    Snapshots that nothing needs are removed: they stand where segments begin, and one at the end of the log.
    Raises OSError.
    """
    state = ProducerState(log_start)
    usable: list[int] = []
    for offset in snapshots:
        if offset <= end_offset:
            usable.append(offset)
        else:
            remove_snapshot(fs, directory, offset)
    while usable and usable[-1] >= log_start:
        offset = usable[-1]
        path = names.segment_file(directory, offset, names.PRODUCER_SNAPSHOT)
        try:
            state.load(decode_snapshot(fs.read_bytes(path)), offset)
            break
        except CorruptMessage as problem:
            logger.warning("%s: %s; an older one is used", path, problem)
            remove_snapshot(fs, directory, usable.pop())
    if state.end_offset < end_offset:
        replay_producers(state, segments, end_offset)
    bases = {segment.base_offset for segment in segments}
    for offset in [offset for offset in usable[:-1] if offset not in bases]:
        remove_snapshot(fs, directory, offset)
        usable.remove(offset)
    return state, usable


def remove_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    try:
        fs.remove(names.segment_file(directory, offset, names.PRODUCER_SNAPSHOT))
    except FileNotFoundError:
        logger.debug("the snapshot at %d in %s was gone already", offset, directory)


def replay_producers(state: ProducerState, segments: list[Segment], end_offset: int) -> None:
    """Takes into `state` the batches from its `end_offset` to `end_offset`. Damaged stretches are passed over:
    a producer whose batches lie there is known by its later ones. Raises OSError."""
    start = state.end_offset
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following <= start or not segment.size or segment.base_offset >= end_offset:
            continue
        try:
            position = segment.position_of(start, blocking=True)
        except CorruptMessage:
            position = 0
        while position < segment.size:
            try:
                for header in scan(segment.file, segment.path, position, segment.size, check_crc=False):
                    if header.base_offset >= end_offset:
                        break
                    position = header.end_position
                    if header.producer_id >= 0 and header.last_offset >= start:
                        _replay(state, segment, header)
                break
            except InvalidBatch as problem:
                found = find_batch(segment.file, problem.position + 1, segment.size, min_offset=start)
                if found is None:
                    break
                position = found.position
    state.end_offset = end_offset


def _replay(state: ProducerState, segment: Segment, header: BatchHeader) -> None:
    if not header.is_control:
        state.add(header)
        return
    batch = segment.file.read(header.position, header.size_bytes)
    try:
        marker = decode_end_transaction(batch, header._replace(position=0))
    except (CorruptMessage, InvalidRecord) as problem:
        logger.error("%s at position %d: %s", segment.path, header.position, problem)
        return
    if marker is None:
        return
    completed = state.end_transaction(header, marker)
    if completed is None:
        return
    aborted = state.complete(completed)
    known = segment.transaction_index.entries()
    if aborted is not None and (not known or known[-1].last_offset < aborted.last_offset):
        segment.transaction_index.append(aborted)
