"""How many bytes the source holds of what it reads: not more for a long range, nor for a fast reader."""

import tracemalloc

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.errors import ErrorCode
from ottla.records.batch import Compression
from ottla.spark.fetch import MAX_CHUNK_BYTES, read_range
from ottla.spark.offsets import OffsetRange, Partition
from ottla.spark.options import ReadOptions
from ottla.spark.schema import read_schema
from ottla.spark.wire import DEFAULT_FETCH_BYTES
from tests.pipeline.conftest import TopicFactory
from tests.support.raw_client import RawConnection
from tests.support.stories import batch, produce

RECORDS = 64_000
BATCH_RECORDS = 800
VALUE = bytes(range(250)) * 4
READ_BYTES = RECORDS * len(VALUE)


@pytest.mark.parametrize(
    ("compression", "limit_bytes"),
    [
        (Compression.NONE, 4 * DEFAULT_FETCH_BYTES),  # an answer, the walk's copy of it, its columns
        (Compression.ZSTD, 4 * DEFAULT_FETCH_BYTES + 4 * MAX_CHUNK_BYTES),
    ],
)
def test_a_task_holds_some_answers_however_much_it_reads(
    new_topic: TopicFactory, compression: Compression, limit_bytes: int
) -> None:
    topic = new_topic()
    records = batch(*(VALUE for _ in range(BATCH_RECORDS)), compression=compression)
    with RawConnection(topic.bootstrap) as connection:
        for _ in range(RECORDS // BATCH_RECORDS):
            (answer,) = connection.ask(produce([(topic.name, 0, records)]), 9).responses
            assert answer.partition_responses[0].error_code == ErrorCode.NONE
    given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name}
    options = ReadOptions.parse(given, streaming=None)
    schema = to_arrow_schema(read_schema(include_headers=False), timezone="UTC")
    rows = most_columns = 0
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        for table in read_range(OffsetRange(Partition(topic.name, 0), 0, RECORDS), schema, options):
            rows += table.num_rows
            most_columns = max(most_columns, pa.total_allocated_bytes() - before)
        most_python = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == RECORDS
    assert most_columns + most_python < limit_bytes < READ_BYTES
