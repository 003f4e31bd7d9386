"""Streams joined with a captured table as of the time of each row, and tables that keep all versions of the rows."""

import json
import re
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, captured, history, topic
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError, PipelineError
from ottla.pipeline.golden_run import InputRecord, Trial
from ottla.pipeline.progress import Figures, FlowProgress
from ottla.pipeline.queries import plan
from ottla.pipeline.rows import Checked, Versions, as_of, from_json
from ottla.pipeline.sinks import delta
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import run_job
from tests.pipeline.run_process import CommandLine
from tests.pipeline.topic import Topic
from tests.support.change_events import AT_MS, CapturedTable, Event

COLUMNS = (("id", "int4", -1), ("name", "text", -1), ("since", "date", -1))
ORDER = "n INT NOT NULL, customer INT, at TIMESTAMP"


class Customers:
    """The captured table and its topic. Times are seconds after `AT_MS`."""

    def __init__(self, source: Topic, *columns: tuple[str, str, int], **options: Any) -> None:
        self.source = source
        self.table = CapturedTable(*(columns or COLUMNS), **options)

    def at(self, second: float) -> CapturedTable:
        self.table.at_ms = AT_MS + int(second * 1000)
        return self.table

    def send(self, *events: Iterable[Event]) -> None:
        producer = Producer({"bootstrap.servers": self.source.bootstrap, "partitioner": "murmur2_random"})
        for key, value in (event for some in events for event in some):
            producer.produce(self.source.name, value, key)
        assert producer.flush(30) == 0

    def put(self, second: float, number: int, name: str, op: str = "c") -> None:
        self.send(self.at(second).created(str(number), name, "2026-01-31", op=op))

    def change(self, second: float, number: int, name: str) -> None:
        self.send(self.at(second).updated(str(number), name, "2026-01-31"))

    def drop(self, second: float, number: int) -> None:
        self.send(self.at(second).deleted(str(number), None, None))


def time_of(second: float) -> datetime:
    return datetime.fromtimestamp(AT_MS / 1000 + second, UTC)


def asked(spark: SparkSession, *rows: tuple[int | None, float | None]) -> DataFrame:
    """Rows of a customer and a second."""
    made = [(customer, None if second is None else time_of(second)) for customer, second in rows]
    return spark.createDataFrame(made, "customer INT, at TIMESTAMP").coalesce(1)


def names(joined: DataFrame) -> list[Any]:
    return [row["name"] for row in joined.collect()]


@pytest.fixture
def customers(new_topic: TopicFactory) -> Customers:
    return Customers(new_topic(2))


def test_a_replay_gives_the_figures_of_the_first_run(
    spark: SparkSession, customers: Customers, new_topic: TopicFactory, tmp_path: Path
) -> None:
    orders, letters = new_topic(), new_topic()

    def run(name: str) -> list[tuple[Any, ...]]:
        """The job from the beginning, with nothing kept of another run."""
        job = Job("shop", dead_letters=letters.name)

        @job.view(orders=topic(orders.name))
        def clean(orders: DataFrame) -> Any:
            return from_json(orders, ORDER)

        @job.flow(orders=clean, customers=history(customers.source.name, delay="2 seconds"), to=delta("out"))
        def named(orders: DataFrame, customers: Versions) -> DataFrame:
            return as_of(orders, customers, on="customer", at="at")

        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        run_job(job, context_of(spark, directory, orders.bootstrap), directory / "checkpoints")
        rows = DeltaTable(directory / "out").to_pyarrow_table().to_pylist()
        return sorted((row["n"], row["customer"], row["name"]) for row in rows)

    def order(*given: tuple[int, int, float]) -> None:
        orders.send(
            [json.dumps({"n": n, "customer": who, "at": time_of(second).isoformat()}) for n, who, second in given]
        )

    start = int(time.time() - AT_MS / 1000) - 100
    for number in range(4):
        customers.put(start, number, f"first {number}", op="r")
    customers.change(start + 20, 1, "second 1")
    customers.drop(start + 20, 2)
    order((1, 0, start + 10), (2, 1, start + 19), (3, 1, start + 20), (4, 2, start + 19), (5, 2, start + 21))
    order((6, 9, start + 10))
    first = [(1, 0, "first 0"), (2, 1, "first 1"), (3, 1, "second 1"), (4, 2, "first 2"), (5, 2, None), (6, 9, None)]
    assert run("a") == first
    now = int(time.time() - AT_MS / 1000)
    customers.change(now, 0, "third 0")
    customers.put(now, 2, "third 2")
    customers.drop(now + 0.5, 1)
    order((7, 0, now), (8, 2, now - 0.1), (9, 2, now), (10, 1, now + 0.5), (11, 1, now + 0.4))
    second = [(7, 0, "third 0"), (8, 2, None), (9, 2, "third 2"), (10, 1, None), (11, 1, "second 1")]
    assert run("a") == [*first, *second]
    customers.change(time.time() - AT_MS / 1000, 0, "fourth 0")
    assert run("b") == [*first, *second]


