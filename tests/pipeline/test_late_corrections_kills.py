"""Late rows as corrections, while the driver is killed: each late row counts once, in SQLite and in Delta."""

import json
import random
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from ottla.pipeline.rows.late import Position
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.rows import AT
from tests.pipeline.run_process import CommandLine
from tests.pipeline.sink_targets import Target
from tests.support.eventually import eventually

JOB = """\
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import from_json
from ottla.pipeline.sinks import database, delta

job = Job("corrected")
READ = topic("{source}", maxOffsetsPerTrigger=150)
KEY = ("start", "k")


def by_hour(records):
    rows = from_json(records, "k STRING, at TIMESTAMP, price DECIMAL(10,2)").rows.withWatermark("at", "10 minutes")
    found = rows.groupBy(F.window("at", "1 hour"), "k").agg(
        F.count("*").alias("n"), F.sum("price").alias("total"), F.min("price").alias("least")
    )
    return found.withColumn("start", F.col("window.start")).drop("window")


@job.flow(
    records=READ,
    to=database("sqlite:///{home}/out.db", "out", key=KEY),
    mode="update",
    late="correct",
    trigger="0 seconds",
)
def into_sqlite(records):
    return by_hour(records)


@job.flow(records=READ, to=delta("{home}/out", key=KEY), late="correct", trigger="0 seconds")
def into_delta(records):
    return by_hour(records)
"""
FLOWS = ("into_sqlite", "into_delta")
KILLS = 5
FIGURES = "n, CAST(round(total * 100) AS INTEGER), CAST(round(least * 100) AS INTEGER)"


def followers(home: Path) -> dict[str, Position]:
    """How far the late rows of each flow have come."""
    found = {flow: next(home.rglob(f"{flow}.late.json"), None) for flow in FLOWS}
    return {flow: Position.read(file) or Position() for flow, file in found.items() if file is not None}


def micro_batches(home: Path) -> int:
    """Of both flows, those whose late rows are merged."""
    return sum(each.batch for each in followers(home).values())


def merged_but_not_noted(home: Path) -> bool:
    """Whether the table in SQLite has late rows of a micro-batch that the follower has not noted down."""
    with closing(sqlite3.connect(home / "out.db")) as connection:
        numbers = connection.execute("SELECT batch FROM ottla_batches WHERE query LIKE 'late-%'").fetchall()
    noted = followers(home).get("into_sqlite", Position()).batch
    return any(number > noted for (number,) in numbers)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_late_row_counts_once_when_the_driver_is_killed(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, chance, tool = new_topic(2), random.Random(16), CommandLine(tmp_path, bootstrap)
    job = tmp_path / "corrected.py"
    job.write_text(JOB.format(source=source.name, home=tmp_path))
    prices: defaultdict[tuple[int, str], list[int]] = defaultdict(list)

    def send(until_hour: int) -> None:
        """Rows of six more hours, in order but for one in four of any hour before."""
        rows = []
        for number in range(600):
            hour = until_hour - 6 + number / 100
            if number % 4 == 0:
                hour *= chance.random()
            carrier, cents = chance.choice("ABC"), chance.randrange(1, 100_000)
            prices[int(hour), carrier].append(cents)
            at = (AT + timedelta(hours=hour)).isoformat()
            rows.append(json.dumps({"k": carrier, "at": at, "price": f"{cents / 100:.2f}"}))
        for partition in (0, 1):
            source.send(rows[partition::2], partition=partition)

    between = 0
    for kill in range(KILLS):
        send(6 * (kill + 1))
        until = micro_batches(tmp_path) + chance.randint(1, 6)
        process = tool.start(job)
        eventually(lambda: process.poll() is not None or micro_batches(tmp_path) >= until, timeout_s=400)  # noqa: B023
        assert process.poll() is None, "the run ended by itself"
        time.sleep(chance.random() * 3)
        process.kill()
        process.wait()
        between += merged_but_not_noted(tmp_path)
    print(f"{KILLS} kills, {between} of them between the merge and its note")
    done = tool("run", str(job), "--once", "--close-windows", timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr

    assert all(each.rows > 100 for each in followers(tmp_path).values()), "rows were late"
    expected = [
        (int(AT.timestamp()) + hour * 3600, carrier, len(found), sum(found), min(found))
        for (hour, carrier), found in sorted(prices.items())
    ]
    assert Target("database", tmp_path).read(f"CAST(strftime('%s', start) AS INTEGER), k, {FIGURES}") == expected
    assert Target("delta", tmp_path).read(f"CAST(epoch(start) AS BIGINT), k, {FIGURES}") == expected
