"""Rows to records: a sink for batch and streaming queries.

At-least-once, as Spark's own: a task that Spark repeats writes its records again. Within a task the producer is
idempotent, so its own retries double nothing. Keys are placed as the Java client places them (murmur2).
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.errors import OptionError, SourceError, UnknownTopicError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.options import ClientSettings, WriteOptions
from ottla.spark.schema import check_write_schema

log = logging.getLogger(__name__)

_POLL_EVERY_ROWS: Final = 1_000
_ANY_PARTITION: Final = -1
_DEFAULTS: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "delivery.report.only.error": True,
    "topic.metadata.propagation.max.ms": 5_000,  # a topic unknown for so long is not there
    "allow.auto.create.topics": False,
}


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_batches(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_batches(self._options, iterator)


def _check(options: WriteOptions, schema: StructType) -> None:
    check_write_schema(schema, options.topic)
    if options.topic is not None:
        TopicMetadata(options.client).partitions([options.topic])


def write_batches(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Produce every row and wait until all are acknowledged.

    Raises SourceError with the first failure; some records may have been written by then.
    """
    producer = _producer(options.client, os.getpid())
    failures: list[str] = []

    def on_error(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"{message.topic()}-{message.partition()}: {error.str()}")

    count = 0
    try:
        for batch in batches:
            for row in _rows(batch, options.topic):
                _produce(producer, row, on_error)
                count += 1
                if count % _POLL_EVERY_ROWS == 0:
                    producer.poll(0)
                    if failures:
                        break
        producer.flush()
    except BaseException:
        producer.purge()
        raise
    if failures:
        raise SourceError(f"{len(failures)} records could not be written; the first, to {failures[0]}")
    return Written(count)


def _produce(producer: Producer, row: dict[str, Any], on_error: Any) -> None:
    while True:
        try:
            producer.produce(**row, on_delivery=on_error)
            return
        except BufferError:
            producer.poll(0.1)  # the queue is full: wait for acknowledgements
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise UnknownTopicError(f"topic '{row['topic']}' does not exist; create it first") from error
            raise SourceError(f"a record for topic '{row['topic']}' was refused: {cause.str()}") from error


def _rows(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    nothing = [None] * batch.num_rows
    keys = columns.get("key", nothing)
    headers = columns.get("headers", nothing)
    topics = [topic] * batch.num_rows if topic is not None else columns["topic"]
    partitions = columns.get("partition", nothing)
    for key, value, header, to, number in zip(keys, columns["value"], headers, topics, partitions, strict=True):
        if to is None:
            raise SourceError("a row has no topic: its column 'topic' is null and the option 'topic' is not set")
        yield {
            "topic": to,
            "key": key,
            "value": value,
            "headers": [(each["key"], each["value"]) for each in header] if header else None,
            "partition": _ANY_PARTITION if number is None else number,
        }


@lru_cache(maxsize=4)
def _producer(client: ClientSettings, process_id: int) -> Producer:
    """Kept for the tasks that follow in this process."""
    settings: dict[str, Any] = {**_DEFAULTS, **dict(client), "logger": log}
    try:
        return Producer(settings)
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
