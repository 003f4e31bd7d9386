"""One range of a partition as Arrow record batches: what a task does on an executor."""

import logging
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ottla.errors import OttlaError
from ottla.spark.client_fetch import Explain, nothing_came, read_through_client
from ottla.spark.columns import Visible, as_record_batches, collect
from ottla.spark.errors import DataLossError, SourceError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import ClientSettings
from ottla.spark.wire import PartitionFetch, is_plain

log = logging.getLogger(__name__)

MAX_ROWS: Final = 50_000
"""Of a batch handed to Spark; of records of more than 80 bytes, a response has fewer."""
END_SETTLES_S: Final = 3.0
"""A new leader may end before the offsets that the old one showed, for a moment."""


def read_range(
    client: ClientSettings,
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    fail_on_data_loss: bool,
    poll_timeout_ms: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range in batches of some thousand rows, in the order of their offsets.

    Raises DataLossError if the log no longer reaches back to the start of the range or ends before its end (only
    warns and goes on with what there is, if not `fail_on_data_loss`); SourceError if nothing arrives for
    `poll_timeout_ms`, or what arrives is corrupt.
    """
    patience_s = poll_timeout_ms / 1000

    def explain(position: int) -> int | None:
        return _explain_end(client, wanted, position, fail_on_data_loss)

    if is_plain(client):
        yield from _read_by_wire(client, wanted, schema, patience_s, explain)
    else:
        yield from read_through_client(
            client, wanted, schema, patience_s=patience_s, settles_s=END_SETTLES_S, explain=explain
        )


def _read_by_wire(
    client: ClientSettings, wanted: OffsetRange, schema: pa.Schema, patience_s: float, explain: Explain
) -> Iterator[pa.RecordBatch]:
    topic, number = wanted.partition
    given = dict(client)
    only_committed = given.get("isolation.level") == "read_committed"
    check_crcs = given.get("check.crcs", "true").lower() != "false"
    position = wanted.start
    deadline = time.monotonic() + patience_s
    ended_at: float | None = None
    with PartitionFetch(client, wanted.partition, patience_s=patience_s) as fetch:
        fetch.request(position)
        while position < wanted.end:
            got = fetch.wait()
            first = position
            if got.records is not None:
                visible = Visible(got.aborted) if only_committed else None
                try:
                    chunk, position = collect(got.records, first, wanted.end, visible, check_crcs=check_crcs)
                    if position < wanted.end:
                        fetch.request(position)  # the broker looks for it while this is decoded
                    yield from as_record_batches(chunk, topic, number, first, wanted.end, schema, MAX_ROWS)
                except OttlaError as error:
                    raise SourceError(f"reading {wanted.partition} at offset {first}: {error}") from error
                now = time.monotonic()
                deadline, ended_at = now + patience_s, None
                continue
            now = time.monotonic()
            ended_at = now if ended_at is None else ended_at
            if got.is_outside or (got.is_end and now > ended_at + END_SETTLES_S):
                restart = explain(position)
                if restart is None:
                    return
                position, ended_at = restart, None
            elif now > deadline:
                raise nothing_came(wanted, position, patience_s)
            fetch.request(position)


def _explain_end(client: ClientSettings, wanted: OffsetRange, position: int, fail_on_data_loss: bool) -> int | None:
    """The log has nothing at `position` though the range goes on: say what was lost.

    Gives the offset to go on from, or None if the rest of the range is gone.
    """
    metadata = TopicMetadata(client)
    first = metadata.earliest([wanted.partition])[wanted.partition]
    after_last = metadata.latest([wanted.partition])[wanted.partition]
    if first <= position < after_last:
        return position  # it grew, or a transaction is open there
    if position < first:
        lost = f"offsets {position} to {min(first, wanted.end) - 1} were deleted before they were read"
        restart = first if first < wanted.end else None
        hint = "retention or a trim was faster than the query"
    else:
        unread = f"{position} to {wanted.end - 1}"
        lost = f"the log ends at offset {after_last}, before the offsets {unread} that are to be read"
        restart = None
        hint = "the topic was deleted and recreated, or lost its end"
    message = f"{wanted.partition}: {lost} ({hint})"
    if fail_on_data_loss:
        raise DataLossError(f"{message}. To go on with what is there, set the option failOnDataLoss to false.")
    log.warning("%s; going on because failOnDataLoss is false", message)
    return restart
