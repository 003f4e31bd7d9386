"""A job stops, a savepoint of it is taken, and it goes on from that: on another machine, with all counts exact. One
story, on the session that all tests share, so that three starts of the job are enough for every assertion."""

import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ottla.pipeline.errors import CheckpointMismatchError, PipelineError
from ottla.pipeline.job_file import load_job
from ottla.pipeline.plan_state import State, state_of
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import RunRecord, run_directory
from ottla.pipeline.running import RunRequest, run
from ottla.pipeline.savepoint import SavepointError
from ottla.pipeline.session import Engine
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.run_process import CommandLine
from tests.pipeline.topic import Topic
from tests.support.eventually import eventually

JOB = """\
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import from_json
from ottla.pipeline.sinks import database, parquet

job = Job("{job}")


@job.view(records=topic("{orders}"))
def orders(records):
    return from_json(records, "customer STRING, item STRING, amount INT").rows.where("{condition}")


class Counting(StatefulProcessor):
    def init(self, handle):
        self.orders = handle.getValueState("orders", "n INT")

    def handleInputRows(self, key, rows, timerValues):
        count = (self.orders.get()[0] if self.orders.exists() else 0) + sum(1 for _ in rows)
        self.orders.update((count,))
        yield Row(key=key[0], value=str(count))

    def close(self):
        pass


@job.flow(orders=orders, to=topic("{counted}"))
def counted(orders):
    counts = orders.groupBy("customer")
    return counts.transformWithState(Counting(), "key STRING, value STRING", outputMode="Append", timeMode="None")


@job.flow(orders=orders, to=database("sqlite:///{directory}/out.db", "spent", key="customer"), mode="update")
def spent(orders):
    return orders.groupBy({key}).agg({{"amount": "sum"}}).toDF("customer", "amount")


@job.flow(orders=orders, to=parquet("kept"))
def kept(orders):
    return orders
"""


@dataclass
class Silent:
    """The screen of a run that nobody watches."""

    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def figures(self, record: RunRecord, figures: Mapping[str, Figures]) -> None:
        pass

    def line(self, figures: Figures) -> None:
        pass


@dataclass
class Story:
    """One job, its topics, and the machines (homes) that run it."""

    spark: SparkSession
    bootstrap: str
    directory: Path
    orders: Topic
    counted: Topic

    @property
    def job(self) -> str:
        return f"job-of-{self.orders.name}"

    def write_job(self, *, condition: str = "true", key: str = '"customer"', name: str | None = None) -> Path:
        file = self.directory / "orders.py"
        names = {"job": name or self.job, "orders": self.orders.name, "counted": self.counted.name}
        file.write_text(JOB.format(**names, directory=self.directory, condition=condition, key=key))
        return file

    def run(self, home: str, **options: Any) -> None:
        """`ottla pipeline run --once`."""
        file = self.directory / "orders.py"
        engine = Engine(self.spark, self.directory, self.spark.sparkContext)
        request = RunRequest(load_job(file), file, self.directory / home, self.bootstrap, once=True, **options)
        assert run(request, Silent(), engine=engine)

    def refused(self, home: str, **options: Any) -> str:
        """What a start is refused with; then it has changed nothing."""
        there = run_directory(self.directory / home, self.job)
        before = there.path.exists() and (there.path / "run.json").exists() and there.read()
        with pytest.raises(PipelineError) as refused:
            self.run(home, **options)
        after = there.path.exists() and (there.path / "run.json").exists() and there.read()
        assert before == after
        assert isinstance(refused.value, SavepointError | CheckpointMismatchError), refused.value
        return str(refused.value)

    def send(self, *orders: tuple[str, int]) -> None:
        rows = ({"customer": customer, "item": "tea", "amount": amount} for customer, amount in orders)
        self.orders.send([json.dumps(row) for row in rows])

    def counts(self) -> list[str]:
        """All records, in no order: customer, and how many orders by then."""
        found = self.counted.messages()
        return sorted(f"{(each.key() or b'').decode()} {(each.value() or b'').decode()}" for each in found)

    def totals(self) -> list[tuple[str, int]]:
        connection = sqlite3.connect(self.directory / "out.db")
        try:
            return sorted(connection.execute("SELECT customer, amount FROM spent").fetchall())
        finally:
            connection.close()

    def amounts(self) -> list[int]:
        files = f"read_parquet('{self.directory}/kept/**/*.parquet')"
        return sorted(amount for (amount,) in duckdb.execute(f"SELECT amount FROM {files}").fetchall())