def test_a_row_waits_until_its_version_is_known(spark: SparkSession, customers: Customers, tmp_path: Path) -> None:
    context = context_of(spark, tmp_path, customers.source.bootstrap)
    now = time.time() - AT_MS / 1000
    customers.put(now - 100, 1, "before", op="r")
    versions = history(customers.source.name, delay="5 seconds").load(context)
    assert names(as_of(asked(spark, (1, now - 50)), versions, on="customer", at="at")) == ["before"]
    now = time.time() - AT_MS / 1000  # of Spark's first query nobody knows how long it takes
    late = threading.Timer(1, customers.change, (now - 1, 1, "after"))
    late.start()
    assert names(as_of(asked(spark, (1, now - 50), (1, now)), versions, on="customer", at="at")) == ["before", "after"]
    late.join()
    ahead = as_of(asked(spark, (1, now + 3600), (1, now)), versions, on="customer", at="at", status="known")
    assert [tuple(row)[-2:] for row in ahead.select("name", "known").collect()] == [(None, "ahead"), ("after", "found")]
    with pytest.raises(PySparkException, match="is ahead of the clock: its version is not known yet"):
        as_of(asked(spark, (1, now + 3600)), versions, on="customer", at="at").collect()


def test_what_the_history_does_not_know_is_refused_or_marked(
    spark: SparkSession, customers: Customers, tmp_path: Path
) -> None:
    context = context_of(spark, tmp_path, customers.source.bootstrap)
    with pytest.raises(JobError, match="has no change of a row yet"):
        history(customers.source.name).load(context)
    for number in range(8):
        customers.put(10, number, "a", op="r")
    versions = history(customers.source.name).load(context)
    early = asked(spark, (1, 9), (1, 10), (77, 11), (1, None), (None, 11))
    with pytest.raises(
        PySparkException, match=r"key 1 was at 2026-01-01T00:00:09\.000Z is not known: the history begins"
    ):
        as_of(early, versions, on="customer", at="at").collect()
    marked = as_of(early, versions, on="customer", at="at", columns=["name"], status="known")
    assert marked.columns == ["customer", "at", "name", "known"]
    assert [tuple(row)[2:] for row in marked.collect()] == [
        (None, "too old"), ("a", "found"), (None, "absent"), (None, "no time"), (None, "absent"),
    ]  # fmt: skip
    with pytest.raises(PySparkException, match="the row with key 1 has no time"):
        as_of(asked(spark, (1, None)), versions, on="customer", at="at").collect()

    for partition in (0, 1):  # retention
        customers.source.trim(1, partition)
    customers.change(20, 1, "b")
    shorter = context_of(spark, tmp_path / "other", customers.source.bootstrap)
    again = history(customers.source.name).load(shorter)
    with pytest.raises(PySparkException, match=r"the topic had lost older changes \(retention\)"):
        as_of(asked(spark, (77, 25)), again, on="customer", at="at").collect()
    assert names(as_of(asked(spark, (1, 25)), again, on="customer", at="at")) == ["b"]


def broken(checked: Checked) -> tuple[list[Any], dict[str, int], dict[str, int]]:
    """The rows that pass, the counts of expectations, and those of lookups, of a query that ends."""
    rows = checked.of_view("orders").rows
    query = rows.writeStream.format("memory").queryName("broken").trigger(availableNow=True).start()
    query.awaitTermination()
    progress = FlowProgress(Figures("broken", 0.0))
    for each in query.recentProgress:
        progress.on_batch(json.loads(each.json), 0.0)
    known = progress.figures.expectations.get("orders", {})
    (lookups,) = progress.figures.lookups.values()
    passed = sorted(row["n"] for row in rows.sparkSession.table("broken").collect())
    return passed, {name: each["rows"] for name, each in known.items()}, {k: n for k, n in lookups.items() if n}


