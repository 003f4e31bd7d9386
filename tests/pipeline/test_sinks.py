"""What every table sink promises, shown with readers that know nothing of Ottla."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ottla.pipeline.context import Outputs
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.pipeline.sinks import SinkError, parquet
from ottla.pipeline.sinks.base import Recording
from tests.pipeline.flow import Flow
from tests.pipeline.sink_targets import Target

COLUMNS = "flight INT, carrier STRING, day DATE, delay DOUBLE, left TIMESTAMP"


@pytest.fixture(params=["parquet", "delta", "iceberg", "database"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


@pytest.fixture(params=["delta", "iceberg", "database"])
def changing(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


def flight(number: int, carrier: str | None = "UA", delay: float | None = 1.5) -> dict[str, Any]:
    when = {"day": "2013-01-01", "left": "2013-01-01T05:00:00.123456Z"}
    return {"flight": number, "carrier": carrier, "delay": delay, **when}


def test_each_row_is_there_once_over_restarts_and_repeats(spark: SparkSession, tmp_path: Path, target: Target) -> None:
    flow = Flow(spark, tmp_path, COLUMNS)
    options = {} if target.kind == "database" else {"partition_by": "carrier"}
    flow.feed(flight(1), flight(2, None), flight(3, "A/B=%c d"))
    flow.feed(flight(4, delay=None))
    sink = target.sink(**options)
    assert isinstance(sink, Recording)
    outputs = Outputs("", tmp_path)
    assert sink.last_batch(str(uuid4()), outputs) is None  # before there is anything
    flow.run(sink)
    flow.forget_the_last_micro_batch()
    flow.run(sink)
    flow.feed(flight(5))
    flow.run(sink)

    # what a savepoint is held against: the number of the last micro-batch, of this query alone
    assert sink.last_batch(CheckpointLog(tmp_path / "checkpoint").query_id(), outputs) == 2
    assert sink.last_batch(str(uuid4()), outputs) is None
    assert target.read("flight, coalesce(carrier, 'none'), coalesce(delay, -1)") == [
        (1, "UA", 1.5), (2, "none", 1.5), (3, "A/B=%c d", 1.5), (4, "UA", -1.0), (5, "UA", 1.5),
    ]  # fmt: skip
    days = {(str(day), str(left)[:26]) for day, left in target.read('day, "left"')}
    assert {day for day, _ in days} == {"2013-01-01"}
    assert all("05:00:00.123456" in left for _, left in days)
    back = target.sink(**options).read(flow.context)
    assert sorted(row.flight for row in back.collect()) == [1, 2, 3, 4, 5]


def test_rows_that_change_replace_those_of_the_same_key(spark: SparkSession, tmp_path: Path, changing: Target) -> None:
    flow = Flow(spark, tmp_path, COLUMNS)
    sink = changing.sink(key="carrier")

    def run() -> None:
        flow.run(sink, flow.rows().groupBy("carrier").count(), mode="update")

    flow.feed(flight(1), flight(2, "AA"))
    flow.feed(flight(3), flight(4))
    run()
    flow.forget_the_last_micro_batch()
    run()
    flow.feed(flight(5, "DL"), flight(6))
    run()

    assert changing.read("carrier, count") == [("AA", 1), ("DL", 1), ("UA", 4)]


def test_a_complete_result_takes_the_place_of_the_last(spark: SparkSession, tmp_path: Path, changing: Target) -> None:
    flow = Flow(spark, tmp_path, COLUMNS)

    def run() -> None:
        flow.run(changing.sink(), flow.rows().groupBy("carrier").count(), mode="complete")

    flow.feed(flight(1), flight(2, "AA"))
    flow.feed(flight(3))
    run()
    flow.forget_the_last_micro_batch()
    run()

    assert changing.read("carrier, count") == [("AA", 1), ("UA", 2)]


def test_other_columns_are_refused_by_name(spark: SparkSession, tmp_path: Path, target: Target) -> None:
    flow = Flow(spark, tmp_path, COLUMNS)
    flow.feed(flight(1))
    flow.run(target.sink())
    more = flow.rows().withColumn("gate", F.col("flight"))
    with pytest.raises(SinkError, match="column 'gate' is not in the table"):
        flow.run(target.sink(), more)
    if target.kind != "database":
        with pytest.raises(SinkError, match="column 'delay' is double in the table and string here"):
            flow.run(target.sink(), flow.rows().withColumn("delay", F.col("carrier")))
        with pytest.raises(SinkError, match="the table's column 'delay' is not in the rows"):
            flow.run(target.sink(), flow.rows().drop("delay"))
        with pytest.raises(SinkError, match="partitioned by nothing, the job asks for carrier"):
            flow.run(target.sink(partition_by="carrier"))


def test_updates_need_a_key(spark: SparkSession, tmp_path: Path, changing: Target) -> None:
    flow = Flow(spark, tmp_path, COLUMNS)
    with pytest.raises(SinkError, match=r"needs key=\.\.\. in mode 'update'"):
        flow.run(changing.sink(), flow.rows().groupBy("carrier").count(), mode="update")
    with pytest.raises(SinkError, match="has key 'airline', and the rows have only: flight, carrier"):
        flow.run(changing.sink(key="airline"))


def test_parquet_cannot_be_updated(spark: SparkSession, tmp_path: Path) -> None:
    flow = Flow(spark, tmp_path, COLUMNS)
    with pytest.raises(SinkError, match="can only be added to, and mode 'update' changes rows: write to delta"):
        flow.run(parquet("out"), flow.rows().groupBy("carrier").count(), mode="update")


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_small_files_become_one_per_partition(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    target = Target(kind, tmp_path)
    flow = Flow(spark, tmp_path, COLUMNS)
    sink = target.sink(partition_by="carrier")
    for number in range(3):
        flow.feed(flight(2 * number), flight(2 * number + 1, "AA"))
    flow.run(sink)
    before = target.read("flight, carrier")

    assert sink.compact(flow.directory) == "6 files became 2"  # type: ignore[attr-defined]
    assert sink.compact(flow.directory) == "no small files"  # type: ignore[attr-defined]
    assert target.read("flight, carrier") == before
    flow.forget_the_last_micro_batch()
    flow.run(sink)
    assert target.read("flight, carrier") == before
