"""What every table sink promises, shown with readers that know nothing of Ottla."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from ottla.pipeline.sinks import SinkError, database, delta, iceberg, parquet
from ottla.pipeline.sinks.base import Sink
from tests.pipeline.flow import Flow

COLUMNS = "flight INT, carrier STRING, day DATE, delay DOUBLE, left TIMESTAMP"


class Target:
    """One kind of sink below a directory, and a reader that shares nothing with it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self._catalog = {"uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}

    def sink(self, **options: Any) -> Sink:
        makers: dict[str, Callable[..., Sink]] = {
            "parquet": lambda **given: parquet("out", **given),
            "delta": lambda **given: delta("out", **given),
            "iceberg": lambda **given: iceberg("flights.out", catalog="test", **given, **self._catalog),
            "database": lambda **given: database(f"sqlite:///{self.directory}/out.db", "out", **given),
        }
        return makers[self.kind](**options)

    def read(self, columns: str) -> list[tuple[Any, ...]]:
        if self.kind == "parquet":
            found = f"read_parquet('{self.directory}/out/**/*.parquet', hive_partitioning=true)"
            return sorted(duckdb.sql(f"SELECT {columns} FROM {found}").fetchall())
        if self.kind == "database":
            connection = sqlite3.connect(self.directory / "out.db")
            try:
                return sorted(connection.execute(f"SELECT {columns} FROM out").fetchall())
            finally:
                connection.close()
        if self.kind == "delta":
            rows = DeltaTable(self.directory / "out").to_pyarrow_table()
        else:
            rows = load_catalog("test", **self._catalog).load_table("flights.out").scan().to_arrow()
        return sorted(duckdb.from_arrow(rows).select(columns).fetchall())


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
    flow.run(target.sink(**options))
    flow.forget_the_last_micro_batch()
    flow.run(target.sink(**options))
    flow.feed(flight(5))
    flow.run(target.sink(**options))

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