def test_a_reference_is_judged_as_of_the_time_of_the_row(
    spark: SparkSession, customers: Customers, new_topic: TopicFactory, tmp_path: Path
) -> None:
    context = context_of(spark, tmp_path, customers.source.bootstrap)
    for number in range(4):
        customers.put(10, number, "a", op="r")
    customers.drop(20, 1)
    customers.put(30, 7, "new")
    versions = history(customers.source.name).load(context)
    orders = new_topic()
    asked = [(1, 1, 15), (2, 1, 25), (3, 7, 29), (4, 7, 30), (5, None, 29), (6, 99, 31)]
    lines = [json.dumps({"n": n, "customer": who, "at": time_of(at).isoformat()}) for n, who, at in asked]
    orders.send([*lines, "no order"])

    def decoded() -> Checked:
        return from_json(orders.stream(spark, includeHeaders="true"), ORDER)

    known = decoded().expect_in("customer was there", {"customer": "id"}, versions, at="at")
    found = {"found": 2, "absent": 3}
    assert broken(known) == ([1, 2, 3, 4, 5, 6], {"customer was there": 3}, found)
    dropped = decoded().expect_in("customer was there", {"customer": "id"}, versions, "drop", at="at")
    assert broken(dropped) == ([1, 4, 5], {"customer was there": 3}, found)

    orders.send([json.dumps({"n": 7, "customer": 1, "at": time_of(5).isoformat()})])  # before the history begins
    known = decoded().expect_in("customer was there", {"customer": "id"}, versions, at="at")
    assert broken(known) == ([1, 2, 3, 4, 5, 6, 7], {"customer was there": 4}, {**found, "too old": 1})
    with pytest.raises(StreamingQueryException, match=r"key 1 was at 2026-01-01T00:00:05\.000Z is not known"):
        broken(decoded().expect_in("customer was there", {"customer": "id"}, versions, "drop", at="at"))

    for wrong, options, why in (
        ({"customer": "id"}, {}, "at= names the time of the rows"),
        ({"customer": "id"}, {"at": "at", "otherwise": "quarantine"}, "decided by another query"),
        ({"customer": "name"}, {"at": "at"}, "which is looked up by its key: id"),
        ({"customer": "id"}, {"at": "n"}, "'n' is int, and the time has to be a TIMESTAMP"),
        ({"custom": "id"}, {"at": "at"}, "the rows have no column 'custom'; did you mean 'customer'"),
    ):
        with pytest.raises(JobError, match=why):
            decoded().expect_in("customer was there", wrong, versions, **options)


def test_topics_and_tables_that_have_no_history_are_refused(
    spark: SparkSession, new_topic: TopicFactory, customers: Customers, tmp_path: Path
) -> None:
    context = context_of(spark, tmp_path, customers.source.bootstrap)
    compacted = Customers(new_topic(config={"cleanup.policy": "compact"}))
    compacted.put(0, 1, "a")
    with pytest.raises(JobError, match=r"the topic is compacted \(cleanup.policy=compact\), which removes versions"):
        history(compacted.source.name).load(context)
    keyless = Customers(new_topic(), *COLUMNS, key=())
    keyless.put(0, 1, "a")
    with pytest.raises(JobError, match="the captured table has no primary key"):
        history(keyless.source.name).load(context)
    with pytest.raises(JobError, match="cannot be asked"):
        history("no-such-topic").load(context)
    customers.put(0, 1, "a")
    customers.drop(1, 1)
    by_name = history(customers.source.name, keys="name").load(context)
    named = asked(spark, (1, 2)).withColumn("name", F.lit("a"))
    with pytest.raises(
        PySparkException, match="is no change that it can keep: it has no 'name', which is part of the key"
    ):
        as_of(named, by_name, on="name", at="at", columns=["id"]).collect()
    with pytest.raises(JobError, match="its key has the column 'nr', and the table has: id, name, since"):
        history(customers.source.name, keys="nr").load(context)
    versions = history(customers.source.name).load(context)
    rows = asked(spark, (1, 5))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"on": "custommer", "at": "at"}, "have no column 'custommer'; did you mean 'customer'"),
        ({"on": ("customer", "at"), "at": "at"}, "the key of history.* is id, and on= names customer, at"),
        ({"on": "at", "at": "at"}, "'at' is timestamp, and 'id' of history.* is int: cast it"),
        ({"on": "customer", "at": "customer"}, "'customer' is int, and the time has to be a TIMESTAMP"),
        ({"on": "customer", "at": "at", "columns": ["nam"]}, "has no column 'nam'; did you mean 'name'"),
        ({"on": "customer", "at": "at", "status": "name"}, "the rows have a column 'name' already"),
    ]
    for options, said in refused:
        with pytest.raises(JobError, match=said):
            as_of(rows, versions, **options)
    with pytest.raises(JobError, match="takes what history"):
        as_of(rows, rows, on="customer", at="at")  # type: ignore[arg-type]
    with pytest.raises(JobError, match="the rows have a column 'name' already"):
        as_of(rows.withColumn("name", F.lit("x")), versions, on="customer", at="at")
    job = Job("shop")
    job.sql_flow("flow", "SELECT * FROM c", c=history(customers.source.name), to=topic("x"))
    with pytest.raises(PipelineError, match="is no table of SQL: join it by as_of"):
        plan(job, context)


