"""Late rows as corrections: the output is as if none had been late, and each counts once."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.brokers import Brokers
from ottla.pipeline.context import AVAILABLE_NOW, RunContext
from ottla.pipeline.corrections import Closing, Rule
from ottla.pipeline.errors import JobError
from ottla.pipeline.queries import Planned, follower, plan, run_stage
from ottla.pipeline.rows import drop_duplicates, from_json
from ottla.pipeline.rows.late import Follower, Position
from ottla.pipeline.sinks import parquet
from ottla.pipeline.sinks.base import Sink
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.sink_targets import Target
from tests.pipeline.topic import Topic

SCHEMA = "k STRING, at TIMESTAMP, price DECIMAL(10,2), ok BOOLEAN"
KEY = ("start", "k")
OPEN = 100
"""The minute of the last row of each micro-batch: it puts the watermark at minute 90, and its window stays open."""


def event(key: str | None, minute: int, price: str | None, *, ok: bool = True) -> str:
    at = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"
    return json.dumps({"k": key, "at": at, "price": price, "ok": ok})


FIRST = [event("a", 5, "1.10"), event("a", 6, None), event("b", 7, "2.20"), event("c", OPEN, "1.00")]
SECOND = [event("a", 8, "0.90", ok=False), event("b", 9, "5.00"), event("new", 3, "7.00"), event("c", OPEN, "1.00")]
THIRD = [event("a", 4, "100.01"), event("a", 95, "3.00"), event("c", OPEN, "1.00")]


def aggregated(rows: DataFrame) -> DataFrame:
    """Windows of ten minutes; the watermark is ten minutes behind."""
    windows = rows.withWatermark("at", "10 minutes").groupBy(F.window("at", "10 minutes"), "k")
    found = windows.agg(
        F.count("*").alias("n"),
        F.sum("price").alias("total"),
        F.min("price").alias("least"),
        F.max("at").alias("last"),
        F.avg(F.col("price").cast("double")).alias("mean"),
        F.sum(F.col("price").cast("double")).alias("sum_of_mean"),
        F.count(F.col("price").cast("double")).alias("count_of_mean"),
        F.bool_and("ok").alias("every"),
    )
    return found.select(F.col("window.start").alias("start"), *found.columns[1:])


@dataclass
class Corrected:
    """A flow with late='correct', run to the end of its input again and again."""

    spark: SparkSession
    directory: Path
    source: Topic
    sink: Sink
    mode: str
    build: Callable[[DataFrame], DataFrame] = aggregated

    @property
    def context(self) -> RunContext:
        return context_of(self.spark, self.directory, self.source.bootstrap)

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def job(self) -> Job:
        job = Job("job")

        @job.flow(rows=topic(self.source.name), to=self.sink, mode=self.mode, late="correct")
        def flow(rows: DataFrame) -> DataFrame:
            return self.build(from_json(rows, SCHEMA).rows)

        return job

    def planned(self) -> Planned:
        (planned,) = plan(self.job(), self.context, trigger=AVAILABLE_NOW)
        return planned

    def run(self, values: list[str]) -> None:
        self.source.send(values)
        run_stage([self.planned()], self.context, lambda _name: self.checkpoint)

    def follower(self) -> Follower:
        """As a process that has just begun has it."""
        return follower(self.job(), self.planned(), self.context, self.checkpoint, self.directory / "late.json")

    def as_if_in_time(self) -> list[tuple[Any, ...]]:
        """What a batch over all records gives, but for the windows that append mode has not closed yet."""
        records = self.source.table(self.spark, includeHeaders="true")
        rows = self.build(from_json(records, SCHEMA).rows)
        return plain(row.asDict() for row in rows.collect() if self.mode == "update" or row.start.minute < 30)


def plain(rows: Iterator[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows as texts and numbers, whatever the sink keeps of their types: times by minute."""
    names = ("k", "n", "total", "least", "mean", "every")
    found = []
    for row in rows:
        start = row["start"].strftime("%H:%M") if hasattr(row["start"], "strftime") else str(row["start"])[11:16]
        values = [None if row[name] is None else float(row[name]) if name != "k" else row[name] for name in names]
        found.append((start, *values))
    return sorted(found, key=str)


