"""A job on a real standalone cluster: the package travels, and a machine that dies in a task costs nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.pipeline.conftest import TopicFactory
from tests.support.eventually import eventually
from tests.support.spark_cluster import SparkCluster

pytestmark = pytest.mark.soak

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


@pytest.mark.timeout(900)
def test_a_job_survives_the_death_of_a_machine(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    source, sink, counts = new_topic(2), new_topic(2), new_topic(1)
    files, tasks = tmp_path / "files", tmp_path / "tasks"
    tasks.mkdir()
    for partition in range(2):
        source.send(map(str, range(partition, ROWS, 2)), partition=partition)
    job = tmp_path / "job.py"
    job.write_text(JOB.format(source=source.name, sink=sink.name, counts=counts.name, files=files, tasks=tasks))

    with SparkCluster(tmp_path / "spark") as cluster:
        command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(job), "--once"]
        command += ["--bootstrap", bootstrap, "--home", str(tmp_path / "home"), "--master", cluster.master_url]
        for key, value in cluster.settings.items():
            command += ["--conf", f"{key}={value}"]
        with (tmp_path / "run.log").open("wb") as log:
            run = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env={**os.environ})
            try:
                eventually(lambda: any(files.glob("*.parquet")) or run.poll() is not None, timeout_s=400)
                assert run.poll() is None, "killed too late: " + (tmp_path / "run.log").read_text()
                died_in = eventually(lambda: kill_in_task(cluster, tasks), interval_s=0.02)
                assert run.wait(400) == 0, (tmp_path / "run.log").read_text()
            finally:
                run.kill()
                run.wait()

    assert died_in is not None
    stage, part, _ = died_in.stem.split(".")
    assert list(tasks.glob("*.running")) == [died_in]
    assert len(list(tasks.glob(f"{stage}.{part}.*.done"))) == 1, "the task that died was not done again"
    read = f"SELECT number FROM read_parquet('{files}/**/*.parquet') ORDER BY number"
    found = duckdb.connect().execute(read).fetchall()
    assert found == [(number,) for number in range(ROWS)]
    assert sorted(json.loads(each.value() or b"")["number"] for each in sink.messages()) == list(range(ROWS))
    newest = {row["rest"]: row["count"] for row in (json.loads(each.value() or b"") for each in counts.messages())}
    assert newest == {rest: len(range(rest, ROWS, 7)) for rest in range(7)}


def kill_in_task(cluster: SparkCluster, tasks: Path) -> Path | None:
    """Kill a worker that holds a task, and give the note of that task; None if none is running at this moment."""
    for note in tasks.glob("*.running"):
        pid = int(note.stem.rpartition(".")[2])
        worker = cluster.worker_with(pid)
        if worker is None:
            continue
        os.kill(pid, signal.SIGSTOP)  # it stays in its task until it is killed
        if note.exists():
            cluster.kill_worker(worker)
            return note
        os.kill(pid, signal.SIGCONT)
    return None
