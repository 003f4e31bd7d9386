"""Streams joined as of the time of each row with tables that `apply_changes(..., history="all")` writes: each run keeps
to one snapshot, whatever becomes of the table."""

import json
import shutil
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline import history
from ottla.pipeline.context import Pins
from ottla.pipeline.errors import JobError
from ottla.pipeline.job_file import load_job
from ottla.pipeline.rows import as_of
from ottla.pipeline.run_store import RunRecord, run_directory
from ottla.pipeline.running import RunRequest, run
from ottla.pipeline.session import Engine
from ottla.pipeline.sinks import database, delta
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.test_as_of import Customers, asked, time_of
from tests.pipeline.test_savepoint import Silent
from tests.pipeline.topic import Topic
from tests.support.change_events import AT_MS

CATALOG = 'catalog="test", uri="sqlite:///{directory}/catalog.db", warehouse="file://{directory}/warehouse"'
TABLES = """\
from ottla.pipeline import Job, captured
from ottla.pipeline.sinks import delta, iceberg

job = Job("tables-of-{changes}", dead_letters="{letters}")
customers = captured("{changes}")
job.apply_changes(customers, into=delta("versions"), history="all", name="in_delta")
job.apply_changes(customers, into=iceberg("shop.versions", {catalog}), history="all", name="in_iceberg")
"""
ORDERS = """\
from ottla.pipeline import Job, history, topic
from ottla.pipeline.rows import as_of, from_json
from ottla.pipeline.sinks import delta, iceberg, parquet

job = Job("orders-of-{orders}", dead_letters="{letters}")


@job.view(orders=topic("{orders}"))
def clean(orders):
    return from_json(orders, "n INT NOT NULL, customer INT, at TIMESTAMP")


def join(orders, customers):
    return as_of(orders, customers, on="customer", at="at", columns=["name"], status="known")


@job.flow(orders=clean, customers=history(delta("versions"), keys="id", delay="0 seconds"), to=parquet("delta"))
def by_delta(orders, customers):
    return join(orders, customers)


@job.flow(
    orders=clean,
    customers=history(iceberg("shop.versions", {catalog}), keys="id", delay="0 seconds"),
    to=parquet("iceberg"),
)
def by_iceberg(orders, customers):
    return join(orders, customers)
"""


@dataclass
class Shop:
    """A job that writes two tables of versions, and one that reads them."""

    spark: SparkSession
    bootstrap: str
    directory: Path
    customers: Customers
    orders: Topic
    letters: Topic

    def __post_init__(self) -> None:
        names = {"changes": self.customers.source.name, "orders": self.orders.name, "letters": self.letters.name}
        catalog = CATALOG.format(directory=self.directory)
        for name, text in (("tables", TABLES), ("orders", ORDERS)):
            (self.directory / f"{name}.py").write_text(text.format(**names, catalog=catalog))

    def run(self, script: str, **options: Any) -> RunRecord:
        """`ottla pipeline run --once`; the record of the run."""
        file, home = self.directory / f"{script}.py", self.directory / "home"
        job = load_job(file)
        engine = Engine(self.spark, self.directory, self.spark.sparkContext)
        assert run(RunRequest(job, file, home, self.bootstrap, once=True, **options), Silent(), engine=engine)
        return run_directory(home, options.get("name", job.name)).read()

    def order(self, *orders: tuple[int, int, float]) -> None:
        self.orders.send([json.dumps({"n": n, "customer": c, "at": time_of(at).isoformat()}) for n, c, at in orders])

    def joined(self, suffix: str = "") -> list[tuple[Any, ...]]:
        """What came out, which is the same of both tables."""
        directories = (self.directory / f"{kind}{suffix}" for kind in ("delta", "iceberg"))
        found = [
            duckdb.execute(f"SELECT n, name, known FROM '{each}/**/*.parquet' ORDER BY n").fetchall()
            for each in directories
        ]
        assert found[0] == found[1]
        return found[0]


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> Shop:
    return Shop(spark, bootstrap, tmp_path, Customers(new_topic(2)), new_topic(), new_topic())


def test_a_run_keeps_to_one_snapshot_until_it_is_given_the_newest(shop: Shop) -> None:
    customers = shop.customers
    for number in range(3):
        customers.put(0, number, f"first {number}", op="r")
    customers.change(5, 1, "second 1")
    customers.drop(7, 2)
    customers.put(9, 3, "first 3")
    shop.run("tables")
    shop.order(
        (1, 0, 4), (2, 1, 4.9), (3, 1, 5), (4, 2, 6.9), (5, 2, 7), (6, 3, 8.9), (7, 8, 3), (8, 0, -1), (9, 0, 10)
    )
    first = [
        (1, "first 0", "found"), (2, "first 1", "found"), (3, "second 1", "found"), (4, "first 2", "found"),
        (5, None, "absent"), (6, None, "too old"), (7, None, "absent"), (8, None, "too old"), (9, None, "ahead"),
    ]  # fmt: skip
    pinned = shop.run("orders").tables
    assert shop.joined() == first
    assert len(pinned) == 2
    assert {pin["known_until_us"] for pin in pinned.values()} == {(AT_MS + 9000) * 1000}

    customers.change(20, 0, "third 0")
    shop.run("tables")
    shop.order((10, 0, 9), (11, 0, 20))
    # a replay keeps to the snapshots of its run, and so gives what that gave, though there are newer ones
    replayed = shop.run("orders", name="again", suffix="again", tables=pinned)
    assert replayed.tables == pinned
    assert shop.joined("-again") == [*first, (10, "first 0", "found"), (11, None, "ahead")]
    renewed = shop.run("orders", newest_tables=True).tables
    assert all(renewed[name]["snapshot"] != pin["snapshot"] for name, pin in pinned.items())
    assert shop.joined() == [*first, (10, "first 0", "found"), (11, "third 0", "found")]


