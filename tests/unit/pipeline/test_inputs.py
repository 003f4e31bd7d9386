"""What a topic asks of Spark's source."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import Topic, topic
from ottla.pipeline.rows.late import read_ranges


class Reader:
    """Keeps the options instead of reading."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.readStream = self.read = self

    def format(self, _: str) -> "Reader":
        return self

    def options(self, **given: str) -> "Reader":
        self.found = given
        return self

    def option(self, name: str, value: str) -> "Reader":
        self.found = {**self.found, name: value}
        return self

    def load(self) -> "Reader":
        return self


def options(given: Topic, **context: Any) -> dict[str, str]:
    spark: Any = Reader()
    given.load(RunContext(spark, "here:9092", "job", "run", Path("/home"), Path("/jobs"), **context))
    found: dict[str, str] = spark.found
    return found


def test_a_run_beside_another_has_a_group_of_its_own() -> None:
    flights = topic("flights", **{"kafka.group.id": "delays"})
    assert options(flights)["kafka.group.id"] == "delays"
    assert options(flights, suffix="v2")["kafka.group.id"] == "delays-v2"
    assert options(topic("flights"), suffix="v2", client={"kafka.group.id": "g"})["kafka.group.id"] == "g-v2"


def test_queries_do_not_share_a_group() -> None:
    flights = topic("flights", **{"kafka.group.id": "delays"})
    assert options(flights, group_suffix="hourly")["kafka.group.id"] == "delays-hourly"
    assert options(flights, group_suffix="hourly", suffix="v2")["kafka.group.id"] == "delays-hourly-v2"
    assert "kafka.group.id" not in options(flights, group_suffix=None)


def test_late_rows_are_looked_for_as_the_stream_read_them() -> None:
    """Records of aborted transactions are none of its rows, and a second reader must not commit for it."""
    spark: Any = Reader()
    context = RunContext(spark, "here:9092", "job", "run", Path("/home"), Path("/jobs"))
    given = topic("flights", maxOffsetsPerTrigger=100, **{"kafka.group.id": "delays"})
    read_ranges(given, context, {"flights": {0: (3, 9)}})
    found = {name.lower(): value for name, value in spark.found.items()}
    assert found["kafka.isolation.level"] == "read_committed"
    assert (found["startingoffsets"], found["endingoffsets"]) == ('{"flights": {"0": 3}}', '{"flights": {"0": 9}}')
    assert not {"kafka.group.id", "maxoffsetspertrigger"} & found.keys()


def test_aborted_records_are_not_read_unless_somebody_asks_for_them() -> None:
    assert options(topic("flights"))["kafka.isolation.level"] == "read_committed"
    every = {"kafka.Isolation.Level": "read_uncommitted"}
    for given, client in ((topic("flights", **every), {}), (topic("flights"), every)):
        found = {name.lower(): value for name, value in options(given, client=client).items()}
        assert found["kafka.isolation.level"] == "read_uncommitted"


def test_topics_that_are_read_as_one_begin_where_each_is_said_to() -> None:
    both = topic("flights,arrivals")
    at = {name: {"startingOffsets": json.dumps({name: {"0": 7}})} for name in ("flights", "arrivals")}
    earliest = {"startingOffsets": "earliest"}

    assert options(both)["startingOffsets"] == "earliest"
    assert json.loads(options(both, starting=at)["startingOffsets"]) == {"flights": {"0": 7}, "arrivals": {"0": 7}}
    same = options(both, starting={name: {"startingTimestamp": "5"} for name in at})
    assert (same["startingTimestamp"], "startingOffsets" in same) == ("5", False)
    with pytest.raises(JobError, match="do not go together"):
        options(both, starting=at | {"arrivals": earliest})
