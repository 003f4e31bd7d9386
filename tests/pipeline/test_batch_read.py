import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.pipeline.conftest import TopicFactory

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_every_field_of_a_record_is_a_column(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(2, config={"retention.ms": "-1"})  # the records are of 2013
    topic.send(["a"], partition=1, key=b"k", timestamp=1_363_024_800_123, headers=[("h", b"1"), ("h", None)])
    topic.send([""], partition=0, timestamp=1_363_024_800_124)

    table = topic.table(spark, includeHeaders="true").orderBy("partition")

    assert table.columns == [*COLUMNS, "headers"]
    plain, full = table.collect()
    assert (plain.key, plain.value, plain.topic, plain.partition, plain.offset) == (None, b"", topic.name, 0, 0)
    assert plain.headers is None
    assert (full.key, full.value, full.partition, full.offset, full.timestampType) == (b"k", b"a", 1, 0, 0)
    assert [(header.key, header.value) for header in full.headers] == [("h", b"1"), ("h", None)]
    millis = table.select(F.unix_millis("timestamp")).collect()
    assert [row[0] for row in millis] == [1_363_024_800_124, 1_363_024_800_123]
    assert datetime.fromtimestamp(millis[1][0] / 1000, UTC).year == 2013


def test_the_columns_are_those_of_sparks_own_source(spark: SparkSession, new_topic: TopicFactory) -> None:
    schema = new_topic().table(spark).schema
    assert schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, new_topic: TopicFactory) -> None:
    assert new_topic(3).table(spark).count() == 0


def test_records_are_read_once_each_in_more_tasks_than_partitions(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(2)
    topic.send((str(number) for number in range(25_000)), partition=0)
    topic.send((str(number) for number in range(25_000, 26_000)), partition=1)

    table = topic.table(spark, minPartitions="6")

    assert table.rdd.getNumPartitions() == 7  # 25,000 in six, 1,000 in one
    numbers = table.select(F.col("value").cast("string").cast("int").alias("number"))
    assert numbers.distinct().count() == numbers.count() == 26_000
    assert numbers.agg(F.sum("number")).first()[0] == sum(range(26_000))  # type: ignore[index]  # one row there is


def test_offsets_given_by_the_caller_are_kept_to(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(2)
    topic.send(map(str, range(10)), partition=0)
    topic.send(map(str, range(10, 20)), partition=1)

    table = topic.table(
        spark,
        startingOffsets=json.dumps({topic.name: {"0": 7, "1": -2}}),
        endingOffsets=json.dumps({topic.name: {"0": -1, "1": 2}}),
    )

    assert sorted(int(row.value) for row in table.collect()) == [7, 8, 9, 10, 11]


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, bootstrap: str) -> None:
    source = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "fligths")
    with pytest.raises(AnalysisException, match="topic 'fligths' does not exist"):
        source.load().count()


def test_an_option_that_is_not_there_is_named_with_the_nearest(spark: SparkSession, bootstrap: str) -> None:
    source = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscrieb", "x")
    with pytest.raises(AnalysisException, match="did you mean 'subscribe'"):
        source.load()


def test_a_setting_unknown_to_the_client_is_named(spark: SparkSession, new_topic: TopicFactory) -> None:
    with pytest.raises(AnalysisException, match=r'No such configuration property: "no\.such\.thing"'):
        new_topic().table(spark, **{"kafka.no.such.thing": "1"}).count()