# Iceberg is merged into by the same code as Delta, and `tests/unit/pipeline/sinks/test_crashes.py` kills both
@pytest.fixture(
    params=["database", "topic", *(pytest.param(each, marks=pytest.mark.soak) for each in ("delta", "iceberg"))]
)
def flow(request: pytest.FixtureRequest, spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> Corrected:
    if request.param == "topic":
        sink: Sink = topic(new_topic(2, config={"cleanup.policy": "compact"}).name, key=KEY)
    else:
        sink = Target(request.param, tmp_path).sink(key=KEY)
    return Corrected(spark, tmp_path, new_topic(), sink, "append" if request.param in ("delta", "topic") else "update")


def written(flow: Corrected) -> list[tuple[Any, ...]]:
    """What a reader sees: of a topic, the newest record of each key."""
    found = flow.sink.read(flow.context).collect()
    if not isinstance(flow.sink, type(topic("t"))):
        return plain(row.asDict() for row in found)
    newest = {row["key"]: row["value"] for row in sorted(found, key=lambda row: row["offset"])}
    return plain(json.loads(value) for value in newest.values())


def test_the_output_is_as_if_no_row_had_been_late(flow: Corrected) -> None:
    flow.run(FIRST)
    flow.run(SECOND)  # a, b and "new" are late: their window has ended
    late = flow.follower()
    assert late.catch_up(unheard=True) == 3

    last = Position.read(late.position)
    assert last is not None
    Position(last.batch - 1, 0).write(late.position)  # killed after the sink's commit, before the note
    flow.run(THIRD)
    again = flow.follower()
    assert (again.catch_up(unheard=True), again.catch_up(unheard=True), again.total) == (4, 0, 4)
    assert written(flow) == flow.as_if_in_time()


WINDOW = "window.start AS start", "window.end AS end"


def refused(flow: Corrected, build: Callable[[DataFrame], DataFrame]) -> str:
    flow.build = build
    with pytest.raises(JobError) as caught:
        flow.planned()
    assert "late=topic('flow-late')" in str(caught.value) or "leave late= out" in str(caught.value)
    return str(caught.value)


def grouped(rows: DataFrame, *more: Any) -> Any:
    return rows.withWatermark("at", "10 minutes").groupBy(F.window("at", "10 minutes"), "k", *more)


def opened(rows: DataFrame) -> DataFrame:
    return rows.withColumn("start", F.col("window.start")).drop("window")


def test_what_cannot_be_merged_is_refused_before_anything_runs(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    flow = Corrected(spark, tmp_path, Topic(bootstrap, "unread"), Target("database", tmp_path).sink(key=KEY), "append")

    def because(build: Callable[[DataFrame], DataFrame]) -> str:
        return refused(flow, build).partition("cannot be: ")[2]

    approximate = F.approx_count_distinct("price").alias("n")
    assert because(lambda rows: opened(grouped(rows).agg(approximate))).startswith(
        "the column 'n' is approx_count_distinct(price), which late rows cannot be merged into; those that can be are "
    )
    mean = F.avg(F.col("price").cast("double")).alias("mean")
    assert "averages alone cannot be merged: write the sum and the count" in because(
        lambda rows: opened(grouped(rows).agg(mean, F.sum("price").alias("total"), F.count("*").alias("n")))
    )
    total, count = F.sum("price").alias("total"), F.count("*").alias("n")
    ratio = (F.col("total") / F.col("n")).alias("ratio")
    assert "'ratio' is computed from aggregates" in because(
        lambda rows: opened(grouped(rows).agg(total, count)).select("*", ratio)
    )
    assert "left out by their aggregates" in because(
        lambda rows: opened(grouped(rows).agg(count)).where(F.col("n") > 1)
    )
    sessions = F.session_window("at", "5 minutes").alias("window")
    assert "join two sessions" in because(
        lambda rows: opened(rows.withWatermark("at", "10 minutes").groupBy(sessions, "k").agg(count))
    )
    assert because(lambda rows: drop_duplicates(rows, "k", column="at", within="1 minute")).startswith(
        "it has a deduplication within the watermark, which decides which rows are late"
    )
    assert "lacks ok, by which rows are grouped" in because(lambda rows: opened(grouped(rows, "ok").agg(count)))
    assert "aggregates nothing" in because(lambda rows: rows.withColumn("start", F.col("at")))
    assert "none is ever late" in because(
        lambda rows: rows.groupBy(F.date_trunc("hour", "at").alias("start"), "k").agg(count)
    )
    first = F.first("price").alias("first")
    assert "'first' is first(price)" in because(lambda rows: opened(grouped(rows).agg(first)))


def test_columns_that_follow_from_the_key_and_tables_are_no_obstacle(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    names = spark.createDataFrame([("a", "Anna")], "k STRING, name STRING")

    def named(rows: DataFrame) -> DataFrame:
        counts = grouped(rows.where("price > 0")).agg(F.count("*").alias("n"), F.max("price").alias("most"))
        joined = counts.join(F.broadcast(names), "k", "left")
        return joined.selectExpr("window", *WINDOW[:1], "k", "upper(k) AS big", "name", "n", "most").where("k <> 'x'")

    sink = Target("database", tmp_path).sink(key=KEY)
    found = Corrected(spark, tmp_path, Topic(bootstrap, "unread"), sink, "append", named).planned().corrections

    assert found is not None
    rules = {name: rule.value for name, rule in found.rules.items() if isinstance(rule, Rule)}
    late = "that of the late rows"
    assert rules == {"window": late, "big": late, "name": late, "n": "sum", "most": "max"}
    assert found.closes == Closing("window", "end")

    def started(rows: DataFrame) -> DataFrame:
        return named(rows).drop("window")

    found = Corrected(spark, tmp_path, Topic(bootstrap, "unread"), sink, "append", started).planned().corrections
    assert found is not None
    assert found.closes == Closing("start", after_us=600_000_000)


def test_sql_is_judged_as_python_is(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    def counted(rows: DataFrame) -> DataFrame:
        rows.withWatermark("at", "10 minutes").createOrReplaceTempView("rows_of_sql")
        return spark.sql(
            "SELECT window.end AS start, k, count_if(ok) AS n FROM rows_of_sql "
            "GROUP BY window(at, '10 minutes', '5 minutes'), k"
        )

    sink = Target("database", tmp_path).sink(key=KEY)
    found = Corrected(spark, tmp_path, Topic(bootstrap, "unread"), sink, "update", counted).planned().corrections

    assert found is not None
    assert found.closes == Closing("start")


def test_sinks_that_only_append_are_refused_where_they_are_declared() -> None:
    job = Job("job")
    with pytest.raises(
        JobError, match=r"rows of Parquet files out cannot be changed by their key.*late=topic\('flow-l"
    ):
        job.sql_flow("flow", "SELECT * FROM rows", rows=topic("t"), to=parquet("out"), late="correct")
    with pytest.raises(JobError, match=r"by their key, and topic t has none"):
        job.sql_flow("flow", "SELECT * FROM rows", rows=topic("t"), to=topic("t"), late="correct")
    with pytest.raises(JobError, match=r"no row is late in mode 'complete'"):
        job.sql_flow(
            "flow", "SELECT * FROM rows", rows=topic("t"), to=topic("t", key="k"), late="correct", mode="complete"
        )
    with pytest.raises(JobError, match=r"or are merged into the output: late='correct'"):
        job.sql_flow("flow", "SELECT * FROM rows", rows=topic("t"), to=topic("t", key="k"), late="corrct")


def test_a_topic_that_forgets_is_no_output_to_correct(new_topic: TopicFactory, bootstrap: str) -> None:
    kept, forgotten = (new_topic(config={"cleanup.policy": policy}).name for policy in ("compact", "compact,delete"))
    assert Brokers({"bootstrap.servers": bootstrap}).not_compacted([kept, forgotten]) == {forgotten: "compact,delete"}