def test_what_state_depends_on_is_read_from_the_plan(spark: SparkSession) -> None:
    """Spark itself compares only the types of keys and values: it would go on from the wrong state without an error."""
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "10 minutes")
    low, high = F.min("value"), F.max("value")
    hour, day = F.window("timestamp", "1 hour"), F.window("timestamp", "1 day", "6 hours", "30 minutes")
    assert state_of(rows.where("value > 1").groupBy(hour).agg(low, high)) == State(
        operators=["an aggregation by (window struct<start:timestamp,end:timestamp>) of (max(value), min(value))"],
        values=[["min(value)", "max(value)"]],
        windows=["windows of 3600 s"],
    )
    swapped = state_of(rows.groupBy(day).agg(high, low))
    assert (swapped.values, swapped.windows) == (
        [["max(value)", "min(value)"]],
        ["windows of 86400 s every 21600 s from 1800 s on"],
    )
    session = state_of(rows.groupBy(F.session_window("timestamp", "5 minutes")).count())
    assert session.windows == ["sessions with a gap of '5 minutes'"]
    keyed = rows.groupBy("value").transformWithStateInPandas(_Nothing(), "n INT", outputMode="Append", timeMode="None")
    assert state_of(keyed) == State(["transformWithState by (value bigint)"], [], [])
    assert state_of(rows.select(hour)) == State([], [], [])


