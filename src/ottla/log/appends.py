"""Steps of an append that only look at the batches and the producers: what is refused, repeated or completed."""

import logging
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage, OffsetOutOfRange
from ottla.ids import Offset, TopicPartition
from ottla.log.producer_state import Origin, ProducedBatch, ProducerState, Verification
from ottla.log.segment import Segment
from ottla.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, is_intact, iter_batches
from ottla.records.control import decode_end_transaction

logger: Final = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    """What an append has done. For a duplicate: what the original has done, and `duplicate` is set."""

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 unless the topic stamps records with it."""
    log_start_offset: Offset
    size_bytes: int
    record_count: int
    duplicate: bool = False


def find_duplicate(
    batches: memoryview,
    headers: list[BatchHeader],
    state: ProducerState,
    origin: Origin,
    verification: Verification | None,
    require_verification: bool,
    bears_next_epoch: bool,
) -> ProducedBatch | None:
    """Checks each batch against the state of its producer; returns the original of a batch that is there already.

    Raises as `PartitionLog.append_as_leader`.
    """
    for header in headers:
        if header.producer_id < 0:
            continue
        if header.attributes & CONTROL_FLAG:
            marker = decode_end_transaction(batches, header)
            if marker is not None:
                state.check_marker(header, marker, origin, bears_next_epoch=bears_next_epoch)
            continue
        if origin is Origin.CLIENT:
            duplicate = state.find_duplicate(header)
            if duplicate is not None:
                return duplicate
            if header.attributes & TRANSACTIONAL_FLAG:
                state.check_transaction(header, verification, required=require_verification)
        state.check(header, origin)
    return None


def check_copied(
    batches: memoryview, topic_partition: TopicPartition, log_start_offset: Offset, log_end_offset: Offset
) -> tuple[list[BatchHeader], int]:
    """The headers of the whole batches that a leader has sent to a log with these ends, and the size of the batches.

    Raises CorruptMessage, UnsupportedForMessageFormat, OffsetOutOfRange.
    """
    headers: list[BatchHeader] = []
    next_offset: int = log_end_offset
    size = 0
    for header in iter_batches(batches, allow_partial_end=True):
        is_first = not headers and log_start_offset == log_end_offset < header.next_offset
        if header.base_offset < next_offset and not is_first:
            raise OffsetOutOfRange(
                f"{topic_partition}: a batch at offset {header.base_offset} was to follow {next_offset}"
            )
        if not is_intact(batches, header):
            raise CorruptMessage(
                f"{topic_partition}: the batch at offset {header.base_offset} arrived with a wrong CRC"
            )
        headers.append(header)
        next_offset = header.next_offset
        size = header.end_position
    return headers, size


def end_transaction(batches: memoryview, header: BatchHeader, state: ProducerState, segment: Segment) -> None:
    """Completes the transaction that a marker, just appended to this segment, ends."""
    marker = decode_end_transaction(batches, header)
    if marker is None:
        return
    completed = state.end_transaction(header, marker)
    if completed is None:
        return
    aborted = state.complete(completed)
    if aborted is not None:
        try:
            segment.transaction_index.append(aborted)
        except OSError as problem:
            path = segment.transaction_index.path
            reason = problem.strerror or problem
            logger.error("cannot note an aborted transaction in %s: %s; it goes with the next", path, reason)
