"""The data source `ottla-table`: the newest record of each key of a topic, as of when it is read.

Spark plans a Python data source once for each DataFrame, so the result of `partitions` stays as it was when a query
began; only the tasks run anew in each micro-batch. So it is a task that brings the table up to date, one for the whole
table: only a task that sees all records knows the newest of each key.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline.rows.table_cache import Snapshot, TableCache
from ottla.spark.metadata import TopicMetadata
from ottla.spark.options import ReadOptions
from ottla.spark.reader import BatchReader, RangePartition
from ottla.spark.schema import read_schema

FORMAT: Final = "ottla-table"
DIRECTORY: Final = "directory"
"""Option: where the table is kept, on each machine that reads it."""
REFRESH_MS: Final = "refreshms"
"""Option: for how long a table that was brought up to date is good enough, in milliseconds."""

_ROWS_OF_A_BATCH: Final = 10_000


class TableSource(DataSource):
    """`spark.read.format("ottla-table")`, with the options of `ottla` beside those above; see `rows.table`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return read_schema(True)

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(dict(self.options), schema)


class TableReader(DataSourceReader):
    """Reads the newest record of each key of a compacted topic, as a table of Spark."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._directory = Path(given.pop(DIRECTORY))
        self._refresh_s = int(given.pop(REFRESH_MS)) / 1000
        # What compaction or retention took away is no loss: a key's newest record is still there, or it has none.
        self._options = ReadOptions.parse({**given, "failondataloss": "false"}, streaming=False)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The whole table. Raises UnknownTopicError if there is no such topic."""
        TopicMetadata(self._options.client).layout(self._options.selection)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Bring the table up to date, and give its rows."""
        yield from self._follow().read().to_batches(max_chunksize=_ROWS_OF_A_BATCH)

    def _follow(self) -> Snapshot:
        options = self._options
        arrow_schema: Any = to_arrow_schema(self._schema, timezone="UTC")
        cache = TableCache(self._directory, arrow_schema)
        records = BatchReader(options, self._schema)
        with cache.locked():
            known = cache.current()
            if known is not None and time.time() - known.at < self._refresh_s:
                return known
            metadata = TopicMetadata(options.client)
            layout = metadata.layout(options.selection)
            return cache.follow(
                metadata.earliest(layout.partitions),
                metadata.latest(layout.partitions),
                ",".join(sorted(map(str, layout.ids.values()))),
                lambda wanted: records.read(RangePartition(wanted)),
            )