class _Nothing(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        """No state."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield from ()

    def close(self) -> None:
        """Nothing to close."""


def test_a_job_stops_is_saved_and_goes_on_elsewhere(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    story = Story(spark, bootstrap, tmp_path, new_topic(2), new_topic())
    story.write_job()
    ottla = CommandLine(tmp_path / "first", bootstrap)
    story.send(("ann", 1), ("bob", 2), ("ann", 3))
    story.run("first")
    older, newer = tmp_path / "older", tmp_path / "newer"
    assert ottla("savepoint", story.job, str(older)).returncode == 0
    story.send(("bob", 5), ("cid", 7))
    story.run("first")
    assert story.counts() == ["ann 2", "bob 1", "bob 2", "cid 1"]

    said = ottla("savepoint", story.job, str(newer), "--json")
    found = json.loads(said.stdout)
    assert (found["job"], found["spark"]) == (story.job, spark.version)
    assert {name: flow["batch"] for name, flow in found["flows"].items()} == dict.fromkeys(found["flows"], 1)
    assert {sum(flow["read"][0][story.orders.name].values()) for flow in found["flows"].values()} == {5}
    again = ottla("savepoint", story.job, str(newer))
    assert (again.returncode, again.stderr.count("exists already")) == (1, 1)

    # not back in time, not over what there is, not with another job or other flows
    back = ottla("run", str(tmp_path / "orders.py"), "--from-savepoint", str(older), "--replace", "--once")
    assert (back.returncode, back.stdout) == (1, "")
    assert back.stderr.startswith("ottla: flow 'counted' would go back in time: topic ")
    assert "has checkpoints already" in story.refused("first", savepoint=newer)
    story.write_job(name="another")
    assert "is a savepoint of the job" in story.refused("second", savepoint=newer, name=story.job)

    # the machine is lost; on another one, a damaged savepoint and a job that does not fit leave nothing behind
    shutil.move(tmp_path / "first", tmp_path / "lost")
    shutil.copytree(newer, tmp_path / "damaged")
    state = next((tmp_path / "damaged" / "checkpoints" / "counted" / "state" / "0" / "0").glob("*.zip"))
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    story.write_job()
    assert f"{state} is not as it was written" in story.refused("second", savepoint=tmp_path / "damaged")
    story.write_job(key='"item"')
    said_of_key = story.refused("second", savepoint=newer)
    assert "'spent' no longer fits its checkpoint: its state was that of an aggregation by (customer" in said_of_key
    assert "ottla pipeline replay" in said_of_key
    assert [each.name for each in (tmp_path / "second" / "pipelines" / story.job).iterdir()] == ["pid"]

    # it goes on there, with a changed filter, where it was
    story.write_job(condition="amount < 1000")
    story.send(("ann", 10), ("bob", 5000))
    story.run("second", savepoint=newer)
    assert story.counts() == ["ann 2", "ann 3", "bob 1", "bob 2", "cid 1"]
    assert story.totals() == [("ann", 14), ("bob", 7), ("cid", 7)]
    assert story.amounts() == [1, 2, 3, 5, 7, 10]
    status = CommandLine(tmp_path / "second", bootstrap).status(story.job)
    assert status["flows"]["kept"]["figures"]["records"] == 7  # counted on from those of the savepoint

    # records that are gone, and a topic that is another one
    admin = AdminClient({"bootstrap.servers": bootstrap})
    gone = [TopicPartition(story.orders.name, number, -1) for number in range(2)]
    for future in admin.delete_records(gone).values():
        future.result(30)
    assert f"records of {story.orders.name}-" in story.refused("third", savepoint=newer)
    admin.delete_topics([story.orders.name])[story.orders.name].result(30)
    eventually(lambda: story.orders.name not in admin.list_topics(timeout=10).topics)
    new_topic(2, name=story.orders.name)
    said_of_topic = story.refused("third", savepoint=newer)
    assert f"topic '{story.orders.name}' was deleted and created again since" in said_of_topic


KILLED = """\
from ottla.pipeline import Job, topic
from ottla.pipeline.sinks import each_batch

job = Job("{job}")
prefix = job.param("prefix")


@job.flow(orders=topic("{orders}", maxOffsetsPerTrigger=20), to=topic("{counted}"), trigger="0 seconds")
def copied(orders):
    return orders.selectExpr("concat('" + prefix + "', CAST(value AS STRING)) AS value")


def deliver(batch, context):
    batch.run()


@job.flow(orders=topic("{orders}"), to=each_batch(deliver))
def delivered(orders):
    return orders
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_killed_run_is_saved_and_goes_on_elsewhere(bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> None:
    """By the command line: the micro-batch that the kill interrupted is done again there, and nothing twice."""
    orders, copied = new_topic(2), new_topic()
    job = tmp_path / "killed.py"
    name = f"job-of-{orders.name}"
    job.write_text(KILLED.format(job=name, orders=orders.name, counted=copied.name))
    first, second = (CommandLine(tmp_path / home, bootstrap) for home in ("first", "second"))
    for each in (first, second):
        each.home.mkdir()
    orders.send([str(number) for number in range(3_000)])

    run = first.start(job, "--param", "prefix=a")
    try:
        eventually(lambda: len(copied.messages()) > 200, timeout_s=300)
        refused = first("savepoint", name, str(tmp_path / "saved"))
        assert (refused.returncode, f"{name!r} is running (process {run.pid})" in refused.stderr) == (1, True)
    finally:
        run.kill()
        run.wait()
    saved = first("savepoint", name, str(tmp_path / "saved"))
    assert saved.returncode == 0, saved.stderr
    assert not (tmp_path / "second" / "pipelines").exists()

    arguments = ("run", str(job), "--from-savepoint", str(tmp_path / "saved"), "--once")
    doubtful = second(*arguments)
    assert (doubtful.returncode, doubtful.stderr.count("--set-back delivered")) == (1, 1)
    goes_on = second(*arguments, "--set-back", "delivered", timeout_s=600)
    assert goes_on.returncode == 0, goes_on.stderr

    values = [(message.value() or b"").decode() for message in copied.messages()]
    assert sorted(values) == sorted(f"a{number}" for number in range(3_000))
    assert second.status(name)["parameters"] == {"prefix": "a"}
