"""Recovers the producer state of a log when it is opened, from the newest usable snapshot and the batches after it."""

import logging
import os
from collections import deque
from typing import Final

from ottla.errors import CorruptMessage, InvalidRecord
from ottla.log import names
from ottla.log.fs import FileSystem
from ottla.log.producer_state import REMEMBERED_BATCHES, ProducedBatch, ProducerState, decode_snapshot, produced
from ottla.log.scan import InvalidBatch, find_batch, scan
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import BatchHeader
from ottla.records.control import decode_end_transaction

logger: Final = logging.getLogger(__name__)

Aborted = list[tuple[Segment, AbortedTransaction]]
"""Aborted transactions, each with the segment that holds its marker; ascending."""

EARLIER_BYTES: Final = 128 * 1024
"""How far back the last batches of producers are searched, besides the snapshot."""


def producer_state(
    fs: FileSystem,
    directory: str,
    segments: list[Segment],
    snapshots: list[int],
    log_start: int,
    end_offset: int,
) -> tuple[ProducerState, list[int], Aborted]:
    """The state at `end_offset`, from the newest usable snapshot and the batches after it; the snapshots left; and the
    transactions aborted after the snapshot, for `note_aborted`.

    Producers that have been silent for too long are still included: the caller knows the limit.
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
            data = fs.read_bytes(path)
        except FileNotFoundError:  # removed by a load that was discarded, since the log was truncated again
            logger.info("%s is gone; an older one is used", path)
            usable.pop()
            continue
        try:
            state.load(decode_snapshot(data), offset)
            remember_earlier_batches(state, segments, offset)
            break
        except CorruptMessage as problem:
            logger.warning("%s: %s; an older one is used", path, problem)
            remove_snapshot(fs, directory, usable.pop())
    aborted = replay_producers(state, segments, end_offset) if state.end_offset < end_offset else []
    bases = {segment.base_offset for segment in segments}
    for offset in [offset for offset in usable[:-1] if offset not in bases]:
        remove_snapshot(fs, directory, offset)
        usable.remove(offset)
    return state, usable, aborted


def note_aborted(fs: FileSystem, aborted: Aborted) -> None:
    """Adds to the segments' indexes those that a crash has kept from them, and syncs these: the log may have been
    synced far beyond, and a later recovery begins there. Raises OSError, CorruptMessage."""
    mended: dict[str, TransactionIndex] = {}
    for segment, transaction in aborted:
        index = segment.transaction_index
        known = index.entries()
        if not known or known[-1].last_offset < transaction.last_offset:
            index.append(transaction)
            mended[index.path] = index
    for index in mended.values():
        index.sync()
    for directory in {os.path.dirname(path) for path in mended}:
        fs.sync_directory(directory)


def remove_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    try:
        fs.remove(names.segment_file(directory, offset, names.PRODUCER_SNAPSHOT))
    except FileNotFoundError:
        logger.debug("the snapshot at %d in %s was gone already", offset, directory)


def remember_earlier_batches(state: ProducerState, segments: list[Segment], offset: int) -> None:
    """Adds the batches shortly before `offset` to the state of a snapshot at `offset`.

    A snapshot keeps only the last batch of each producer. But a client that lost its connection sends all
    unacknowledged batches again, and fails for good (OUT_OF_ORDER_SEQUENCE_NUMBER) if an earlier one is not recognized
    as a
    duplicate: after a clean restart, in Kafka. Raises OSError.
    """
    if not any(entry.batches for entry in state.producers.values()):
        return
    batches: dict[int, deque[ProducedBatch]] = {}
    for segment, start, end in _stretches_before(segments, offset):
        try:
            for header in scan(segment.file, segment.path, start, end, check_crc=False):
                entry = state.producers.get(header.producer_id)
                if entry is not None and header.producer_epoch == entry.epoch and header.base_sequence >= 0:
                    batches.setdefault(entry.producer_id, deque(maxlen=REMEMBERED_BATCHES)).append(produced(header))
        except InvalidBatch as problem:
            logger.warning("%s: what stands there is not known if it is sent again", problem)
            return
    for producer_id, found in batches.items():
        entry = state.producers[producer_id]
        if entry.batches and entry.batches[-1].last_offset == found[-1].last_offset:
            entry.batches = found


def _stretches_before(segments: list[Segment], offset: int) -> list[tuple[Segment, int, int]]:
    """The last `EARLIER_BYTES` before an offset: segments with the positions to scan from and to, ascending."""
    stretches: list[tuple[Segment, int, int]] = []
    wanted = EARLIER_BYTES
    for segment in reversed(segments):
        if segment.base_offset >= offset or not segment.size:
            continue
        try:
            end = segment.position_of(offset, blocking=True)
            start = segment.offset_index.floor_position(max(end - wanted, 0), blocking=True)
        except CorruptMessage:
            break
        stretches.append((segment, start, end))
        wanted -= end - start
        if wanted <= 0:
            break
    return stretches[::-1]


def replay_producers(state: ProducerState, segments: list[Segment], end_offset: int) -> Aborted:
    """Takes into `state` the batches from its `end_offset` to `end_offset`; the transactions aborted there. Damaged
    stretches are passed over: a producer whose batches lie there is known by its later ones. Raises OSError."""
    start = state.end_offset
    aborted: Aborted = []
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
                        _replay(state, segment, header, aborted)
                break
            except InvalidBatch as problem:
                found = find_batch(segment.file, problem.position + 1, segment.size, min_offset=start)
                if found is None:
                    break
                position = found.position
    state.end_offset = end_offset
    return aborted


def _replay(state: ProducerState, segment: Segment, header: BatchHeader, found: Aborted) -> None:
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
    if aborted is not None:
        found.append((segment, aborted))
