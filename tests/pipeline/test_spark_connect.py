"""A job on a real Spark Connect server: it runs where the server is, and the package travels there."""

from pathlib import Path

import duckdb
import pytest

from tests.pipeline.conftest import TopicFactory
from tests.pipeline.run_process import CommandLine
from tests.support.spark_connect import SparkConnectServer

pytestmark = pytest.mark.soak

ROWS = 200
JOB = """\
from pyspark.sql import DataFrame, functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import Checked, from_json
from ottla.pipeline.sinks import parquet

job = Job("remote")
job.dead_letters = topic("{letters}")


@job.view(numbers=topic("{source}"))
def parsed(numbers: DataFrame) -> Checked:
    return from_json(numbers, "number INT NOT NULL")


@job.flow(rows=parsed, to=parquet("{files}"))
def kept(rows: DataFrame) -> DataFrame:
    return rows


@job.flow(rows=parsed, to=topic("{sink}", key="number"))
def passed(rows: DataFrame) -> DataFrame:
    return rows
"""


@pytest.mark.timeout(600)
def test_a_job_runs_behind_spark_connect(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    source, sink, letters, files = new_topic(2), new_topic(1), new_topic(1), tmp_path / "files"
    source.send([*(f'{{"number": {number}}}' for number in range(ROWS)), "no JSON"])
    job = tmp_path / "remote.py"
    job.write_text(JOB.format(source=source.name, sink=sink.name, letters=letters.name, files=files))
    ottla = CommandLine(tmp_path / "home", bootstrap)
    with SparkConnectServer(tmp_path / "server") as server:
        for _ in range(2):  # the second finds nothing more to do
            done = ottla("run", str(job), "--once", "--master", server.remote)
            assert done.returncode == 0, done.stdout + done.stderr
    found = duckdb.execute(f"SELECT number FROM read_parquet('{files}/**/*.parquet') ORDER BY number").fetchall()
    assert found == [(number,) for number in range(ROWS)]
    assert len(sink.messages()) == ROWS
    assert [message.value() for message in letters.messages()] == [b"no JSON"]