def test_a_run_knows_its_snapshot_when_the_table_is_gone_and_takes_no_other_past(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = [(1, "a", time_of(0), time_of(10)), (1, "b", time_of(10), None)]
    write(spark, tmp_path / "versions", *given)
    kept: dict[str, dict[str, Any]] = {}
    asked_for = [(1, 5), (1, 12)]

    def start(*, renews: bool = False) -> list[Any]:
        """What a start of the run reads; `kept` is what its record has."""
        context = replace(context_of(spark, tmp_path, ""), tables=Pins(kept, renews))
        versions = history(delta("versions"), keys="id", delay="0 seconds").load(context)
        joined = as_of(asked(spark, *asked_for), versions, on="customer", at="at", status="known")
        return [row["name"] for row in joined.collect()]

    assert start() == ["a", None]
    first = dict(kept)
    write(spark, tmp_path / "versions", given[0], (1, "b", time_of(10), time_of(12)), (1, "c", time_of(12), None))
    assert start() == ["a", None]
    assert kept == first
    assert start(renews=True) == ["a", "c"]
    renewed = dict(kept)
    assert start() == ["a", "c"]
    directories = {each.name for each in (context_of(spark, tmp_path, "").home / "history").iterdir()}
    assert directories == {pin["kept_as"] for pin in renewed.values()}
    write(spark, tmp_path / "versions", (1, "mended", time_of(0), time_of(10)), (1, "b", time_of(10), None))
    with pytest.raises(JobError, match=r"has other versions of the time before 2026-01-01T00:00:12\.000Z than the one"):
        start(renews=True)
    assert kept == renewed
    assert start() == ["a", "c"]
    shutil.rmtree(tmp_path / "versions")
    assert start() == ["a", "c"]
    with pytest.raises(JobError, match="is not there yet"):
        start(renews=True)
    write(spark, tmp_path / "versions", *given)
    shutil.rmtree(context_of(spark, tmp_path, "").home / "history")
    with pytest.raises(JobError, match=r"was deleted and made anew: its version 1 is gone.*replay"):
        start()


def test_what_a_table_does_not_know_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = write(
        spark, tmp_path / "versions", (1, "a", time_of(0), time_of(10)), (1, "b", time_of(10), None),
        (2, "c", time_of(5), None),
    )  # fmt: skip
    context = context_of(spark, tmp_path, "")

    def join(*asked_for: tuple[int, float], **options: Any) -> list[Any]:
        versions = history(delta("versions"), keys="id", **options).load(context)
        joined = as_of(asked(spark, *asked_for), versions, on="customer", at="at")
        return [row["name"] for row in joined.collect()]

    assert join((1, 3), (1, 4.9), (2, 5)) == ["a", "a", "c"]
    with pytest.raises(
        PySparkException, match=r"00:00:06\.000Z is behind the end of what the table knows \(snapshot 0"
    ):
        join((1, 6))
    assert join((1, 6), (1, 10), delay="0 seconds") == ["a", "b"]
    until = datetime.fromtimestamp(AT_MS / 1000 + 100, UTC).isoformat()
    assert join((1, 100), until=until) == ["b"]
    assert join((1, time.time() - AT_MS / 1000 - 60), until="start") == ["b"]
    with pytest.raises(PySparkException, match=r"key 2 was at .*:04\.000Z is not known: the table's history begins at"):
        join((2, 4))
    assert join((2, 4), since=time_of(0).isoformat()) == [None]
    with pytest.raises(PySparkException, match=r"history begins at 2026-01-01T00:00:03\.000Z"):
        join((2, 2), since=time_of(3).isoformat())
    write_deltalake(tmp_path / "today", rows.drop("valid_from", "valid_to").toArrow())
    write_deltalake(tmp_path / "empty", rows.limit(0).toArrow())
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (delta("nowhere"), {"keys": "id"}, "Delta table nowhere is not there yet"),
        (delta("today"), {"keys": "id"}, "has no time 'valid_from', and a table of today's rows has no history"),
        (delta("empty"), {"keys": "id"}, "has no version of a row yet"),
        (delta("versions"), {"keys": "nr"}, "has the column 'nr', and the table has: id, name"),
        (delta("versions"), {}, "name the columns that identify a row"),
        (delta("versions"), {"keys": "id", "depth": "1 day"}, "there is no option 'depth' for tables"),
        (delta("versions"), {"keys": "id", "until": "2026-01-01"}, "until is a time with its zone"),
        (database("sqlite:///x.db", "versions"), {"keys": "id"}, "has no snapshots that a run could keep to"),
        ("shop.customers", {"since": "2026-01-01T00:00:00Z"}, "since is for tables"),
    ]
    for of, options, said in refused:
        with pytest.raises(JobError, match=said):
            history(of, **options).load(context_of(spark, tmp_path, ""))


def write(spark: SparkSession, path: Path, *versions: tuple[int, str, datetime, datetime | None]) -> DataFrame:
    """A Delta table of these versions, in place of what is there."""
    rows = spark.createDataFrame(list(versions), "id INT, name STRING, valid_from TIMESTAMP, valid_to TIMESTAMP")
    write_deltalake(path, rows.toArrow(), mode="overwrite")
    return rows
