"""Rows to records: a sink for batch and streaming queries.

A streaming query writes each record exactly once (see `ottla.spark.exactly_once`), unless `deliveryGuarantee` is
`at-least-once`. A batch write is at-least-once, as Spark's own: a task that Spark repeats writes its records again.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.errors import OptionError
from ottla.spark.exactly_once import current_task, write_once
from ottla.spark.metadata import TopicMetadata
from ottla.spark.options import ClientSettings, WriteOptions
from ottla.spark.produce import PRODUCER_DEFAULTS, produce_all
from ottla.spark.schema import check_write_schema
from ottla.spark.selection import Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote; `repeated`: an attempt before this one had written it already."""

    records: int
    repeated: bool = False


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(produce_all(_producer(self._options.client, os.getpid()), iterator, self._options.topic))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        options = self._options
        if not options.exactly_once:
            return Written(produce_all(_producer(options.client, os.getpid()), iterator, options.topic))
        records = write_once(options.client, options.topic, current_task(), iterator)
        return Written(0, repeated=True) if records is None else Written(records)


def _check(options: WriteOptions, schema: StructType) -> None:
    check_write_schema(schema, options.topic)
    if options.topic is not None:
        TopicMetadata(options.client).partitions(Topics((options.topic,)))


@lru_cache(maxsize=4)
def _producer(client: ClientSettings, process_id: int) -> Producer:
    """Kept for the tasks that follow in this process."""
    settings: dict[str, Any] = {**PRODUCER_DEFAULTS, **dict(client), "logger": log}
    try:
        return Producer(settings)
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