def test_a_table_that_is_altered_meanwhile_stops_the_join(
    spark: SparkSession, customers: Customers, tmp_path: Path
) -> None:
    context = context_of(spark, tmp_path, customers.source.bootstrap)
    customers.put(0, 1, "a", op="r")
    given = history(customers.source.name)
    before = given.load(context)
    altered = Customers(customers.source, *COLUMNS, ("vip", "bool", -1))
    altered.send(altered.at(10).updated("1", "b", "2026-01-31", "t"))
    with pytest.raises(PySparkException, match="has only had since the run began: start the run again"):
        as_of(asked(spark, (1, 11)), before, on="customer", at="at").collect()
    after = as_of(asked(spark, (1, 9), (1, 11)), given.load(context), on="customer", at="at")
    assert [tuple(row)[2:] for row in after.select("customer", "at", "name", "vip").collect()] == [
        ("a", None), ("b", True),
    ]  # fmt: skip
    text = Customers(
        customers.source, ("id", "int4", -1), ("name", "text", -1), ("since", "text", -1), ("vip", "bool", -1)
    )
    text.send(text.at(20).updated("1", "c", "yesterday", "t"))
    renewed = given.load(context)
    assert renewed.schema["since"].dataType.simpleString() == "string"
    customers.send([(b"{}", b"no event")])
    with pytest.raises(
        PySparkException, match=r"the record at offset \d+ of partition \d is no change.*malformed JSON"
    ):
        as_of(asked(spark, (1, 11)), renewed, on="customer", at="at").collect()


def test_a_table_of_all_versions_is_exact(
    spark: SparkSession, customers: Customers, new_topic: TopicFactory, tmp_path: Path
) -> None:
    letters = new_topic()
    context = context_of(spark, tmp_path, customers.source.bootstrap)

    def run() -> list[tuple[Any, ...]]:
        job = Job("shop", dead_letters=letters.name)
        job.apply_changes(captured(customers.source.name), into=delta("out"), history="all", name="copy")
        run_job(job, context, tmp_path / "checkpoints")
        rows = DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
        return sorted(
            ((row["id"], row["name"], *map(second, (row["valid_from"], row["valid_to"]))) for row in rows), key=str
        )

    def second(at: datetime | None) -> int | None:
        return None if at is None else int(at.timestamp() - AT_MS / 1000)

    customers.put(0, 1, "a", op="r")
    customers.put(0, 2, "a", op="r")
    customers.change(5, 1, "b")
    assert run() == [(1, "a", 0, 5), (1, "b", 5, None), (2, "a", 0, None)]
    customers.drop(7, 2)
    customers.change(8, 1, "c")
    customers.change(8, 1, "d")
    expected = [(1, "a", 0, 5), (1, "b", 5, 8), (1, "c", 8, 8), (1, "d", 8, None), (2, "a", 0, 7)]
    assert run() == expected
    commits = tmp_path / "checkpoints" / "copy" / "commits"  # as if Spark had died after the sink's commit
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    assert run() == expected
    customers.send(customers.at(9).truncated())
    customers.put(9, 3, "e")
    assert run() == [*expected[:3], (1, "d", 8, 9), (2, "a", 0, 7), (3, "e", 9, None)]
    assert letters.messages() == []


