"""A run, its replay with a mended job, their difference, and the replay in the place of the run: each as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.console.diffs import Comparisons
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic

JOB = """
from pyspark.sql import functions as F
from ottla.pipeline import Job, topic

job = Job("{job}")


@job.flow(flights=topic("{flights}"), to=topic("{delays}", key="carrier"), mode="update")
def delays(flights):
    rows = flights.select(F.from_json(F.col("value").cast("string"), "carrier STRING, delay INT").alias("row"))
    return rows.select("row.*").where("delay > {least}").groupBy("carrier").agg(F.sum("delay").alias("delay"))
"""
FLIGHTS = [("UA", 5), ("AA", 20), ("UA", 30), ("DL", 7)]


class Home:
    """The command line with a home of its own."""

    def __init__(self, path: Path, bootstrap: str) -> None:
        self.path = path
        self._environment = {**os.environ, "OTTLA_HOME": str(path), "OTTLA_BOOTSTRAP": bootstrap}

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", "pipeline", *arguments],
            capture_output=True, text=True, check=False, timeout=200, env=self._environment,
        )  # fmt: skip

    def succeeds(self, *arguments: str) -> str:
        done = self(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def send(topic: Topic, *flights: tuple[str, int]) -> None:
    topic.send([json.dumps({"carrier": carrier, "delay": delay}) for carrier, delay in flights])


def newest(topic: Topic) -> dict[str, int]:
    values = [json.loads(message.value() or b"") for message in topic.messages()]
    return {value["carrier"]: value["delay"] for value in values}


@pytest.mark.timeout(600)  # sessions of Spark, on a machine that may be busy
@pytest.mark.parametrize("goes_on", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_mended_job_is_replayed_compared_and_promoted(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path, goes_on: bool
) -> None:
    flights, delays = new_topic(2), new_topic(2)
    replayed = Topic(bootstrap, f"{delays.name}-v2")
    home = Home(tmp_path / "home", bootstrap)
    job = tmp_path / "delays.py"
    names = {"job": f"delays-of-{flights.name}", "flights": flights.name, "delays": delays.name}
    run = names["job"]
    job.write_text(JOB.format(**names, least=15))
    send(flights, *FLIGHTS)
    home.succeeds("run", str(job), "--once")
    assert newest(delays) == {"AA": 20, "UA": 30}
    before = delays.messages()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kept = [ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)]
    of_delays = ConfigResource(ConfigResource.Type.TOPIC, delays.name, incremental_configs=kept)
    admin.incremental_alter_configs([of_delays])[of_delays].result(10)

    job.write_text(JOB.format(**names, least=0))  # all flights were meant
    said = home.succeeds("replay", run, "--from", "earliest", "--into", "v2", "--once")
    assert said.startswith("v2: 4 records to read; ")
    assert newest(replayed) == {"AA": 20, "UA": 35, "DL": 7}
    copy = ConfigResource(ConfigResource.Type.TOPIC, replayed.name)
    assert admin.describe_configs([copy])[copy].result(10)["retention.ms"].value == "-1"
    assert len(admin.list_topics(replayed.name, 10).topics[replayed.name].partitions) == 2
    assert [message.offset() for message in delays.messages()] == [message.offset() for message in before]

    compared = Comparisons(home.path).begin(run, "v2", {"bootstrap.servers": bootstrap})  # as the console does
    compared.thread.join(200)
    assert (compared.problem, compared.exit_code) == ("", 1)
    (found,) = compared.found or []
    assert (found.flow, found.equal, found.only_in_a, found.only_in_b, found.differing) == ("delays", 1, 0, 1, 1)
    assert [example.key for example in found.examples] == ["DL", "UA"]

    send(flights, ("AA", 1))
    assert "v2" in home.succeeds("promote", "v2", "--yes")
    if goes_on:
        home.succeeds("run", str(job), "--once")
        assert newest(replayed) == {"AA": 21, "UA": 35, "DL": 7}  # goes on with the state of the replay
        assert newest(delays) == {"AA": 20, "UA": 30}

    retired = home("run", str(job), "--name", "v2", "--once")
    assert retired.returncode == 1
    assert f"'v2' has taken the place of '{run}'" in retired.stderr
    again = home("replay", run, "--from", "earliest", "--into", "v2")
    assert again.returncode == 1
    assert "'v2' has begun already" in again.stderr


def test_what_cannot_be_replayed_is_said_before_spark_starts(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home", bootstrap)
    unknown = home("replay", "flights", "--from", "2h")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
    assert "nothing has run as 'flights'" in unknown.stderr
    assert "nothing has run as 'a'" in home("diff", "a", "b").stderr
    assert "nothing has run as 'v2'" in home("promote", "v2", "--yes").stderr
