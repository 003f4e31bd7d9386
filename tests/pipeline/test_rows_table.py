"""A compacted topic as a table that a stream is joined with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, table, topic
from ottla.pipeline.context import AVAILABLE_NOW
from ottla.pipeline.errors import JobError
from ottla.pipeline.queries import plan
from ottla.pipeline.rows import Checked, Table, checked, from_json
from ottla.spark.errors import UnknownTopicError
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import run_to_end
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


def test_references_are_looked_up_in_the_table_as_it_is_in_each_micro_batch(
    spark: SparkSession, airlines: Topic, new_topic: TopicFactory, tmp_path: Path
) -> None:
    flights, letters = new_topic(), new_topic()
    put(airlines, "UA", "United")
    job = Job("references", dead_letters=topic(letters.name))

    @job.view(records=topic(flights.name), known=table(airlines.name, key="carrier", schema="name STRING"))
    def clean(records: DataFrame, known: DataFrame) -> Checked:
        rows = from_json(records, "carrier STRING, n INT").check("has n", F.col("n").isNotNull())
        return rows.expect_in("flies", "carrier", F.broadcast(known)).expect_in(
            "flies now", "carrier", known, otherwise="drop"
        )

    @job.flow(flights=clean, to=topic("kept"))
    def kept(flights: DataFrame) -> DataFrame:
        return flights.selectExpr("carrier AS value", "carrier")

    context = context_of(spark, tmp_path, airlines.bootstrap)
    flow, rejecting = plan(job, context, trigger=AVAILABLE_NOW)
    assert rejecting.name == "clean.dead-letters"  # not refused: its verdicts need no table

    def arrive(*carriers: str | None) -> tuple[list[tuple[Any, ...]], Any]:
        texts = [json.dumps({"carrier": carrier, "n": number}) for number, carrier in enumerate(carriers)]
        flights.send([*texts, json.dumps({"carrier": "UA"})])
        ended = run_to_end(flow.rows, tmp_path / "checkpoint")
        return ended.of("carrier"), ended.batches[-1]["observedMetrics"]["ottla_expectations_clean"]

    assert arrive("UA", "AA", "ZZ") == ([("UA",)], {"warn:flies": 2, "drop:flies now": 2})
    put(airlines, "AA", "American")
    put(airlines, "UA", None)
    assert arrive("UA", "AA", "AA") == ([("AA",), ("AA",)], {"warn:flies": 1, "drop:flies now": 1})

    @job.view(flights=clean, known=table(airlines.name, key="carrier", schema="name STRING"))
    def named(flights: DataFrame, known: DataFrame) -> Checked:
        joined = flights.join(known, "carrier", "left")
        return checked(joined).expect("has a name", F.col("name").isNotNull(), otherwise="drop")

    @job.flow(flights=named, to=topic("named"))
    def with_names(flights: DataFrame) -> DataFrame:
        return flights.selectExpr("carrier AS value", "name")

    assert len(list(plan(job, context, trigger=AVAILABLE_NOW))) == 4  # what rejects no row may come after a join

    @job.view(records=topic(flights.name), known=table(airlines.name, key="carrier", schema="name STRING"))
    def unsteady(records: DataFrame, known: DataFrame) -> Checked:
        rows = from_json(records, "carrier STRING, n INT")
        return rows.expect_in("flies", "carrier", known, otherwise="quarantine")

    @job.flow(flights=unsteady, to=topic("other"))
    def other(flights: DataFrame) -> DataFrame:
        return flights.selectExpr("carrier AS value")

    with pytest.raises(JobError, match=r"'unsteady' rejects rows by a condition .* it comes after a join with table"):
        list(plan(job, context, trigger=AVAILABLE_NOW))


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
