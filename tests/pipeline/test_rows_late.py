"""Late rows: those that the follower finds are those that Spark says it dropped."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import topic
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.rows import drop_duplicates, from_json, watermark
from ottla.pipeline.rows.dead_letters import DeadLetter
from ottla.pipeline.rows.late import LateRows, Load, Position
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import run_to_end
from tests.pipeline.topic import Topic

SCHEMA = "k STRING, at TIMESTAMP"
DELAY = "10 minutes"


def event(key: str, minute: int) -> str:
    return json.dumps({"k": key, "at": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"})


ON_TIME = [event("a", 100)]  # puts the watermark at minute 90
MIXED = [event(key, minute) for key, minute in [("a", 5), ("a", 6), ("b", 7), ("b", 89), ("b", 90), ("b", 95)]]


def tumbling(rows: DataFrame) -> DataFrame:
    return watermark(rows, "at", DELAY, window="10 minutes").groupBy(F.window("at", "10 minutes"), "k").count()


def sliding(rows: DataFrame) -> DataFrame:
    size = ("10 minutes", "5 minutes")
    return watermark(rows, "at", DELAY, window=size).groupBy(F.window("at", *size), "k").count()


def sessions(rows: DataFrame) -> DataFrame:
    return watermark(rows, "at", DELAY, session="5 minutes").groupBy(F.session_window("at", "5 minutes"), "k").count()


def deduplicated(rows: DataFrame) -> DataFrame:
    return drop_duplicates(rows, "k", "at", column="at", within=DELAY)


def deduplicated_then_counted(rows: DataFrame) -> DataFrame:
    """What is late for the duplicates decides, whatever the windows behind them would still take: b's row of 89."""
    marked = watermark(rows, "AT", DELAY, window=("10 minutes", "5 minutes"))
    once = drop_duplicates(marked, "k", "at", column="at", within="1 hour")
    return once.groupBy(F.window("at", "10 minutes", "5 minutes"), "k").count()


def joined_with_itself(rows: DataFrame) -> DataFrame:
    left = watermark(rows, "at", DELAY)
    right = rows.select(F.col("k").alias("other"), F.col("at").alias("then")).withWatermark("then", DELAY)
    return left.join(right, F.expr("k = other AND then BETWEEN at AND at + INTERVAL 1 MINUTE"))


@dataclass
class Follower:
    """A flow over one topic, and who follows it."""

    spark: SparkSession
    directory: Path
    source: Topic
    side: Topic
    build: Callable[[DataFrame], DataFrame]
    reported: list[dict[str, Any]] = field(default_factory=list)

    def late(self) -> LateRows:
        """As a process that has just begun has it."""
        return LateRows(
            flow="flow",
            topic=topic(self.side.name),
            checkpoint=self.directory / "checkpoint",
            position=self.directory / "late" / "flow.json",
            context=context_of(self.spark, self.directory, self.source.bootstrap),
            rebuild=self.flow,
        )

    def flow(self, load: Load) -> DataFrame:
        records = load(topic(self.source.name))
        assert isinstance(records, DataFrame)
        read = from_json(records, SCHEMA)
        return self.build(read.keep_source().rows)

    def run(self) -> int:
        """How many rows, or groups of them, Spark says it dropped."""
        context = context_of(self.spark, self.directory, self.source.bootstrap)
        rows = self.flow(lambda given: given.load(context))
        batches = run_to_end(rows.drop("source"), self.directory / "checkpoint").batches
        self.reported.extend(batches)
        return sum(each["numRowsDroppedByWatermark"] for batch in batches for each in batch["stateOperators"])

    def found(self) -> list[tuple[str, str]]:
        """Values and reasons of what is in the side output, in its order."""
        letters = [(each.value() or b"", DeadLetter.read(cast(Any, each.headers()))) for each in self.side.messages()]
        return [(value.decode(), letter.reason) for value, letter in letters if letter is not None]


