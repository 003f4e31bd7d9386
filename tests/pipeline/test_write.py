import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ottla.spark import OptionError
from ottla.spark.schema import check_write_schema
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic


def save(rows: DataFrame, topic: Topic, *, named: bool = True) -> None:
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", topic.bootstrap).mode("append")
    (writer.option("topic", topic.name) if named else writer).save()


def test_rows_become_records(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(3)
    rows = spark.createDataFrame(
        [
            (b"k", "text", [("h", b"1"), ("h", None)], 2),
            (None, None, None, 0),
        ],
        "key BINARY, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT",
    )

    save(rows, topic)

    plain, full = topic.messages()
    assert (plain.partition(), plain.key(), plain.value(), plain.headers()) == (0, None, None, None)
    assert (full.partition(), full.key(), full.value()) == (2, b"k", b"text")
    assert full.headers() == [("h", b"1"), ("h", None)]


def test_keys_lie_where_the_java_client_puts_them(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(4)
    # what org.apache.kafka.common.utils.Utils.murmur2 of Kafka 4.1.1 says, made positive, modulo 4
    places = {"UA": 2, "HA": 3, "B6": 0, "EV": 3, "DL": 3, "AA": 1, "US": 0, "WN": 3}
    save(spark.createDataFrame([(key, "") for key in places], "key STRING, value STRING"), topic)
    assert {message.key(): message.partition() for message in topic.messages()} == {
        key.encode(): partition for key, partition in places.items()
    }


def test_each_row_can_name_its_topic(spark: SparkSession, new_topic: TopicFactory) -> None:
    left, right = new_topic(), new_topic()
    save(
        spark.createDataFrame([("1", left.name), ("2", right.name), ("3", left.name)], "value STRING, topic STRING"),
        left,
        named=False,
    )
    assert sorted(message.value() or b"" for message in left.messages()) == [b"1", b"3"]
    assert [message.value() for message in right.messages()] == [b"2"]


def test_a_stream_is_written_once_over_restarts(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    source, sink = new_topic(2), new_topic(2)

    def copy() -> None:
        query = (
            source.stream(spark, includeHeaders="true", maxOffsetsPerTrigger="500")
            .select("key", "value", "headers")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", sink.bootstrap)
            .option("topic", sink.name)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    source.send(map(str, range(1000)), partition=0, headers=[("from", b"here")])
    copy()
    source.send(map(str, range(1000, 1200)), partition=1, headers=[("from", b"here")])
    copy()
    copy()

    found = sink.messages()
    assert sorted(int(message.value() or b"") for message in found) == list(range(1200))
    assert all(message.headers() == [("from", b"here")] for message in found)


def copy(spark: SparkSession, source: Topic, sink: Topic, checkpoint: Path, **options: str) -> None:
    query = (
        source.stream(spark, maxOffsetsPerTrigger="500")
        .select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", sink.bootstrap)
        .option("topic", sink.name)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_the_last_micro_batch(checkpoint: Path) -> None:
    """As if Spark had died after the tasks of the last micro-batch, before it noted down that they were done."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("guarantee", "times"), [("exactly-once", 1), ("at-least-once", 2)], ids=["exactly-once", "at-least-once"]
)
def test_a_repeated_micro_batch_is_written_once(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, guarantee: str, times: int
) -> None:
    source, sink = new_topic(2), new_topic(2)
    source.send(map(str, range(300)), partition=0)
    source.send(map(str, range(300, 500)), partition=1)
    copy(spark, source, sink, tmp_path, deliveryGuarantee=guarantee)

    forget_the_last_micro_batch(tmp_path)
    copy(spark, source, sink, tmp_path, deliveryGuarantee=guarantee)
    source.send(map(str, range(500, 600)))
    copy(spark, source, sink, tmp_path, deliveryGuarantee=guarantee)

    found = sorted(int(message.value() or b"") for message in sink.messages())
    assert found == sorted([*range(500)] * times + [*range(500, 600)])


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(AnalysisException, match="topic 'nowhere' does not exist"):
        save(spark.createDataFrame([("1",)], "value STRING"), Topic(bootstrap, "nowhere"))


def test_a_topic_named_by_a_row_that_is_not_there_is_named(spark: SparkSession, bootstrap: str) -> None:
    rows = spark.createDataFrame([("1", "nowhere")], "value STRING, topic STRING")
    with pytest.raises(PySparkException, match=r"1 records could not be written.*nowhere"):
        save(rows, Topic(bootstrap, "nowhere"), named=False)


def test_a_record_that_is_refused_fails_the_query(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic(config={"max.message.bytes": "1000"})
    with pytest.raises(PySparkException, match=r"1 records could not be written.*[Mm]essage.*too large"):
        save(spark.createDataFrame([("x" * 2000,)], "value STRING"), topic)


def test_a_table_without_values_is_refused(spark: SparkSession, new_topic: TopicFactory) -> None:
    with pytest.raises(AnalysisException, match="needs a column 'value'; there are only: text"):
        save(spark.createDataFrame([("1",)], "text STRING"), new_topic())


@pytest.mark.parametrize(
    ("name", "kind", "problem"),
    [
        ("partition", LongType(), "column 'partition' must be integer to be written, it is bigint"),
        ("topic", BinaryType(), "column 'topic' must be string to be written, it is binary"),
        ("key", IntegerType(), "column 'key' must be string or binary to be written, it is int"),
        (
            "headers",
            MapType(StringType(), BinaryType()),
            "column 'headers' must be array<struct<key:string,value:binary>> to be written, it is map<string,binary>",
        ),
    ],
)
def test_columns_of_other_types_are_refused(name: str, kind: DataType, problem: str) -> None:
    with pytest.raises(OptionError, match=re.escape(problem)):
        check_write_schema(StructType([StructField("value", StringType()), StructField(name, kind)]), "t")


def test_rows_without_any_topic_are_refused() -> None:
    with pytest.raises(OptionError, match="set the option 'topic', or give each row its topic in a column 'topic'"):
        check_write_schema(StructType([StructField("value", StringType())]), None)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("1",)], "value STRING").write.format("ottla").mode("overwrite")
    with pytest.raises(AnalysisException, match="a topic can only be appended to"):
        rows.option("kafka.bootstrap.servers", topic.bootstrap).option("topic", topic.name).save()


def test_a_column_that_is_no_text_is_refused(spark: SparkSession, new_topic: TopicFactory) -> None:
    with pytest.raises(AnalysisException, match="column 'value' must be string or binary"):
        save(spark.createDataFrame([(1,)], "value INT"), new_topic())
