"""Topics as DataFrames, without a jar: a PySpark data source named `ottla`.

Options and columns are those of Spark's own Kafka source and sink, so that moving between the two is one word:

    flights = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load()
    )

A batch read ends at `endingOffsets`; a streaming read keeps its offsets in Spark's checkpoint and honours
`maxOffsetsPerTrigger` and `Trigger.AvailableNow`. The sink writes the columns `key`, `value`, `headers`, `topic` and
`partition`: a streaming query exactly once, a batch write at-least-once as Spark's own.
"""

# ruff: noqa: N802 - the names of the methods are Spark's

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from ottla.spark.delegation import cluster_options
from ottla.spark.errors import DataLossError, OptionError, SourceError, UnknownTopicError, UnreachableError
from ottla.spark.options import ReadOptions, WriteOptions
from ottla.spark.reader import BatchReader, NarrowingReader, StreamReader
from ottla.spark.schema import read_schema
from ottla.spark.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DataLossError",
    "OptionError",
    "OttlaDataSource",
    "SourceError",
    "UnknownTopicError",
    "UnreachableError",
    "cluster_options",
    "register",
]


class OttlaDataSource(DataSource):
    """`spark.read|readStream|write|writeStream.format("ottla")`."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        """The schema of a read; `load()` requests it, and reports wrong options."""
        return read_schema(ReadOptions.parse(self.options, streaming=None).include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        options = ReadOptions.parse(self.options, streaming=False)
        return (NarrowingReader if options.push_down_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(ReadOptions.parse(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise OptionError("a topic can only be appended to: use .mode('append')")
        return BatchWriter(WriteOptions.parse(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(WriteOptions.parse(self.options, streaming=True), schema)


def register(spark: "SparkSession") -> None:
    """Make the format `ottla` known to this session, where Spark does not find it by itself (`pyspark_ottla`)."""
    spark.dataSource.register(OttlaDataSource)
