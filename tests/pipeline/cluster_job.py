"""A job for clusters: its tasks note down where they run, so that a test can kill one; its outputs show each row."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import duckdb

from tests.pipeline.topic import Topic
from tests.support.freezing import freeze, thaw

ROWS = 2_000
JOB = """\
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame, functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.sinks import parquet

job = Job("cluster", settings={{"spark.sql.shuffle.partitions": "2"}})


def noted(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    task = TaskContext.get()
    note = Path("{tasks}", f"{{task.stageId()}}.{{task.partitionId()}}.{{os.getpid()}}.running")
    note.touch()
    yield from batches
    time.sleep(0.2)
    note.replace(note.with_suffix(".done"))


@job.view(numbers=topic("{source}", maxOffsetsPerTrigger=200))
def parsed(numbers: DataFrame) -> DataFrame:
    rows = numbers.select(F.col("value").cast("string").cast("int").alias("number"))
    return rows.mapInArrow(noted, "number INT")


@job.flow(rows=parsed, to=parquet("{files}"))
def kept(rows: DataFrame) -> DataFrame:
    return rows


@job.flow(rows=parsed, to=topic("{sink}", key="number"))
def passed(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "number")


@job.flow(rows=parsed, to=topic("{counts}", key="rest"), mode="update")
def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy((F.col("number") % 7).alias("rest")).count()
"""


class Cluster(Protocol):
    """The cluster whose executors are killed."""

    def holds(self, pid: int) -> bool:
        """Is this process a Python worker of one of its executors?"""

    def kill_around(self, pid: int) -> None:
        """Kill the executor of this Python worker, and whatever dies with it."""


class Outputs:
    """The job's topics and files: `file` is the job, which reads `ROWS` numbers that are there already."""

    def __init__(self, new_topic: Callable[[int], Topic], directory: Path) -> None:
        source, self.sink, self.counts = new_topic(2), new_topic(2), new_topic(1)
        self.files, self.tasks = directory / "files", directory / "tasks"
        self.tasks.mkdir()
        for partition in range(2):
            source.send(map(str, range(partition, ROWS, 2)), partition=partition)
        names = {"source": source.name, "sink": self.sink.name, "counts": self.counts.name}
        self.file = directory / "job.py"
        self.file.write_text(JOB.format(**names, files=self.files, tasks=self.tasks))

    def check(self) -> None:
        """Every row is in each output exactly once."""
        read = f"SELECT number FROM read_parquet('{self.files}/**/*.parquet') ORDER BY number"
        assert duckdb.connect().execute(read).fetchall() == [(number,) for number in range(ROWS)]
        passed = sorted(json.loads(each.value() or b"")["number"] for each in self.sink.messages())
        assert passed == list(range(ROWS))
        updates = [json.loads(each.value() or b"") for each in self.counts.messages()]
        newest = {row["rest"]: row["count"] for row in updates}
        assert newest == {rest: len(range(rest, ROWS, 7)) for rest in range(7)}


def kill_in_task(cluster: Cluster, tasks: Path) -> Path | None:
    """Kill an executor that holds a task, and give the note of that task; None if none is running at this moment."""
    for note in tasks.glob("*.running"):
        pid = int(note.stem.rpartition(".")[2])
        if not cluster.holds(pid):
            continue
        freeze(pid)  # it stays in its task until it is killed
        if note.exists():
            cluster.kill_around(pid)
            return note
        thaw(pid)
    return None
