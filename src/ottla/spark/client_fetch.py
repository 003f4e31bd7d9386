"""One range of a partition through the client library: for connections that need any of its settings, such as Kerberos.

One object per record, so slower than `ottla.spark.wire`, which reads everything else.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.spark.chunk import LATEST_MILLIS
from ottla.spark.client_settings import ClientSettings, library
from ottla.spark.errors import OptionError, SourceError
from ottla.spark.offsets import OffsetRange, Partition

log = logging.getLogger(__name__)

_BATCH_ROWS: Final = 10_000
_WAIT_S: Final = 0.05  # `consume` returns early only when its batch is full; gaps in offsets make a last batch short

_DEFAULTS: Final = {
    "group.id": "ottla-spark",  # the client asks for one; nothing is ever committed to it
    "isolation.level": "read_uncommitted",  # as Spark's own source; the client's default differs
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,  # distinguishes the end of the partition from records not yet received
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,  # the client's own second of rest after a full queue cuts the rate to a fifth
    "queued.min.messages": 20_000,  # read-ahead behind the end of a range is wasted
}


Explain = Callable[[int], int | None]
"""What to do about an offset at which the log has nothing though the range goes on: see `ottla.spark.fetch`."""


def read_through_client(
    client: ClientSettings,
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    timeout_s: float,
    settles_s: float,
    explain: Explain,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range in batches of up to 10,000 rows. Raises as `ottla.spark.fetch.read_range` does."""
    with _assigned(client, wanted.partition, wanted.start) as consumer:
        position = wanted.start
        deadline = time.monotonic() + timeout_s
        ended_at: float | None = None
        while position < wanted.end:
            messages = consumer.consume(min(_BATCH_ROWS, wanted.end - position), _WAIT_S)
            records, position, found = advance(messages, wanted, position)
            now = time.monotonic()
            if records:
                yield _as_batch(records, schema)
                deadline = now + timeout_s
                ended_at = None
            if found is Found.END:
                ended_at = now
            is_over = ended_at is not None and now > ended_at + settles_s
            if position < wanted.end and (found is Found.NOTHING_THERE or is_over):
                restart = explain(position)
                if restart is None:
                    return
                position, ended_at = restart, None
                consumer.assign([TopicPartition(wanted.partition.topic, wanted.partition.number, position)])
            elif position < wanted.end and now > deadline:
                raise nothing_came(wanted, position, timeout_s)


def nothing_came(wanted: OffsetRange, position: int, timeout_s: float) -> SourceError:
    """What to say when there is more to read and nothing comes."""
    return SourceError(
        f"nothing came from {wanted.partition} at offset {position} for {timeout_s:.0f} s, "
        f"with offsets up to {wanted.end - 1} to read: is its leader up, or a transaction still open?"
    )


class Found(Enum):
    """What there is at a position in the log."""

    RECORDS = auto()
    END = auto()  # of the log, for now
    NOTHING_THERE = auto()  # the offset lies outside the log


def advance(messages: list[Message], wanted: OffsetRange, position: int) -> tuple[list[Message], int, Found]:
    """Sort what `consume` gave into records of the range, the position after them, and what comes there.

    Offsets may skip, where compaction or the end of a transaction left no record.
    """
    records = []
    found = Found.RECORDS
    for message in messages:
        error = message.error()
        if error is None:
            offset = message.offset()
            assert offset is not None
            position = offset + 1
            if offset < wanted.end:
                records.append(message)
            found = Found.RECORDS
        elif error.code() == KafkaError._PARTITION_EOF:
            position = max(position, message.offset() or 0)
            found = Found.END
        elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            found = Found.NOTHING_THERE
        elif not error.retriable() and error.code() not in _PASSING:
            raise SourceError(f"reading {wanted.partition} at offset {position}: {error.str()}")
    return records, position, found


_PASSING: Final = (
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # also the answer of a broker that has just started
)  # fmt: skip


def _as_batch(messages: list[Message], schema: pa.Schema) -> pa.RecordBatch:
    stamps = [message.timestamp() for message in messages]
    columns: dict[str, Any] = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "topic": [messages[0].topic()] * len(messages),
        "partition": [messages[0].partition()] * len(messages),
        "offset": [message.offset() for message in messages],
        "timestamp": [millis * 1000 if kind and millis <= LATEST_MILLIS else None for kind, millis in stamps],
        # the client counts 0 none, 1 create, 2 append; the log and Spark 0 create, 1 append, -1 none
        "timestampType": [kind - 1 for kind, _ in stamps],
    }
    if "headers" in schema.names:
        columns["headers"] = [_headers(message) for message in messages]
    arrays = [pa.array(columns[field.name], _build_type(field.type)).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _build_type(target: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(target) else target


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    if not headers:
        return None
    return [{"key": name, "value": value.encode() if isinstance(value, str) else value} for name, value in headers]


@contextmanager
def _assigned(client: ClientSettings, partition: Partition, offset: int) -> Iterator[Consumer]:
    """A connected consumer at this offset, kept for the tasks that follow in this process unless it failed."""
    consumer = _consumer(client, os.getpid())
    try:
        consumer.assign([TopicPartition(partition.topic, partition.number, offset)])
        yield consumer
        consumer.unassign()
    except GeneratorExit:  # Spark stops reading this range
        consumer.unassign()
        raise
    except Exception:
        _consumer.cache_clear()
        consumer.close()
        raise


@lru_cache(maxsize=4)
def _consumer(client: ClientSettings, process_id: int) -> Consumer:
    """Reconnecting for each task of each batch would cost more than reading a small batch."""
    settings: dict[str, Any] = {**_DEFAULTS, **library(client), "logger": log}
    try:
        return Consumer(settings)
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
