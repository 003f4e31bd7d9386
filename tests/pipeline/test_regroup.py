"""A flow gets another grouping key: closed windows stay as they came out, open ones are computed anew, once."""

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.errors import CheckpointMismatchError
from ottla.pipeline.job_file import load_job
from ottla.pipeline.regroup import RegroupError
from ottla.pipeline.running import RunRequest, run
from ottla.pipeline.session import Engine
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.rows import AT
from tests.pipeline.run_process import CommandLine
from tests.pipeline.test_aligned import flights
from tests.pipeline.test_savepoint import Silent
from tests.pipeline.topic import Topic
from tests.support.eventually import eventually

JOB = """\
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import from_json, watermark

job = Job("regrouped-{source}", dead_letters="{source}-letters")


@job.view(records=topic("{source}", maxOffsetsPerTrigger={most}))
def clean(records):
    return from_json(records, "carrier STRING, at TIMESTAMP")


@job.flow(records=clean, to=topic("{output}"), trigger="0 seconds")
def hourly(records):
    rows = watermark(records, "at", "15 minutes")
    return rows.groupBy({keys}).agg({values}).select("window.start", "*").drop("window")
"""
BY_HOUR = 'F.window("at", "1 hour")'
BY_CARRIER = f'{BY_HOUR}, "carrier"'


@dataclass
class Story:
    spark: SparkSession
    directory: Path
    source: Topic
    output: Topic

    def write_job(self, keys: str, values: str = 'F.count("*").alias("n")', most: int = 1000) -> Path:
        file = self.directory / "job.py"
        names = {"source": self.source.name, "output": self.output.name}
        file.write_text(JOB.format(**names, keys=keys, values=values, most=most))
        return file

    def run(self, *regroup: str) -> list[str]:
        """`ottla pipeline run --once --regroup ...`; what it says."""
        file, screen = self.directory / "job.py", Silent()
        engine = Engine(self.spark, self.directory, self.spark.sparkContext)
        home = self.directory / "home"
        request = RunRequest(
            load_job(file), file, home, self.source.bootstrap, once=True, regroup=frozenset(regroup)
        )  # fmt: skip
        assert run(request, screen, engine=engine)
        return screen.said

    def counts(self) -> list[tuple[Any, ...]]:
        """Hour, carrier and number of each row of the output."""
        rows = [json.loads(message.value() or b"") for message in self.output.messages()]
        return sorted((hour_of(row), row.get("carrier", ""), row["n"]) for row in rows)


def hour_of(row: dict[str, Any]) -> int:
    return int((datetime.fromisoformat(row["start"]) - AT).total_seconds() // 3600)


@pytest.fixture
def story(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> Story:
    return Story(spark, tmp_path, new_topic(2), new_topic())


def in_order(*given: tuple[str, float]) -> dict[str, Any]:
    """Records of these flights, written when they happened."""
    return {"values": flights(*given), "timestamp": int((AT.timestamp() + given[0][1] * 3600) * 1000)}


def test_open_windows_get_the_new_key_and_closed_ones_stay(story: Story) -> None:
    def send(partition: int, *given: tuple[str, float]) -> None:
        for each in given:
            story.source.send(**in_order(each), partition=partition)

    story.write_job(BY_HOUR)
    send(0, *(("AA", hour) for hour in (0, 0.5, 1, 2, 3, 4.1, 4.2)))
    send(1, *(("UA", hour) for hour in (0.1, 1.1, 2.1, 3.1, 4, 5)))
    story.run()
    closed = [(0, "", 3), (1, "", 2), (2, "", 2), (3, "", 2)]
    assert story.counts() == closed

    story.write_job(BY_CARRIER)
    with pytest.raises(CheckpointMismatchError, match=r"have its open windows computed anew.*\(--regroup\)"):
        story.run()
    send(0, ("AA", 3.9), ("AA", 4.3))  # the first is late, as it would have been before
    said = story.run("hourly")
    assert "hourly: 2 open windows with 2 groups are computed anew: 6 records are read again" in "\n".join(said)
    assert story.counts() == closed
    send(0, ("AA", 6.5))
    assert any("nothing is computed anew" in each for each in story.run("hourly")), "a start that is repeated"
    assert story.counts() == [*closed, (4, "AA", 3), (4, "UA", 1), (5, "UA", 1)]

    # other values, from a checkpoint that was regrouped itself
    story.write_job(BY_CARRIER, 'F.count("*").alias("n"), F.max("at").alias("last")')
    send(1, ("UA", 6.6), ("UA", 8))
    story.run("hourly")
    assert story.counts() == [*closed, (4, "AA", 3), (4, "UA", 1), (5, "UA", 1), (6, "AA", 1), (6, "UA", 1)]

    story.write_job('F.window("at", "2 hours")')
    with pytest.raises(RegroupError, match=r"its windows have changed.*Nothing was changed; compute all of its output"):
        story.run("hourly")
    story.write_job(BY_HOUR)
    story.source.trim(7, 1)  # the record of the open window is the first one that is left
    with pytest.raises(RegroupError, match="records of its open windows may have been deleted"):
        story.run("hourly")


def times_said(tool: CommandLine, job: Path) -> int:
    return tool.output(job).count("are computed anew")


def has_grown(count: Callable[[], int], before: int) -> bool:
    return count() > before


def kill_after(process: "subprocess.Popen[str]", news: Callable[[], bool], after_s: float) -> None:
    """Kill it some time after there is news."""
    eventually(lambda: process.poll() is not None or news(), timeout_s=240)
    assert process.poll() is None, "the run ended by itself"
    time.sleep(after_s)
    process.kill()
    process.wait()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_row_counts_once_when_the_driver_is_killed_while_it_is_regrouped(
    bootstrap: str, story: Story, tmp_path: Path
) -> None:
    chance, tool = random.Random(16), CommandLine(tmp_path, bootstrap)
    expected: Counter[int] = Counter()
    options: list[str] = []
    for begin, keys in ((0, BY_HOUR), (24, BY_CARRIER), (48, BY_HOUR)):
        job = story.write_job(keys, most=300)
        for hour in range(begin, begin + 24):
            rows = [(chance.choice("ABCD"), hour + chance.random()) for _ in range(60)]
            expected[hour] = len(rows)
            story.source.send(flights(*rows), timestamp=int((AT.timestamp() + hour * 3600) * 1000))
        if options:
            regrouped = partial(has_grown, partial(times_said, tool, job), times_said(tool, job))
            kill_after(tool.start(job, *options), regrouped, chance.random() * 3)
        written = partial(has_grown, lambda: len(story.counts()), len(story.counts()))
        kill_after(tool.start(job, *options), written, chance.random() * 2)
        # a micro-batch that was not finished is to be done by the job that began it
        finished = tool("run", str(job), "--once", *options)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        options = ["--regroup", "hourly"]
    done = tool("run", str(job), "--once", "--close-windows", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = story.counts()
    totals: Counter[int] = Counter()
    for hour, _, number in found:
        totals[hour] += number
    assert totals == expected
    assert len({row[:2] for row in found}) == len(found), "no group came out twice"
    by_carrier = {hour: {carrier != "" for each, carrier, _ in found if each == hour} for hour in totals}
    assert all(len(kinds) == 1 for kinds in by_carrier.values()), "each hour has one key"
    assert {kinds.pop() for kinds in by_carrier.values()} == {True, False}