def test_a_table_read_with_truncates_cannot_keep_the_newest_rows_alone(
    spark: SparkSession, customers: Customers, new_topic: TopicFactory, tmp_path: Path
) -> None:
    context: RunContext = context_of(spark, tmp_path, customers.source.bootstrap)
    customers.put(0, 1, "a")
    customers.send(customers.at(1).truncated())
    both = Job("shop")
    both.apply_changes(captured(customers.source.name), into=delta("out"), history="all", name="versions")
    both.apply_changes(captured(customers.source.name), into=delta("copy"), name="copy")
    with pytest.raises(PipelineError, match="history='all' reads it with truncates=True"):
        plan(both, context)
    job = Job("shop", dead_letters=new_topic().name)
    job.apply_changes(captured(customers.source.name, truncates=True), into=delta("copy"), name="copy")
    with pytest.raises(PipelineError, match="the captured table was truncated, and the place of that"):
        run_job(job, context, tmp_path / "checkpoints")
    own = Customers(new_topic(), ("id", "int4", -1), ("valid_to", "text", -1))
    own.send(own.at(0).created("1", "x"))
    other = Job("shop")
    other.apply_changes(captured(own.source.name), into=delta("out"), history="all", name="versions")
    with pytest.raises(JobError, match="the captured table has a column 'valid_to', which history='all' adds"):
        plan(other, context)


def test_a_golden_test_joins_and_compares_all_versions(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    job = Job("shop")
    job.apply_changes(captured("customers-captured"), into=delta("nowhere"), history="all", name="versions")

    @job.flow(orders=topic("orders"), customers=history("customers-captured"), to=delta("nowhere-either"))
    def named(orders: DataFrame, customers: Versions) -> DataFrame:
        return as_of(from_json(orders, ORDER).rows.drop("at").withColumn("at", F.lit(time_of(6))), customers,
            on="customer", at="at").select("n", "name")  # fmt: skip

    table = Customers(Topic(bootstrap, "customers-captured"))
    events = table.at(0).created("1", "a", "2026-01-31") + table.at(5).updated("1", "b", "2026-01-31")
    events += table.at(7).deleted("1", None, None)
    orders = [InputRecord(b"", b'{"n": 1, "customer": 1}')]
    trial = Trial(spark, job, tmp_path, bootstrap, tmp_path / "scratch", "golden")

    outputs = trial.run({"customers-captured": [InputRecord(*event) for event in events], "orders": orders})

    since = {"id": 1, "since": "2026-01-31"}
    assert outputs["versions"] == [
        {
            "value": {
                **since,
                "name": "a",
                "valid_from": "2026-01-01T00:00:00.000Z",
                "valid_to": "2026-01-01T00:00:05.000Z",
            }
        },
        {
            "value": {
                **since,
                "name": "b",
                "valid_from": "2026-01-01T00:00:05.000Z",
                "valid_to": "2026-01-01T00:00:07.000Z",
            }
        },
    ]
    assert outputs["named"] == [{"value": {"n": 1, "name": "b"}}]


@pytest.mark.soak
def test_the_example_of_the_page_runs(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    changes, orders = new_topic(), new_topic()  # the pages' names are those of other examples, too
    customers = Customers(changes, *COLUMNS[:2], ("country", "text", -1))
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "as_of(" in block]
    file = tmp_path / "orders.py"
    file.write_text(example.replace("shop.public.customers", changes.name).replace('"orders"', repr(orders.name)))
    now = int(time.time() - AT_MS / 1000) - 100
    customers.send(customers.at(now).created("1", "a", "DE", op="r"), customers.at(now + 20).updated("1", "b", "DK"))
    orders.send(
        [json.dumps({"number": n, "customer": 1, "placed_at": time_of(now + 10 * n).isoformat()}) for n in (1, 2, 3)]
    )
    home = tmp_path / "home"
    done = CommandLine(home, bootstrap)("run", str(file), "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    written = [json.loads(message.value() or b"") for message in Topic(bootstrap, "orders-enriched").messages()]
    assert [(each["number"], each["name"], each["country"]) for each in written] == [
        (1, "a", "DE"), (2, "b", "DK"), (3, "b", "DK"),
    ]  # fmt: skip
