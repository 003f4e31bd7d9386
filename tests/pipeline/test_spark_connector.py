"""Spark's own connector, a JVM client, against the broker, and beside `ottla`: moving between the two is one word."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession

from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def read(spark: SparkSession, form: str, topic: Topic, **options: str) -> DataFrame:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", topic.bootstrap)
    table: DataFrame = reader.option("subscribe", topic.name).options(includeHeaders="true", **options).load()
    return table


def stream(spark: SparkSession, form: str, topic: Topic, **options: str) -> DataFrame:
    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", topic.bootstrap)
    reader = reader.option("subscribe", topic.name).option("startingOffsets", "earliest")
    table: DataFrame = reader.options(includeHeaders="true", **options).load()
    return table


def save(rows: DataFrame, form: str, topic: Topic) -> None:
    writer = rows.write.format(form).option("kafka.bootstrap.servers", topic.bootstrap).option("topic", topic.name)
    writer.mode("append").save()


def copy(rows: DataFrame, form: str, topic: Topic, checkpoint: Path) -> Any:
    writer = rows.writeStream.format(form).option("kafka.bootstrap.servers", topic.bootstrap)
    writer = writer.option("topic", topic.name).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def everything(rows: DataFrame) -> list[Row]:
    return rows.select(*COLUMNS).orderBy("partition", "offset").collect()


def values(topic: Topic) -> list[str]:
    return sorted((message.value() or b"").decode() for message in topic.messages())


@pytest.fixture
def mixed(new_topic: TopicFactory) -> Topic:
    """Records of all shapes, in batches of all compressions."""
    topic = new_topic(3)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        topic.send(map(str, range(20)), number % 3, codec, key=b"k", headers=[("h", b"1"), ("empty", b""), ("h", None)])
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, None, b"tombstone", 0, timestamp=1_600_000_000_123)
    producer.produce(topic.name, b"", None, 1)
    assert producer.flush(30) == 0
    return topic


def test_both_sources_give_the_same_rows(spark: SparkSession, mixed: Topic) -> None:
    ours, theirs = read(spark, "ottla", mixed), read(spark, "kafka", mixed)
    assert ours.schema == theirs.schema
    found = everything(ours)
    assert len(found) == 102
    assert found == everything(theirs)


def test_both_sinks_write_the_same_records(spark: SparkSession, new_topic: TopicFactory) -> None:
    ours, theirs = new_topic(4), new_topic(4)
    rows = spark.sql(
        "SELECT CAST(id % 10 AS STRING) AS key, CAST(id AS STRING) AS value, "
        "array(struct('h' AS key, CAST('1' AS BINARY) AS value)) AS headers FROM range(50)"
    ).coalesce(1)
    save(rows, "ottla", ours)
    save(rows, "kafka", theirs)
    assert [(m.partition(), m.key(), m.value(), m.headers()) for m in ours.messages()] == [
        (m.partition(), m.key(), m.value(), m.headers()) for m in theirs.messages()
    ]


@pytest.mark.parametrize(("source", "sink"), [("kafka", "kafka"), ("kafka", "ottla"), ("ottla", "kafka")])
def test_streams_go_on_after_a_restart(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, source: str, sink: str
) -> None:
    here, there = new_topic(2), new_topic(2)
    rows = stream(spark, source, here, maxOffsetsPerTrigger="25").select("key", "value", "headers")
    here.send(map(str, range(100, 150)), partition=0)
    copy(rows, sink, there, tmp_path)
    here.send(map(str, range(150, 170)), partition=1)
    copy(rows, sink, there, tmp_path)
    assert values(there) == list(map(str, range(100, 170)))


def test_aborted_transactions_are_left_out_by_both(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic, sink = new_topic(), new_topic()
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(30)
    for value, is_kept in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(topic.name, value)
        if is_kept:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)

    only_committed = {"kafka.isolation.level": "read_committed"}
    found = everything(read(spark, "kafka", topic, **only_committed))
    assert [row.value for row in found] == [b"a", b"c"]
    assert found == everything(read(spark, "ottla", topic, **only_committed))
    assert [row.value for row in everything(read(spark, "kafka", topic))] == [b"a", b"b", b"c"]
    copy(stream(spark, "kafka", topic, **only_committed).select("value"), "ottla", sink, tmp_path)
    assert values(sink) == ["a", "c"]