def test_offsets_that_were_deleted_are_named(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    topic.trim(4)
    offsets = json.dumps({topic.name: {"0": 2}})

    assert topic.table(spark).count() == 6
    lost = rf"{topic.name}-0: offsets 2 to 3 were deleted before they were read"
    with pytest.raises(PySparkException, match=lost):
        topic.table(spark, startingOffsets=offsets).collect()
    rest = topic.table(spark, startingOffsets=offsets, failOnDataLoss="false").collect()
    assert [int(row.value) for row in rest] == list(range(4, 10))


def test_offsets_beyond_the_end_are_named(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    offsets = json.dumps({topic.name: {"0": 15}})

    with pytest.raises(PySparkException, match=rf"{topic.name}-0: the log ends at offset 10"):
        topic.table(spark, endingOffsets=offsets).collect()
    assert topic.table(spark, endingOffsets=offsets, failOnDataLoss="false").count() == 10


def test_partitions_are_assigned_one_by_one(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(3)
    for partition in range(3):
        topic.send([str(partition)], partition=partition)
    table = topic.assigned(spark, [0, 2])
    assert sorted(row.value for row in table.collect()) == [b"0", b"2"]
    with pytest.raises(PySparkException, match=f"'assign' names {topic.name}-7, which does not exist"):
        topic.assigned(spark, [0, 7]).collect()


def test_a_range_of_time(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(2, config={"retention.ms": "-1"})
    for partition, stamps in enumerate(([1_000, 2_000, 3_000], [1_500])):
        for stamp in stamps:
            topic.send([str(stamp)], partition=partition, timestamp=stamp)

    def between(**options: str) -> list[int]:
        return sorted(int(row.value) for row in topic.table(spark, **options).collect())

    assert between(startingTimestamp="1200", endingTimestamp="3000") == [1500, 2000]
    one_each = f'{{"{topic.name}": {{"0": 3000, "1": 0}}}}'
    assert between(startingOffsetsByTimestamp=one_each) == [1500, 3000]
    with pytest.raises(PySparkException, match=f"no record of {topic.name}-1 is as young as that"):
        between(startingTimestamp="2500")
    assert between(startingTimestamp="2500", startingOffsetsByTimestampStrategy="latest") == [3000]


def rows_of_the_scan(table: DataFrame) -> int:
    """How many rows the source gave to the query, before any filter of Spark's."""
    plan = table._jdf.queryExecution().executedPlan()
    table.collect()
    scans = plan.collectLeaves()
    assert scans.size() == 1
    rows: int = scans.apply(0).metrics().apply("numOutputRows").value()
    return rows


def test_filters_spare_the_read_what_they_leave_out(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(3, config={"retention.ms": "-1"})
    for partition in range(3):
        for stamp in range(1_700_000_000_000, 1_700_000_010_000, 1_000):
            topic.send([str(stamp)], partition=partition, timestamp=stamp)

    def read(condition: str, **options: str) -> tuple[int, int]:
        """Rows from the source, and rows of the result."""
        wanted = topic.table(spark, **(options or {"pushDownFilters": "true"})).where(condition)
        return rows_of_the_scan(wanted), len(wanted.collect())

    assert read("value IS NOT NULL") == (30, 30)
    assert read("partition = 1") == (10, 10)
    assert read("partition IN (0, 2) AND offset >= 7") == (6, 6)
    assert read("offset BETWEEN 2 AND 3 AND partition < 2") == (4, 4)
    assert read("offset IN (0, 2) AND partition = 0") == (3, 2)
    assert read("timestamp >= TIMESTAMP_MILLIS(1700000006500)") == (9, 9)
    assert read("timestamp > TIMESTAMP '2023-11-14 22:13:28' AND partition = 2") == (1, 1)
    assert read("timestamp > TIMESTAMP '2123-11-14 22:13:28'") == (0, 0)
    assert read("partition = 7") == (0, 0)
    assert read("partition = 1 OR offset = 0") == (30, 12)

    assert read("partition = 1", pushDownFilters="false") == (30, 10)


def test_filters_on_one_use_of_a_table_do_not_reach_another(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(2)
    for partition in range(2):
        topic.send(["x"], partition=partition)
    table = topic.table(spark)
    assert table.where("partition = 1").count() == 1
    assert table.where("partition = 0").union(table.where("partition = 1")).count() == 2
    assert table.count() == 2


def test_what_a_task_holds_does_not_grow_with_its_partition(new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send((str(number).zfill(2_000) for number in range(100_000)), compression="zstd")
    program = (
        "import resource, sys\n"
        "from pyspark.sql.pandas.types import to_arrow_schema\n"
        "from ottla.spark.fetch import read_range\n"
        "from ottla.spark.offsets import OffsetRange, Partition\n"
        "from ottla.spark.options import ReadOptions\n"
        "from ottla.spark.schema import read_schema\n"
        "given = {'kafka.bootstrap.servers': sys.argv[1], 'subscribe': sys.argv[2]}\n"
        "options = ReadOptions.parse(given, streaming=False)\n"
        "schema = to_arrow_schema(read_schema(False), timezone='UTC')\n"
        "for end in (20_000, 100_000):\n"
        "    batches = read_range(OffsetRange(Partition(sys.argv[2], 0), 0, end), schema, options)\n"
        "    print(sum(batch.num_rows for batch in batches), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, topic.bootstrap, topic.name], capture_output=True, text=True, check=True
    )
    (few, peak_kb), (many, later_peak_kb) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert (few, many) == (20_000, 100_000)
    assert later_peak_kb - peak_kb < 40_000  # of 160 MB more


def test_no_task_has_more_records_than_it_may(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send(map(str, range(1_000)))
    table = topic.table(spark, maxRecordsPerPartition="300")
    assert table.rdd.getNumPartitions() == 4
    assert table.count() == 1_000


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(spark: SparkSession, new_topic: TopicFactory, compression: str) -> None:
    topic = new_topic()
    topic.send(map(str, range(5_000)), compression=compression)
    assert topic.table(spark).agg(F.sum(F.col("value").cast("string").cast("int"))).first()[0] == sum(range(5_000))  # type: ignore[index]  # one row there is


def test_what_the_reader_itself_cannot_do_goes_through_the_client(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send(["a", "b"], headers=[("h", b"1")])
    rows = topic.table(spark, includeHeaders="true", **{"kafka.client.rack": "here"}).collect()
    assert [(row.value, row.offset, row.headers[0].key) for row in rows] == [(b"a", 0, "h"), (b"b", 1, "h")]
