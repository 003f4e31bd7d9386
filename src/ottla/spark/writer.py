"""Rows to records: a sink for batch and streaming queries.

A streaming query writes each record exactly once (see `ottla.spark.exactly_once`), unless `deliveryGuarantee` is
`at-least-once`. A batch write is at-least-once, as Spark's own: a task that Spark repeats writes its records again. In
`foreachBatch`, where the micro-batch has a number, it can be exactly-once as well.
"""

import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from confluent_kafka import KafkaException
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.client_settings import ClientSettings, library
from ottla.spark.delegation import for_tasks
from ottla.spark.errors import OptionError, SourceError
from ottla.spark.exactly_once import current_task, write_once
from ottla.spark.metadata import TopicMetadata
from ottla.spark.options import WriteOptions
from ottla.spark.produce import RecordProducer
from ottla.spark.schema import check_write_schema
from ottla.spark.selection import Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote; `repeated`: an attempt before this one had written it already."""

    records: int
    repeated: bool = False


class _Writer:
    """What tasks do; `write_id` is the driver's name for this write."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = replace(options, client=for_tasks(options.client)) if options.delegates else options
        self._write_id = uuid.uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        options = self._options
        if not options.exactly_once:
            return Written(_write(options, iterator))
        task = current_task(self._write_id)
        if task is None:
            raise OptionError(
                "a batch write outside of foreachBatch cannot be exactly-once: a repeated write cannot be "
                "distinguished from a "
                "new one. Write a stream (trigger availableNow), or set deliveryGuarantee to at-least-once"
            )
        return Written(*write_once(options.client, options.topic, task, iterator))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`, also within `foreachBatch`."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`. Spark's driver makes one for each micro-batch, and another to commit it."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Spark's driver, when all tasks are done: nothing is left to do but to say what a restart spared."""
        repeated = sum(isinstance(each, Written) and each.repeated for each in messages)
        if repeated:
            log.warning(
                "micro-batch %d: %d of %d tasks had been written by an earlier attempt",
                batchId,
                repeated,
                len(messages),
            )


def _check(options: WriteOptions, schema: StructType) -> None:
    check_write_schema(schema, options.topic)
    if options.topic is not None:
        _find_topic(options.client, options.topic, os.getpid())


@lru_cache(maxsize=64)
def _find_topic(client: ClientSettings, topic: str, process_id: int) -> None:
    """Once in a process: Spark makes a writer twice for each micro-batch. Raises UnknownTopicError."""
    TopicMetadata(client).layout(Topics((topic,)))


def _write(options: WriteOptions, rows: Iterator[pa.RecordBatch]) -> int:
    try:
        return _producer(options.client, os.getpid()).write(rows, options.topic)
    except KafkaException as error:
        _producer.cache_clear()
        raise SourceError(f"the records could not be written: {error.args[0].str()}") from error


@lru_cache(maxsize=4)
def _producer(client: ClientSettings, process_id: int) -> RecordProducer:
    """Kept for the tasks that follow in this process."""
    try:
        return RecordProducer({**library(client), "logger": log})
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
