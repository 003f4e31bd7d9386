"""Pipelines as Spark itself declares them (`spark-pipelines run`) read and write topics by their format."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic
from tests.support.spark_connect import SparkConnectServer

pytestmark = pytest.mark.soak

CLI = Path(pyspark.__file__).parent / "pipelines" / "cli.py"
ROWS = 200
SPEC = """\
name: declared
storage: file://{storage}
libraries:
  - glob:
      include: definitions.py
"""
DEFINITIONS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("upper", "ottla", {{"kafka.bootstrap.servers": "{bootstrap}", "topic": "{sink}"}})


@dp.append_flow(target="upper")
def shouted():
    records = spark.readStream.format("ottla").option("kafka.bootstrap.servers", "{bootstrap}")
    records = records.option("subscribe", "{source}").option("startingOffsets", "earliest").load()
    return records.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
"""


@pytest.mark.timeout(600)
def test_a_declared_pipeline_reads_and_writes_topics(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    source, sink = new_topic(2), new_topic(1)
    (tmp_path / "definitions.py").write_text(
        DEFINITIONS.format(bootstrap=bootstrap, source=source.name, sink=sink.name)
    )
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(SPEC.format(storage=tmp_path / "storage"))
    with SparkConnectServer(tmp_path / "server") as server:
        source.send([f"a{number}" for number in range(ROWS)])
        run(spec, server.remote)
        assert values(sink) == sorted(f"A{number}" for number in range(ROWS))
        source.send(["b0", "b1"], partition=1)
        run(spec, server.remote)
    assert values(sink) == sorted([*(f"A{number}" for number in range(ROWS)), "B0", "B1"])


def run(spec: Path, remote: str) -> None:
    """As `spark-pipelines run` does, which starts this program."""
    done = subprocess.run(
        [sys.executable, str(CLI), "run", "--spec", str(spec)],
        env={**os.environ, "SPARK_REMOTE": remote},
        cwd=spec.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stdout + done.stderr


def values(topic: Topic) -> list[str]:
    return sorted((message.value() or b"").decode() for message in topic.messages())
