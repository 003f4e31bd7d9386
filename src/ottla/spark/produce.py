"""Rows into records of one producer."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.spark.errors import SourceError, UnknownTopicError

_POLL_EVERY_ROWS: Final = 1_000
_ANY_PARTITION: Final = -1

PRODUCER_DEFAULTS: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # where the Java client puts keys
    "linger.ms": 20,
    "delivery.report.only.error": True,
    "topic.metadata.propagation.max.ms": 5_000,  # a topic unknown for so long is not there
    "allow.auto.create.topics": False,
}


def produce_all(producer: Producer, batches: Iterator[pa.RecordBatch], topic: str | None) -> int:
    """Produce every row and wait until all are acknowledged; how many there were.

    `topic` None: each row says it in its column `topic`. Raises SourceError with the first failure; some records may
    have been written by then.
    """
    failures: list[str] = []

    def on_error(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"{message.topic()}-{message.partition()}: {error.str()}")

    count = 0
    try:
        for batch in batches:
            for row in _rows(batch, topic):
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
    return count


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
