"""A compacted topic as a table that a stream is joined with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from ottla.pipeline import table, topic
from ottla.pipeline.errors import JobError
from ottla.pipeline.rows import Table, from_json
from ottla.spark.errors import UnknownTopicError
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.topic import Topic
from tests.support.eventually import eventually

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def airlines(new_topic: TopicFactory) -> Topic:
    return new_topic(2, config=COMPACTED)


def put(airlines: Topic, key: str, name: str | None) -> None:
    value = None if name is None else json.dumps({"name": name})
    airlines.put(key, value)


def test_a_stream_sees_the_table_as_it_is_in_each_micro_batch(
    spark: SparkSession, airlines: Topic, new_topic: TopicFactory, tmp_path: Path
) -> None:
    context = context_of(spark, tmp_path, airlines.bootstrap)
    put(airlines, "UA", "United")
    put(airlines, "AA", "American")
    put(airlines, "UA", "United Air")
    flights = new_topic()
    names = table(airlines.name, key="carrier", schema="name STRING").load(context)
    rows = from_json(topic(flights.name).load(context), "carrier STRING, n INT").rows
    joined = rows.join(F.broadcast(names), "carrier", "left").select("n", "carrier", "name")
    query = (
        joined.writeStream.format("memory")
        .queryName("flights_with_names")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )

    def arrive(number: int, *carriers: str) -> list[tuple[Any, ...]]:
        flights.send([json.dumps({"carrier": carrier, "n": number}) for carrier in carriers])

        def there() -> list[tuple[Any, ...]]:
            found = spark.table("flights_with_names").where(F.col("n") == number).orderBy("carrier").collect()
            return [tuple(row)[1:] for row in found]

        eventually(lambda: len(there()) == len(carriers), timeout_s=90)
        return there()

    try:
        assert arrive(1, "AA", "UA", "ZZ") == [("AA", "American"), ("UA", "United Air"), ("ZZ", None)]
        put(airlines, "ZZ", "Zed")
        put(airlines, "UA", None)
        put(airlines, "AA", "American Airlines")
        assert arrive(2, "AA", "UA", "ZZ") == [("AA", "American Airlines"), ("UA", None), ("ZZ", "Zed")]
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("made", "columns"),
    [
        (lambda name: table(name, key="carrier", schema="name STRING"), ["carrier", "name"]),
        (lambda name: table(name, key="name", schema="name STRING"), ["name"]),
        (lambda name: table(name, key="name", decode=lambda rows: from_json(rows, "name STRING")), ["name"]),
    ],
)
def test_the_key_is_a_column_of_the_value_or_the_records_key(
    spark: SparkSession, airlines: Topic, tmp_path: Path, made: Callable[[str], Table], columns: list[str]
) -> None:
    put(airlines, "UA", "United")

    rows = made(airlines.name).load(context_of(spark, tmp_path, airlines.bootstrap))

    assert rows.columns == columns
    assert rows.select("name").collect() == [("United",)]


def test_a_table_is_only_asked_for_news_when_it_is_older_than_its_refresh(
    spark: SparkSession, airlines: Topic, tmp_path: Path
) -> None:
    context = context_of(spark, tmp_path, airlines.bootstrap)
    put(airlines, "UA", "United")
    lazy = table(airlines.name, key="carrier", schema="name STRING", refresh="1 hour").load(context)
    assert lazy.collect() == [("UA", "United")]

    put(airlines, "UA", "United Air")

    assert lazy.collect() == [("UA", "United")]
    eager = table(airlines.name, key="carrier", schema="name STRING").load(context)
    assert eager.collect() == [("UA", "United Air")]


def test_a_record_that_cannot_be_decoded_is_named(spark: SparkSession, airlines: Topic, tmp_path: Path) -> None:
    airlines.put("UA", "United")

    rows = table(airlines.name, key="carrier", schema="name STRING").load(
        context_of(spark, tmp_path, airlines.bootstrap)
    )

    with pytest.raises(PySparkException, match=rf"the table '{airlines.name}' cannot be read: .* malformed JSON"):
        rows.collect()


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    rows = table("no-such-table", key="k", schema="name STRING").load(context_of(spark, tmp_path, bootstrap))

    with pytest.raises(PySparkException, match=f"{UnknownTopicError.__name__}.*no-such-table"):
        rows.collect()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: table("t", key="k"), "needs either a schema"),
        (lambda: table("t", key=(), schema="k INT"), "key names the columns"),
        (lambda: table("t", key="k", schema="k INT", refresh="soon"), "refresh is an interval"),
        (lambda: table("", key="k", schema="k INT"), "made of a topic"),
    ],
)
def test_a_table_that_cannot_be_is_refused_where_it_is_written(make: Callable[[], Table], said: str) -> None:
    with pytest.raises(JobError, match=said):
        make()


def test_intervals_are_as_spark_writes_them() -> None:
    def refresh_ms(text: str) -> int:
        return table("t", key="k", schema="k INT", refresh=text).refresh_ms

    texts = ["500 ms", "500 milliseconds", "1 second", "30 s", "2 minutes", "3m", "1 hour"]
    assert [refresh_ms(text) for text in texts] == [500, 500, 1_000, 30_000, 120_000, 180_000, 3_600_000]


def test_a_key_that_is_no_column_is_refused(spark: SparkSession, airlines: Topic, tmp_path: Path) -> None:
    def decode(rows: DataFrame) -> Any:
        return from_json(rows, "name STRING")

    with pytest.raises(JobError, match=r"has no column 'carrier', its key; it has: name"):
        table(airlines.name, key="carrier", decode=decode).load(context_of(spark, tmp_path, airlines.bootstrap))
