"""What Spark's own functions do with a stream of rows: the examples of docs/pipeline.md, run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ottla.pipeline import Job, topic
from ottla.pipeline.progress import Figures, FlowProgress
from ottla.pipeline.rows import drop_duplicates, from_json, watermark
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import Ended, run_job, run_to_end
from tests.pipeline.topic import Topic

FLIGHT = "carrier STRING, at TIMESTAMP, delay INT"


def flight(carrier: str, minute: int, delay: int = 0) -> str:
    return json.dumps({"carrier": carrier, "at": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z", "delay": delay})


def flights(spark: SparkSession, source: Topic, **options: str) -> DataFrame:
    return from_json(source.stream(spark, **options), FLIGHT).rows


class ThreeDelays(StatefulProcessor):
    """Tells when a carrier's flights have been late three times in a row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._run = handle.getValueState("run", "length INT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        state = self._run.get()
        length = 0 if state is None else state[0]
        for row in sorted(rows, key=lambda row: row.at):
            length = length + 1 if row.delay >= 15 else 0
            if length == 3:
                yield Row(carrier=key[0], at=row.at)
        self._run.update((length,))

    def close(self) -> None:
        """Nothing is held."""


def test_state_of_ones_own_outlives_micro_batches_and_restarts(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic()
    alerts = (
        flights(spark, source, maxOffsetsPerTrigger="3")
        .groupBy("carrier")
        .transformWithState(ThreeDelays(), "carrier STRING, at TIMESTAMP", outputMode="Append", timeMode="None")
    )
    source.send([flight("UA", 1, 20), flight("UA", 2, 30), flight("AA", 3, 40), flight("AA", 4, 0)])
    assert run_to_end(alerts, tmp_path / "checkpoint").rows == []
    source.send([flight("UA", 5, 15), flight("AA", 6, 40), flight("AA", 7, 50), flight("UA", 8, 90)])

    ((carrier, at),) = run_to_end(alerts, tmp_path / "checkpoint").of("carrier", "at")

    assert (carrier, at.minute) == ("UA", 5)


def test_a_key_is_dropped_when_it_comes_again_and_forgotten_in_time(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic()
    once = drop_duplicates(flights(spark, source), "carrier", column="at", within="10 minutes")
    source.send([flight("UA", 0), flight("UA", 5), flight("AA", 0)])
    assert run_to_end(once, tmp_path / "checkpoint").of("carrier") == [("AA",), ("UA",)]
    source.send([flight("UA", 9), flight("BB", 60)])
    assert run_to_end(once, tmp_path / "checkpoint").of("carrier") == [("BB",)]
    source.send([flight("UA", 61)])

    ended = run_to_end(once, tmp_path / "checkpoint")

    assert ended.of("carrier") == [("UA",)]
    assert [each["numRowsTotal"] for each in ended.batches[-1]["stateOperators"]] == [2]  # BB and the new UA
    with pytest.raises(ValueError, match="by which rows are compared"):
        drop_duplicates(once, column="at", within="10 minutes")


@pytest.mark.parametrize(
    ("within", "again"),
    [
        ("1 hour", [("AA", 31)]),  # longer than the delay: UA, half an hour later, is still known
        ("2 minutes", [("AA", 31), ("UA", 30)]),  # shorter: forgotten as soon as the watermark is two minutes past it
        (None, [("AA", 31), ("UA", 30)]),
    ],
)
def test_the_horizon_of_duplicates_is_not_the_watermarks_delay(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, within: str | None, again: list[tuple[str, int]]
) -> None:
    source = new_topic()
    marked = watermark(flights(spark, source), "at", "10 minutes").select("carrier", F.col("at"))
    once = drop_duplicates(marked, "carrier", column="AT", within=within)
    source.send([flight("UA", 0), flight("UA", 1), flight("BB", 12)])  # the watermark comes to minute 2
    assert run_to_end(once, tmp_path / "checkpoint").of("carrier") == [("BB",), ("UA",)]
    # late is what the watermark says, not the horizon: CC, at minute 2, is, and DD, a minute later, is not
    source.send([flight("CC", 2), flight("DD", 3), flight("ZZ", 21)])
    second = run_to_end(once, tmp_path / "checkpoint")
    assert second.of("carrier") == [("DD",), ("ZZ",)]
    assert sum(each["stateOperators"][0]["numRowsDroppedByWatermark"] for each in second.batches) == 1
    source.send([flight("UA", 30), flight("AA", 31)])

    ended = run_to_end(once, tmp_path / "checkpoint")

    assert sorted((carrier, at.minute) for carrier, at in ended.of("carrier", "at")) == again


def test_the_watermark_behind_duplicates_is_the_one_before_them(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic()
    marked = watermark(flights(spark, source), "at", "10 minutes", window="10 minutes")
    once = drop_duplicates(marked, "carrier", column="at", within="1 hour")
    counts = once.groupBy(F.window("at", "10 minutes")).count().select(F.col("window.start").alias("start"), "count")
    source.send([flight("UA", 0), flight("UA", 1), flight("AA", 9), flight("ZZ", 21)])

    ended = run_to_end(counts, tmp_path / "checkpoint")

    # closed at minute 10, of which the watermark is one past: with a delay of an hour it would be open
    assert [(start.minute, count) for start, count in ended.of("start", "count")] == [(0, 2)]


def test_what_spark_would_refuse_later_is_refused_before_anything_runs(
    spark: SparkSession, new_topic: TopicFactory
) -> None:
    rows = flights(spark, new_topic()).withColumn("other", F.col("at"))
    with pytest.raises(ValueError, match="have a watermark on 'other', and Spark deduplicates by one column"):
        drop_duplicates(watermark(rows, "other", "10 minutes"), "carrier", column="at", within="10 minutes")
    with pytest.raises(ValueError, match="no watermark on 'at': say by within="):
        drop_duplicates(rows, "carrier", column="at")
    marked = watermark(rows, "at", "10 minutes")
    with pytest.raises(ValueError, match="finds no duplicates within '0 seconds'"):
        drop_duplicates(marked, "carrier", column="at", within="0 seconds")
    for no_time in ("-1 minute", "soon"):
        with pytest.raises((AnalysisException, IllegalArgumentException)):
            drop_duplicates(marked, "carrier", column="at", within=no_time)


def test_two_streams_are_joined_within_a_time_and_state_ends(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    departures, weather = new_topic(), new_topic()
    left = watermark(flights(spark, departures), "at", "10 minutes")
    right = from_json(weather.stream(spark), "airline STRING, hour TIMESTAMP, wind INT").rows.withWatermark(
        "hour", "10 minutes"
    )
    same_hour = F.expr("carrier = airline AND at >= hour AND at < hour + INTERVAL 1 HOUR")
    joined = left.join(right, same_hour, "left").select("carrier", "wind")

    def windy(airline: str, minute: int, wind: int) -> str:
        return json.dumps({"airline": airline, "hour": f"2026-01-01T{minute // 60:02}:00:00Z", "wind": wind})

    departures.send([flight("UA", 10), flight("AA", 70)])
    weather.send([windy("UA", 0, 5)])
    assert run_to_end(joined, tmp_path / "checkpoint").of("carrier", "wind") == [("UA", 5)]
    departures.send([flight("ZZ", 600)])
    weather.send([windy("ZZ", 600, 9)])

    ended = run_to_end(joined, tmp_path / "checkpoint")

    # AA's weather never came: it is given up when it cannot come any more
    assert ended.of("carrier", "wind") == [("AA", None), ("ZZ", 9)]
    assert sum(each["numRowsTotal"] for each in ended.batches[-1]["stateOperators"]) == 2


def watermark_of(ended: Ended) -> str:
    return str(ended.batches[-1]["eventTime"]["watermark"])


def test_an_idle_partition_does_not_hold_back_the_watermark(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(3)
    marked = watermark(flights(spark, source), "at", "10 minutes")
    counts = marked.groupBy(F.window("at", "1 hour")).count()
    for minute in (5, 130):
        source.put("UA", flight("UA", minute))  # to one partition: they have one key

    ended = run_to_end(counts, tmp_path / "checkpoint")

    assert ended.of("count") == [(1,)]
    assert watermark_of(ended) == "2026-01-01T02:00:00.000Z"


def test_a_record_that_moves_the_time_is_left_out_behind_the_watermark(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    """Spark moves a filter below the watermark, unless the time is in its condition."""
    source = new_topic()
    marked = watermark(flights(spark, source), "at", "10 minutes")
    source.send([flight("UA", 5), flight("tick", 130)])
    reached = []
    for number, condition in enumerate(("carrier <> 'tick'", "carrier <> 'tick' OR at IS NULL")):
        counts = marked.where(condition).groupBy(F.window("at", "1 hour")).count()
        ended = run_to_end(counts, tmp_path / str(number))
        reached.append((watermark_of(ended), ended.of("count")))
    assert reached == [("2025-12-31T23:55:00.000Z", []), ("2026-01-01T02:00:00.000Z", [(1,)])]


@pytest.mark.parametrize(("policy", "at"), [("min", "2026-01-01T00:50:00.000Z"), ("max", "2026-01-01T09:50:00.000Z")])
def test_an_idle_input_of_two_holds_back_the_watermark_unless_the_policy_is_max(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, policy: str, at: str
) -> None:
    departures, arrivals = new_topic(), new_topic()
    left = watermark(flights(spark, departures), "at", "10 minutes")
    right = watermark(flights(spark, arrivals), "at", "10 minutes").select(
        F.col("carrier").alias("airline"), F.col("at").alias("then")
    )
    joined = left.join(right, F.expr("carrier = airline AND at = then"), "left")
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
    try:
        departures.send([flight("UA", 60)])
        arrivals.send([flight("UA", 60)])
        run_to_end(joined, tmp_path / "checkpoint")
        departures.send([flight("ZZ", 600)])

        ended = run_to_end(joined, tmp_path / "checkpoint")
    finally:
        spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")

    assert watermark_of(ended) == at
    figures = FlowProgress(Figures("joined", 0.0))
    for number, batch in enumerate(ended.batches):
        figures.on_batch(batch, 100.0 + number)
    idle = figures.figures.inputs[f"topic {arrivals.name}"]
    assert (idle["records"], figures.figures.inputs[f"topic {departures.name}"]["records"]) == (0, 1)


def test_a_flow_in_sql_aggregates_what_a_view_in_sql_gives(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out = new_topic(), new_topic()
    job = Job("in-sql")

    @job.view(records=topic(source.name))
    def decoded(records: DataFrame) -> DataFrame:
        return watermark(from_json(records, FLIGHT).rows, "at", "10 minutes", window="1 hour")

    job.sql_view("delayed", "SELECT * FROM flights WHERE delay >= 15", flights="decoded")
    job.sql_flow(
        "delays",
        """
        SELECT carrier, count(*) AS flights, sum(delay) AS minutes
        FROM delayed GROUP BY carrier, window(at, '1 hour')
        """,
        delayed="delayed",
        to=topic(out.name),
    )
    source.send(
        [flight("UA", 5, 20), flight("UA", 6, 30), flight("UA", 7, 0), flight("AA", 8, 15), flight("UA", 200, 60)]
    )

    run_job(job, context_of(spark, tmp_path, bootstrap), tmp_path / "checkpoints")

    found = [json.loads(each.value() or b"") for each in out.messages()]
    assert sorted(found, key=lambda row: row["carrier"]) == [
        {"carrier": "AA", "flights": 1, "minutes": 15},
        {"carrier": "UA", "flights": 2, "minutes": 50},
    ]


def test_sessions_end_after_a_gap(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    source = new_topic()
    bursts = (
        watermark(flights(spark, source), "at", "10 minutes", session="5 minutes")
        .groupBy(F.session_window("at", "5 minutes"), "carrier")
        .count()
    )
    source.send([flight("UA", minute) for minute in (0, 3, 7, 20, 22, 90)])

    assert run_to_end(bursts, tmp_path / "checkpoint").of("carrier", "count") == [("UA", 2), ("UA", 3)]
