"""Inputs that may be idle: they hold back no watermark, and cost no row that keeps to the interval."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.context import RunContext
from ottla.pipeline.inputs import Input
from ottla.pipeline.progress import Figures, FlowProgress
from ottla.pipeline.queries import plan
from ottla.pipeline.rows import from_json, watermark
from ottla.pipeline.sinks import each_batch
from ottla.pipeline.sinks.batches import MicroBatch
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.support.eventually import eventually

AFTER = "2 seconds"
AT_MOST_S = 150
"""Only what never comes out takes as long: how long a micro-batch takes is up to the machine."""


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def flight(carrier: str, seconds_ago: float) -> str:
    return json.dumps({"carrier": carrier, "at": ago(seconds_ago)})


def joined_with(left: Input, right: Input, rows: dict[int, list[tuple[Any, ...]]]) -> Job:
    """Flights with the weather of their minute, or without: a flow that collects its rows by micro-batch.

    A micro-batch that a stop interrupts after it was written is written again, under its number.
    """
    job = Job("joined")

    def keep(batch: MicroBatch, _context: RunContext) -> None:
        rows[batch.number] = [(row.carrier, row.wind) for row in batch.rows.collect()]

    @job.flow(flights=left, weather=right, to=each_batch(keep), trigger="0 seconds")
    def joined(flights: DataFrame, weather: DataFrame) -> DataFrame:
        planes = watermark(from_json(flights, "carrier STRING NOT NULL, at TIMESTAMP NOT NULL").rows, "at", "1 second")
        hours = from_json(weather, "airline STRING, then TIMESTAMP, wind INT").rows
        winds = watermark(hours, "then", "1 second")
        near = F.expr("carrier = airline AND at >= then AND at < then + INTERVAL 1 MINUTE")
        return planes.join(winds, near, "left").select("carrier", "wind", "at")

    return job


@contextmanager
def running(job: Job, spark: SparkSession, bootstrap: str, directory: Path) -> Iterator[Any]:
    context = context_of(spark, directory, bootstrap)
    (planned,) = plan(job, context)
    query = planned.start(context, context.home / "checkpoints" / planned.name)
    try:
        yield query
        assert query.exception() is None
    finally:
        query.stop()


def test_an_idle_input_of_a_join_does_not_hold_back_what_has_no_match(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    """The input never brings anything; the others' rows come out all the same, each once, also after a restart."""
    departures, weather = new_topic(), new_topic(2)
    rows: dict[int, list[tuple[Any, ...]]] = {}

    def written() -> list[tuple[Any, ...]]:
        return list(chain.from_iterable(rows.values()))

    # a row each micro-batch: the times must not overtake what waits in the topic
    busy = topic(departures.name, maxOffsetsPerTrigger=1)
    job = joined_with(busy, topic(weather.name, idle_after=AFTER), rows)
    departures.send([flight(name, 10) for name in ("UA", "AA", "ZZ")])
    departures.send([flight("--", 0)])

    with running(job, spark, bootstrap, tmp_path) as query:
        eventually(lambda: len(written()) == 3 or query.exception() is not None, timeout_s=AT_MOST_S)
        figures = FlowProgress(Figures("joined", 0.0))
        for event in query.recentProgress:
            figures.on_batch(json.loads(event.json), time.time())
        assert sum(int(each["numInputRows"]) for each in map(json.loads, (e.json for e in query.recentProgress))) > 4
    assert figures.figures.records == 4, "a time is no record"
    assert f"topic {departures.name}" in figures.figures.inputs
    assert set(figures.figures.inputs) <= {f"topic {departures.name}", f"topic {weather.name}"}

    weather.send([json.dumps({"airline": "BB", "then": ago(0), "wind": 9})])  # in time, for the first time
    departures.send([flight("BB", 0)])
    with running(job, spark, bootstrap, tmp_path) as query:
        eventually(lambda: ("BB", 9) in written() or query.exception() is not None, timeout_s=AT_MOST_S)
    assert sorted(row for row in written() if row[0] != "--") == [("AA", None), ("BB", 9), ("UA", None), ("ZZ", None)]


def test_windows_close_when_no_input_brings_anything_but_not_before_what_waits_is_read(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(2)
    found: list[int] = []
    job = Job("counted")

    def keep(batch: MicroBatch, _context: RunContext) -> None:
        time.sleep(0.3)  # so that reading takes longer than the interval
        found.extend(row["seen"] for row in batch.rows.collect())

    given = topic(source.name, idle_after="1 second", maxOffsetsPerTrigger=2)

    @job.flow(records=given, to=each_batch(keep), trigger="0 seconds")
    def counted(records: DataFrame) -> DataFrame:
        rows = watermark(from_json(records, "carrier STRING, at TIMESTAMP").rows, "at", "1 second")
        return rows.groupBy(F.window("at", "1 day")).agg(F.count("carrier").alias("seen"))

    # days ago: by the clock their window closed long before they are read
    source.send([flight("UA", 864_000)] * 6)
    source.send([flight("UA", 864_000)] * 3, partition=1)
    with running(job, spark, bootstrap, tmp_path) as query:
        eventually(lambda: bool(found) or query.exception() is not None, timeout_s=AT_MOST_S)
        dropped = [
            operator["numRowsDroppedByWatermark"]
            for event in query.recentProgress
            for operator in json.loads(event.json)["stateOperators"]
        ]
    assert (found, sum(dropped)) == ([9], 0)
