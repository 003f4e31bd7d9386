"""Flows that follow each other: no row that was in time for the first is late for the second."""

import json
import random
import subprocess
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.context import AVAILABLE_NOW, RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import Topic as Given
from ottla.pipeline.progress import Figures, FlowProgress
from ottla.pipeline.queries import plan, run_stage
from ottla.pipeline.rows import from_json, watermark
from ottla.pipeline.rows.times import streams_of
from ottla.pipeline.sinks import each_batch
from ottla.pipeline.sinks.batches import MicroBatch
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import AT
from tests.pipeline.run_process import CommandLine
from tests.pipeline.topic import Topic
from tests.support.eventually import eventually

SCHEMA = "carrier STRING, at TIMESTAMP"


def flights(*given: tuple[str, float]) -> list[str]:
    return [json.dumps({"carrier": name, "at": (AT + timedelta(hours=hour)).isoformat()}) for name, hour in given]


class Chain:
    """A flow that passes flights on, and one that counts them by hour; `found` are the counts that came out."""

    def __init__(self, spark: SparkSession, directory: Path, bootstrap: str, source: str, middle: str) -> None:
        context = context_of(spark, directory, bootstrap)
        self.context = replace(context, checkpoints=context.home / "checkpoints")
        self.found: list[tuple[int, int]] = []
        self.source, self.middle = source, middle
        self.progress = FlowProgress(Figures("hourly", 0.0))
        self.dropped = 0

    def job(self, read: Given) -> Job:
        job = Job("chain")

        def keep(batch: MicroBatch, _context: RunContext) -> None:
            self.found += [(int(row.hour - AT.timestamp()) // 3600, row.n) for row in batch.rows.collect()]

        @job.flow(records=read, to=each_batch(keep), trigger="0 seconds")
        def hourly(records: DataFrame) -> DataFrame:
            rows = watermark(from_json(records, SCHEMA).rows, "at", "1 second")
            counts = rows.groupBy(F.window("at", "1 hour")).agg(F.count("carrier").alias("n"))
            return counts.select(F.unix_timestamp("window.start").alias("hour"), "n")

        @job.flow(records=topic(self.source), to=topic(self.middle, key="carrier"))
        def passed(records: DataFrame) -> DataFrame:
            return watermark(from_json(records, SCHEMA).rows, "at", "1 second")

        return job

    def take_up(self, read: Given, flow: str) -> None:
        """The flow takes in what there is, and ends."""
        planned = plan(self.job(read), self.context, trigger=AVAILABLE_NOW, flows={flow})
        assert self.context.checkpoints is not None
        run_stage([each for each in planned if each.name == flow], self.context, self.context.checkpoints.joinpath)

    def count(self, read: Given, until: int, checkpoint: str = "hourly") -> None:
        """Have `hourly` go on until so many hours are out, or it has nothing to do any more."""
        assert self.context.checkpoints is not None
        (hourly, *_) = plan(self.job(read), self.context, flows={"hourly"})
        query = hourly.start(self.context, self.context.checkpoints / checkpoint)
        try:
            eventually(lambda: len(self.found) >= until or query.exception() is not None, timeout_s=180)
            assert query.exception() is None
            query.processAllAvailable()
            for event in (json.loads(each.json) for each in query.recentProgress):
                self.progress.on_batch(event, 0.0)
                self.dropped += sum(each["numRowsDroppedByWatermark"] for each in event["stateOperators"])
        finally:
            query.stop()


@pytest.fixture
def chain(spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> Chain:
    """One micro-batch of the first flow: a flight of the twelfth hour in one partition of its output, and two of each
    hour before in another."""
    source, middle = new_topic(), new_topic(2)
    made = Chain(spark, tmp_path, bootstrap, source.name, middle.name)
    source.send(flights(("UA", 12), *((name, hour) for hour in range(12) for name in ("AA", "AA"))))
    made.take_up(topic(middle.name), "passed")
    source.send(flights(("UA", 13)))
    made.take_up(topic(middle.name), "passed")
    middle_partitions = {each.partition() for each in middle.messages()}
    assert len(middle_partitions) == 2, "the keys are in two partitions"
    return made


@pytest.mark.soak
def test_no_row_that_was_in_time_upstream_is_late_downstream(chain: Chain) -> None:
    chain.count(topic(chain.middle, maxOffsetsPerTrigger=6), until=1, checkpoint="not-aligned")
    assert chain.dropped > 0, "so it is without alignment"
    chain.found, chain.dropped, chain.progress = [], 0, FlowProgress(Figures("hourly", 0.0))

    read = topic(chain.middle, aligned=True, maxOffsetsPerTrigger=6)
    chain.count(read, until=11)
    complete = [(hour, 2) for hour in range(11)]
    assert (sorted(chain.found), chain.dropped) == (complete, 0)
    assert chain.progress.figures.records == 26, "a time is no record"
    assert chain.progress.figures.held_back_by == ["passed"]
    # the watermark of the first flow is a micro-batch behind: at the twelfth hour less its delay
    assert chain.progress.figures.watermark == "2026-01-01T11:59:59.000Z"

    # stopped and started: the watermark stays where it was until the first flow goes on
    Topic(chain.context.bootstrap, chain.source).send(flights(("AA", 11.9999), ("UA", 14), ("UA", 15)))
    chain.take_up(read, "passed")
    chain.take_up(read, "hourly")
    assert (sorted(chain.found), chain.dropped) == ([*complete, (11, 3)], 0)


def test_what_cannot_be_aligned_is_refused(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    chain = Chain(spark, tmp_path, bootstrap, new_topic().name, new_topic().name)

    def hours(records: DataFrame) -> DataFrame:
        rows = watermark(from_json(records, SCHEMA).rows, "at", "1 second")
        return rows.groupBy(F.window("at", "1 hour", "20 minutes")).agg(F.max("at").alias("at"))

    def sessions(records: DataFrame) -> DataFrame:
        rows = watermark(from_json(records, SCHEMA).rows, "at", "1 second")
        return rows.groupBy(F.session_window("at", "5 minutes")).agg(F.max("at").alias("at"))

    def plain(records: DataFrame) -> DataFrame:
        return from_json(records, SCHEMA).rows

    def planned(first: Any, second: Any, aligned: bool | str, read: str = chain.middle) -> str | int:
        job = Job("chain")
        job.flow(records=topic(chain.source), to=topic(chain.middle))(first)
        job.flow(records=topic(read, aligned=aligned), to=each_batch(lambda batch, _context: None))(named(second))
        try:
            flows = plan(job, chain.context)
        except JobError as refused:
            return str(refused)
        (options, _) = streams_of(flows[1].rows) or []
        hold: int = json.loads(options["alignedwith"])[0]["hold_ms"]
        return hold

    def named(function: Any) -> Any:
        def second(records: DataFrame) -> DataFrame:
            made: DataFrame = function(records)
            return made

        return second

    assert planned(hours, hours, True) == 3_600_000
    assert planned(hours, hours, "2 hours") == 7_200_000
    assert planned(sessions, hours, "10 minutes") == 600_000
    assert "is not known, because of sessions with a gap of '5 minutes': say" in str(planned(sessions, hours, True))
    assert "flow 'plain', which writes it, has no watermark to be aligned" in str(planned(plain, hours, True))
    assert "sets no watermark by rows.watermark" in str(planned(hours, plain, True))
    assert f"no flow of the job writes '{chain.source}'" in str(planned(hours, hours, True, read=chain.source))
    with pytest.raises(JobError, match="aligned is True or an interval such as '1 hour', not 'soon'"):
        topic("hourly", aligned="soon")
    with pytest.raises(JobError, match="idle_after does not: give one of them"):
        topic("hourly", aligned=True, idle_after="1 hour")


JOB = """\
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import from_json, watermark

job = Job("chain")


@job.flow(records=topic("{source}", maxOffsetsPerTrigger=300), to=topic("{middle}", key="carrier"), trigger="0 seconds")
def passed(records):
    return watermark(from_json(records, "carrier STRING, at TIMESTAMP").rows, "at", "15 minutes")


@job.flow(
    records=topic("{middle}", aligned=True, maxOffsetsPerTrigger=500),
    to=topic("{counted}"),
    late=topic("{late}"),
    trigger="0 seconds",
)
def hourly(records):
    rows = watermark(from_json(records, "carrier STRING, at TIMESTAMP").rows, "at", "0 seconds", window="1 hour")
    return rows.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n"))
"""


def kill_when_it_writes(process: "subprocess.Popen[str]", output: Topic, after_s: float) -> None:
    written = len(output.messages())
    eventually(lambda: process.poll() is not None or len(output.messages()) > written, timeout_s=400)
    assert process.poll() is None, "the run ended by itself"
    time.sleep(after_s)
    process.kill()
    process.wait()


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_no_row_is_late_or_lost_when_the_driver_is_killed(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, middle, counted, late = (new_topic(partitions) for partitions in (2, 4, 1, 1))
    job = tmp_path / "chain.py"
    names = {"source": source.name, "middle": middle.name, "counted": counted.name, "late": late.name}
    job.write_text(JOB.format(**names))
    tool, chance = CommandLine(tmp_path, bootstrap), random.Random(16)
    expected: Counter[int] = Counter()
    kills = 0
    for begin in range(0, 4 * 24, 24):
        hours = sorted((begin + 24 * chance.random() for _ in range(2000)), key=lambda hour: hour + chance.random() / 6)
        expected.update(int(hour) for hour in hours)
        rows = flights(*((chance.choice("ABCDEFGH"), hour) for hour in hours))
        source.send(rows[::2])
        source.send(rows[1::2], partition=1)
        kill_when_it_writes(tool.start(job), counted, after_s=2 * chance.random())
        kills += 1
    done = tool("run", str(job), "--once", "--close-windows")
    assert done.returncode == 0, done.stdout + done.stderr
    found: Counter[int] = Counter()
    for message in counted.messages():
        row = json.loads(message.value() or b"")
        begins = datetime.fromisoformat(row["window"]["start"])
        assert int((begins - AT).total_seconds() // 3600) not in found, "an hour came out twice"
        found[int((begins - AT).total_seconds() // 3600)] = row["n"]
    assert (found, len(late.messages()), kills) == (expected, 0, 4)