@pytest.fixture
def followed(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> Callable[..., Follower]:
    return lambda build: Follower(spark, tmp_path, new_topic(), new_topic(), build)


@pytest.mark.parametrize(
    ("build", "late", "dropped"),
    [
        (tumbling, [0, 1, 2, 3], 3),  # a's two rows are one group; b's window [80, 90) ended when the watermark did
        (sliding, [0, 0, 1, 1, 2, 2, 3], 5),  # each row is in two windows; b's row of 89 is still in [85, 95)
        (sessions, [0, 1, 2], 3),
        (deduplicated, [0, 1, 2, 3, 4], 5),
        (deduplicated_then_counted, [0, 1, 2, 3, 4], 5),
        (joined_with_itself, [0, 1, 2, 3, 4], 10),  # Spark counts them on both sides
    ],
)
def test_what_spark_drops_is_what_the_follower_finds(
    followed: Callable[..., Follower],
    build: Callable[[DataFrame], DataFrame],
    late: list[int],
    dropped: int,
) -> None:
    flow = followed(build)
    flow.source.send(ON_TIME)
    assert flow.run() == 0
    flow.source.send(ON_TIME + MIXED)

    assert flow.run() == dropped

    assert flow.late().catch_up(unheard=True) == len(late)
    assert sorted(value for value, _ in flow.found()) == sorted(MIXED[number] for number in late)


def test_late_rows_are_written_once_whatever_happens_to_who_writes_them(followed: Callable[..., Follower]) -> None:
    flow = followed(tumbling)
    flow.source.send(ON_TIME)
    flow.run()
    flow.source.send([*ON_TIME, event("a", 5)])
    flow.run()
    follower = flow.late()
    for batch in flow.reported:
        follower.on_batch(batch)
    assert (follower.catch_up(), follower.catch_up(), follower.catch_up(unheard=True)) == (1, 0, 0)

    flow.source.send([event("a", 6), event("c", 99)])
    flow.run()
    assert follower.catch_up() == 0  # it has not heard of that yet
    assert follower.catch_up(unheard=True) == 1
    assert follower.total == 2

    # killed after the transaction, before the note
    last = Position.read(follower.position)
    assert last is not None
    Position(last.batch - 1, 1).write(follower.position)
    again = flow.late()
    assert (again.catch_up(unheard=True), again.total) == (1, 2)
    assert flow.found() == [
        (event("a", minute), "late: its window closed at 2026-01-01T00:10:00.000Z, the watermark was at "
         "2026-01-01T01:30:00.000Z")
        for minute in (5, 6)
    ]  # fmt: skip
    (first, _) = flow.side.messages()
    letter = DeadLetter.read(cast(Any, first.headers()))
    assert letter is not None
    assert (letter.topic, letter.offset, letter.job, letter.view) == (flow.source.name, 2, "job", "flow")


def test_micro_batches_without_drops_are_not_read_again(followed: Callable[..., Follower]) -> None:
    flow = followed(tumbling)
    flow.source.send(ON_TIME)
    flow.run()
    flow.source.send(ON_TIME)
    flow.run()
    follower = flow.late()
    follower.rebuild = lambda _load: pytest.fail("nothing is to be read")
    for batch in flow.reported:
        follower.on_batch(batch)

    assert follower.catch_up() == 0
    assert Position.read(follower.position) == Position(flow.reported[-1]["batchId"], 0)


def test_a_flow_without_a_watermark_of_its_own_is_refused(followed: Callable[..., Follower]) -> None:
    flow = followed(lambda rows: rows.withWatermark("at", DELAY).groupBy(F.window("at", "10 minutes"), "k").count())
    flow.source.send(ON_TIME)
    flow.run()
    flow.source.send(ON_TIME + MIXED)
    flow.run()

    with pytest.raises(PipelineError, match=r"sets no watermark by rows\.watermark"):
        flow.late().catch_up(unheard=True)


def test_one_record_from_the_future_closes_no_window_where_it_is_rejected(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    """The check of docs/pipeline.md, and of the job that `ottla pipeline new` writes."""
    source = new_topic()

    def run(*lines: str) -> list[tuple[str, int]]:
        source.send(lines)
        read = from_json(source.stream(spark), SCHEMA, keep=("timestamp",))
        latest = F.col("timestamp") + F.expr("INTERVAL 1 DAY")
        rows = tumbling(read.check("is not from the future", F.col("at") < latest).rows)
        found = run_to_end(rows, tmp_path / "checkpoint")
        assert not any(each["numRowsDroppedByWatermark"] for batch in found.batches for each in batch["stateOperators"])
        return [(row["k"], row["count"]) for row in found.rows]

    in_a_century = event("x", 1).replace("2026", "2126")
    assert run(event("a", 95), event("a", 101), in_a_century) == []
    assert sorted(run(event("a", 96), event("b", 97), event("c", 130))) == [("a", 1), ("a", 2), ("b", 1)]
