"""A job on a real standalone cluster: the package travels, and a machine that dies costs nothing."""

import json
import os
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
from pyspark.sql import DataFrame, functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.sinks import parquet

job = Job("cluster")


@job.view(numbers=topic("{source}", maxOffsetsPerTrigger=200))
def parsed(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.col("value").cast("string").cast("int").alias("number"))


@job.flow(rows=parsed, to=parquet("{files}"))
def kept(rows: DataFrame) -> DataFrame:
    return rows


@job.flow(rows=parsed, to=topic("{sink}", key="number"))
def passed(rows: DataFrame) -> DataFrame:
    return rows.repartition(2, "number")
"""


@pytest.mark.timeout(900)
def test_a_job_survives_the_death_of_a_machine(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    source, sink, files = new_topic(2), new_topic(2), tmp_path / "files"
    for partition in range(2):
        source.send(map(str, range(partition, ROWS, 2)), partition=partition)
    job = tmp_path / "job.py"
    job.write_text(JOB.format(source=source.name, sink=sink.name, files=files))

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
                cluster.kill_worker(0)
                assert run.wait(400) == 0, (tmp_path / "run.log").read_text()
            finally:
                run.kill()
                run.wait()

    found = duckdb.sql(f"SELECT number FROM read_parquet('{files}/**/*.parquet') ORDER BY number").fetchall()
    assert found == [(number,) for number in range(ROWS)]
    assert sorted(json.loads(each.value() or b"")["number"] for each in sink.messages()) == list(range(ROWS))
