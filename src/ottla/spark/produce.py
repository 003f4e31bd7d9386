"""Rows into records of one producer."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.spark.errors import SourceError, UnknownTopicError

_ANY_PARTITION: Final = -1
_ROOM_TIMEOUT_S: Final = 0.1

PRODUCER_DEFAULTS: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # where the Java client puts keys
    "linger.ms": 20,
    "queue.buffering.max.kbytes": 65_536,  # the memory of a task, whatever its micro-batch
    "delivery.report.only.error": True,
    "topic.metadata.propagation.max.ms": 5_000,  # a topic unknown for so long is not there
    "allow.auto.create.topics": False,
    # begins anew with its bootstrap servers when all brokers are gone, and with it librdkafka 2.16 may forget the
    # transaction that is under way: ending it would wait forever
    "metadata.recovery.strategy": "none",
}


class RecordProducer:
    """A producer of the client library, `client`, for one task after another."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Raises KafkaException if the settings make no sense."""
        failures: list[str] = []

        def failed(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(f"{message.topic()}-{message.partition()}: {error.str()}")

        self._failures = failures
        self.client = Producer({**PRODUCER_DEFAULTS, **settings, "on_delivery": failed})

    def write(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> int:
        """Produce every row and wait until all are acknowledged; returns their number.

        `topic` None: the column `topic` names the topic of each row. Raises SourceError with the first failure, and
        KafkaException if the producer cannot be used any longer; some records may have been written by then.
        """
        self._failures.clear()
        count = 0
        try:
            for batch in batches:
                self._queue(batch, topic)
                count += batch.num_rows
                self.client.poll(0)
                if self._failures:
                    break
            self.client.flush()
        except SystemError as error:
            # what the client raises when it is fenced gets in the way of its own calls to `failed`
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from None
            raise
        except BaseException:
            self.client.purge()
            raise
        if self._failures:
            raise SourceError(f"{len(self._failures)} records could not be written; the first, to {self._failures[0]}")
        return count

    def _queue(self, batch: pa.RecordBatch, topic: str | None) -> None:
        produce = self.client.produce
        rows, headers = _rows(batch, topic)
        for row in rows:  # an object for each is what a producer costs: nothing else is done here for the usual one
            extra: dict[str, Any] = {} if headers is None else {"headers": next(headers)}
            while True:
                try:
                    produce(*row, **extra)
                    break
                except BufferError:
                    self.client.poll(_ROOM_TIMEOUT_S)  # the queue is full: wait for acknowledgements
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._FATAL:
                        self.client.flush()  # raises what made the producer unusable, such as its fencing
                        raise
                    raise _refused(error, row) from error


Row = tuple[str, bytes | None, bytes | None, int]
Headers = list[tuple[str, bytes | None]] | None


def _rows(batch: pa.RecordBatch, topic: str | None) -> tuple[Iterator[Row], Iterator[Headers] | None]:
    """Topic, value, key and partition of each row, as `Producer.produce` takes them, and headers if there are any."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    topics: Iterator[str] = repeat(topic, batch.num_rows) if topic is not None else iter(_topics(columns["topic"]))
    keys = _bytes(columns["key"]) if "key" in columns else repeat(None)
    partitions = (
        iter(columns["partition"].fill_null(_ANY_PARTITION).to_pylist())
        if "partition" in columns
        else repeat(_ANY_PARTITION)
    )
    given = columns.get("headers")
    headers = None if given is None or given.null_count == len(given) else _headers(given)
    return zip(topics, _bytes(columns["value"]), keys, partitions, strict=False), headers


def _topics(column: pa.Array) -> list[str]:
    if column.null_count:
        raise SourceError("a row has no topic: its column 'topic' is null and the option 'topic' is not set")
    names: list[str] = column.to_pylist()
    return names


def _bytes(column: pa.Array) -> Iterator[bytes | None]:
    """Text as UTF-8, as it lies in the column already."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return iter(column.to_pylist())


def _headers(column: pa.Array) -> Iterator[Headers]:
    for row in column.to_pylist():
        yield [(each["key"], each["value"]) for each in row] if row else None


def _refused(error: KafkaException, row: Row) -> SourceError:
    cause: KafkaError = error.args[0]
    topic, value, _, partition = row
    if cause.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
        return UnknownTopicError(f"topic '{topic}' does not exist; create it first")
    if cause.code() == KafkaError._UNKNOWN_PARTITION:
        return SourceError(f"topic '{topic}' has no partition {partition}, which a row asks for")
    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return SourceError(
            f"a record for topic '{topic}' is too large: its value has {len(value or b'')} bytes. The option "
            "kafka.message.max.bytes raises the client's limit, max.message.bytes the topic's"
        )
    return SourceError(f"a record for topic '{topic}' was refused: {cause.str()}")
