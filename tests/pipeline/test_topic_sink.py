"""Rows into a topic, whatever their columns and the output mode."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import topic
from ottla.pipeline.sinks import SinkError
from ottla.pipeline.sinks.topic import as_records
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import Flow, context_of


def test_changed_rows_are_written_once_though_the_micro_batch_is_repeated(
    spark: SparkSession, new_topic: TopicFactory, bootstrap: str, tmp_path: Path
) -> None:
    out = new_topic(2)
    flow = Flow(spark, tmp_path, "carrier STRING, day STRING", bootstrap)
    sink = topic(out.name, key=("carrier", "day"))

    def run() -> None:
        flow.run(sink, flow.rows().groupBy("carrier", "day").count(), mode="update")

    flow.feed({"carrier": "UA", "day": "1/2"}, {"carrier": "UA", "day": "1/2"}, {"carrier": None, "day": "3"})
    run()
    flow.forget_the_last_micro_batch()
    run()
    flow.feed({"carrier": "UA", "day": "1/2"})
    run()

    found = sorted((message.key(), json.loads(message.value() or b"")["count"]) for message in out.messages())
    assert found == [(b"%null/3", 1), (b"UA/1%2F2", 2), (b"UA/1%2F2", 3)]
    assert sink.read(context_of(spark, tmp_path, bootstrap)).count() == 3


def test_records_pass_through_with_key_and_headers(
    spark: SparkSession, new_topic: TopicFactory, bootstrap: str, tmp_path: Path
) -> None:
    source, out = new_topic(), topic(new_topic().name)
    source.send(["a", "b"], key="k", headers=[("from", b"here")])
    context = context_of(spark, tmp_path, bootstrap)
    flow = Flow(spark, tmp_path, "", bootstrap)

    flow.run(out, topic(source.name).load(context))

    rows = out.read(context).orderBy("offset").collect()
    assert [(bytes(row.key), bytes(row.value), row.topic) for row in rows] == [
        (b"k", b"a", out.name), (b"k", b"b", out.name),
    ]  # fmt: skip
    assert [header.key for row in rows for header in row.headers] == ["from", "from"]


def test_rows_become_json_keyed_by_their_columns(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'UA' carrier, 7 number, CAST(NULL AS DOUBLE) delay, TIMESTAMP '2013-01-01 05:00:00' at")
    (record,) = as_records(rows, ("carrier",), "topic t").collect()
    assert record.key == "UA"
    assert json.loads(record.value) == {"carrier": "UA", "number": 7, "delay": None, "at": "2013-01-01T05:00:00.000Z"}
    (record,) = as_records(rows.withColumn("key", F.lit("k")), (), "topic t").collect()
    assert (record.key, json.loads(record.value)["number"]) == ("k", 7)


def test_columns_that_would_be_lost_are_refused(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'v' value, 'UA' carrier")
    with pytest.raises(SinkError, match="column carrier would be lost"):
        as_records(rows, (), "topic t")
    with pytest.raises(SinkError, match="has key 'airline', and the rows have only: value, carrier"):
        as_records(rows, ("airline",), "topic t")
    with pytest.raises(SinkError, match="keyed by carrier, and the rows have a column 'key'"):
        as_records(rows.withColumn("key", F.lit("k")), ("carrier",), "topic t")
