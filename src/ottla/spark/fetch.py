"""One range of a partition as Arrow record batches: what a task does on an executor."""

import logging
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ottla.client.cluster import TopicGone
from ottla.errors import OttlaError
from ottla.spark.chunk import chunks
from ottla.spark.client_fetch import nothing_came, read_through_client
from ottla.spark.columns import Visible, as_record_batches, collect
from ottla.spark.errors import DataLossError, SourceError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import ReadOptions
from ottla.spark.wire import is_for_wire
from ottla.spark.wire_fetch import PartitionFetch

log = logging.getLogger(__name__)

MAX_ROWS: Final = 50_000
"""Rows of a batch handed to Spark; responses with records of more than 80 bytes have fewer."""
MAX_CHUNK_BYTES: Final = 8 << 20
"""Compressed bytes of batches that are unpacked at a time; a single batch may have more."""
END_SETTLES_S: Final = 3.0
"""A new leader may end before the offsets that the old one showed, for a moment."""


def read_range(wanted: OffsetRange, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range in batches of some thousand rows, in the order of their offsets.

    Raises DataLossError if the log no longer reaches back to the start of the range or ends before its end, or is that
    of another topic (only warns and goes on with what there is, if not `fail_on_data_loss`); SourceError if nothing
    arrives for `poll_timeout_ms`, no broker answers for `away_s`, or what arrives is corrupt.
    """
    if is_for_wire(options.client):
        yield from _read_by_wire(wanted, schema, options)
    elif not _is_replaced(wanted, options):
        yield from read_through_client(
            options.client,
            wanted,
            schema,
            timeout_s=options.poll_timeout_ms / 1000,
            settles_s=END_SETTLES_S,
            explain=lambda position: _explain_end(wanted, position, options),
        )


def _read_by_wire(wanted: OffsetRange, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    topic, number = wanted.partition
    given = dict(options.client)
    only_committed = given.get("isolation.level") == "read_committed"
    check_crcs = given.get("check.crcs", "true").lower() != "false"
    timeout_s = options.poll_timeout_ms / 1000
    position = wanted.start
    deadline = time.monotonic() + timeout_s
    ended_at: float | None = None
    with PartitionFetch(
        options.client,
        wanted.partition,
        topic_id=wanted.topic_id,
        timeout_s=options.away_s,
        missing_s=options.missing_s,
    ) as fetch:
        fetch.request(position)
        while position < wanted.end:
            try:
                got = fetch.wait()
            except TopicGone as gone:
                _lose(wanted, f"the topic {gone} before offsets {position} to {wanted.end - 1} were read", options)
                return
            first = position
            if got.records is not None:
                visible = Visible(got.aborted) if only_committed else None
                try:
                    headers, position = collect(got.records, first, wanted.end, visible, check_crcs=check_crcs)
                    if position < wanted.end:
                        fetch.request(position)  # the broker looks for it while this is decoded
                    for chunk in chunks(got.records, headers, MAX_CHUNK_BYTES):
                        yield from as_record_batches(chunk, topic, number, first, wanted.end, schema, MAX_ROWS)
                except OttlaError as error:
                    raise SourceError(f"reading {wanted.partition} at offset {first}: {error}") from error
                now = time.monotonic()
                deadline, ended_at = now + timeout_s, None
                continue
            now = time.monotonic()
            ended_at = now if ended_at is None else ended_at
            if got.is_outside or (got.is_end and now > ended_at + END_SETTLES_S):
                restart = _explain_end(wanted, position, options)
                if restart is None:
                    return
                position, ended_at = restart, None
            elif now > deadline:
                raise nothing_came(wanted, position, timeout_s)
            fetch.request(position)


def patient_metadata(options: ReadOptions) -> TopicMetadata:
    """For a query that runs: it outlives brokers that are away, or know nothing yet, for a while."""
    return TopicMetadata(
        options.client, attempts=options.attempts, pause_s=options.retry_pause_s, missing_s=options.missing_s
    )


def _is_replaced(wanted: OffsetRange, options: ReadOptions) -> bool:
    """Whether the topic has another id than the one that was meant; fetches of the client library are by name."""
    topic = wanted.partition.topic
    found = patient_metadata(options).ids([topic]).get(topic)
    if wanted.topic_id is None or found is None or found == wanted.topic_id:
        return False
    _lose(
        wanted,
        f"the topic was deleted and made again before offsets {wanted.start} to {wanted.end - 1} were read",
        options,
    )
    return True


def _explain_end(wanted: OffsetRange, position: int, options: ReadOptions) -> int | None:
    """The log has nothing at `position` though the range goes on: say what was lost.

    Gives the offset to go on from, or None if the rest of the range is gone.
    """
    metadata = patient_metadata(options)
    first = metadata.earliest([wanted.partition])[wanted.partition]
    after_last = metadata.latest([wanted.partition])[wanted.partition]
    if first <= position < after_last:
        return position  # it grew, or a transaction is open there
    if position < first:
        _lose(
            wanted,
            f"offsets {position} to {min(first, wanted.end) - 1} were deleted before they were read (retention or a "
            "trim was faster than the query)",
            options,
        )
        return first if first < wanted.end else None
    _lose(
        wanted,
        f"the log ends at offset {after_last}, before the offsets {position} to {wanted.end - 1} that are to be read "
        "(the topic was deleted and made again, or lost its end)",
        options,
    )
    return None


def _lose(wanted: OffsetRange, what: str, options: ReadOptions) -> None:
    """Raises DataLossError, or warns."""
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{wanted.partition}: {what}. To continue with the remaining records, set the option failOnDataLoss to "
            "false."
        )
    log.warning("%s: %s; going on because failOnDataLoss is false", wanted.partition, what)
