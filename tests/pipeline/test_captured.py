"""A captured table as an input, and tables that follow it: events of our own connector's kind, through a topic."""

import json
import re
import sqlite3
import uuid
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, captured, topic
from ottla.pipeline.brokers import Brokers
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError, PipelineError
from ottla.pipeline.golden_run import InputRecord, Trial
from ottla.pipeline.queries import plan
from ottla.pipeline.rows import Checked, from_debezium, registry, watermark
from ottla.pipeline.rows.captured import Captured
from ottla.pipeline.rows.dead_letters import DeadLetter
from ottla.pipeline.rows.late import LateRows, Load
from ottla.pipeline.sinks import database
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import reasons, records, run_job, run_to_end
from tests.pipeline.run_process import CommandLine
from tests.pipeline.sink_targets import Target
from tests.pipeline.topic import Topic
from tests.support.change_events import AT_MS, CapturedTable, Event, numeric
from tests.support.schema_registry import SchemaRegistry

COLUMNS = (("id", "int4", -1), ("name", "text", -1), ("credit", "numeric", numeric(12, 2)), ("since", "date", -1))
CUSTOMERS = CapturedTable(*COLUMNS)


def send(to: Topic, *events: Iterable[Event]) -> None:
    """Records in the partitions of their keys, as the connector's producer chooses them."""
    producer = Producer({"bootstrap.servers": to.bootstrap, "partitioner": "murmur2_random"})
    for key, value in (event for some in events for event in some):
        producer.produce(to.name, value, key)
    assert producer.flush(30) == 0


def customer(number: int, name: str, credit: str | None = "1.50") -> tuple[str, str, str | None, str]:
    return str(number), name, credit, "2026-01-31"


def of_key(number: int) -> tuple[str | None, ...]:
    return str(number), None, None, None


def loaded(context: RunContext, given: Captured) -> Any:
    """The flow's rows of an input as a batch, so that a test may look at them."""
    records = given.topic.read(context)
    return given.decode(records, context)


def test_rows_have_the_types_of_the_table_and_what_became_of_them(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(3)
    context = context_of(spark, tmp_path, source.bootstrap)
    send(source, CUSTOMERS.created(*customer(1, "a"), op="r"), CUSTOMERS.created(*customer(2, "b", None)))
    send(source, CUSTOMERS.updated(*customer(1, "c", "-0.05")), CUSTOMERS.deleted(*of_key(2)))

    made = loaded(context, captured(source.name))

    rows = made.rows.orderBy("id", "_offset").collect()
    assert made.rows.dtypes == [
        ("id", "int"), ("name", "string"), ("credit", "decimal(12,2)"), ("since", "date"),
        ("_op", "string"), ("_ts", "timestamp"), ("_partition", "int"), ("_offset", "bigint"),
    ]  # fmt: skip
    assert [tuple(row)[:5] for row in rows] == [
        (1, "a", Decimal("1.50"), date(2026, 1, 31), "r"),
        (1, "c", Decimal("-0.05"), date(2026, 1, 31), "u"),
        (2, "b", None, date(2026, 1, 31), "c"),
        (2, None, None, None, "d"),
    ]
    assert {row["_ts"].astimezone(UTC) for row in rows} == {datetime.fromtimestamp(AT_MS / 1000, UTC)}
    assert made.rejected.count() == 0
    assert captured(source.name).load(context).rows.isStreaming


def test_records_of_any_topic_are_decoded_by_a_given_schema(spark: SparkSession) -> None:
    plain = CapturedTable(*COLUMNS, schemas=False, decimal_handling_mode="string")
    values = [value for _, value in CUSTOMERS.created(*customer(1, "a")) + plain.created(*customer(2, "b"))]
    values += [value for _, value in CUSTOMERS.deleted(*of_key(3)) + CUSTOMERS.truncated()]

    made = from_debezium(records(spark, *values, b"x"), "id INT NOT NULL, credit DECIMAL(12,2)", keep=("topic",))

    rows = made.rows.orderBy("_offset").collect()
    assert [(row.topic, row.id, row.credit, row["_op"], row["_offset"]) for row in rows] == [
        ("flights", 1, Decimal("1.50"), "c", 0), ("flights", 2, Decimal("1.50"), "c", 1), ("flights", 3, None, "d", 2),
    ]  # fmt: skip
    assert {offset: reason.partition(":")[0] for offset, reason in reasons(made).items()} == {
        4: "the table was truncated (op 't')", 5: "malformed JSON",
    }  # fmt: skip


def test_a_column_that_was_added_is_there_from_the_next_start_on(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(2)
    context = context_of(spark, tmp_path, source.bootstrap)
    altered = CapturedTable(*COLUMNS, ("vip", "bool", -1))
    send(source, CUSTOMERS.created(*customer(1, "a")))
    given = captured(source.name)
    before = given.decode(topic(source.name).read(context), context).rows
    assert before.count() == 1

    send(source, altered.updated(*customer(1, "a"), "t"))
    with pytest.raises(PySparkException, match="the table has a column 'vip' since the run began: start the run again"):
        before.collect()

    after = loaded(context, given).rows.orderBy("_offset").collect()
    assert [(row.id, row.vip) for row in after] == [(1, None), (1, True)]
    send(source, CUSTOMERS.updated(*customer(1, "b")))  # dropped again
    assert loaded(context, given).rows.columns[:4] == ["id", "name", "credit", "since"]
    chosen = loaded(context, captured(source.name, schema="id INT")).rows
    assert chosen.select("id", "_op").orderBy("_offset").collect() == [(1, "c"), (1, "u"), (1, "u")]


def test_avro_is_read_by_the_registry_also_after_the_table_was_altered(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(2)
    context = context_of(spark, tmp_path, source.bootstrap)
    out = Target("database", tmp_path)
    with SchemaRegistry() as serving:
        table = CapturedTable(*COLUMNS, registry=serving.url)
        altered = CapturedTable(*COLUMNS[:2], ("credit", "numeric", numeric(14, 4)), registry=serving.url)
        send(source, table.created(*customer(1, "a")), table.created(*customer(2, "b")), table.deleted(*of_key(2)))
        send(source, altered.updated("1", "a", "2.1234"), altered.created("3", "c", None))
        with pytest.raises(JobError, match=r"wire format \(Avro\), and no registry is named: give registry=registry"):
            captured(source.name).load(context)

        job = Job("avro", dead_letters=new_topic().name)
        job.apply_changes(captured(source.name, registry=registry(serving.url)), into=out.sink(), name="copy")
        run_job(job, context, tmp_path / "checkpoints")
        table.close()
        altered.close()

    assert out.read("id, name, credit") == [(1, "a", "2.1234"), (3, "c", None)]


def test_an_empty_topic_whose_records_turn_out_to_have_no_key(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic()
    context = context_of(spark, tmp_path, source.bootstrap)
    given = captured(source.name, schema="id INT, name STRING")
    rows = given.decode(topic(source.name).read(context), context).rows
    assert rows.count() == 0
    send(source, [(None, value) for _, value in CUSTOMERS.created(*customer(1, "a"))])
    with pytest.raises(PySparkException, match="was empty when the run began, and its records have no key"):
        rows.collect()
    assert loaded(context, given).rows.count() == 1  # from the next start on; a table that follows it is refused


def test_a_topic_that_does_not_show_the_columns_is_refused(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(2)
    context = context_of(spark, tmp_path, source.bootstrap)
    with pytest.raises(JobError, match=r"has no change of a row yet.*or name the columns, as in schema="):
        captured(source.name).load(context)
    assert captured(source.name, schema="id INT").load(context).rows.columns[0] == "id"
    send(source, CUSTOMERS.truncated(), CUSTOMERS.deleted(*of_key(1))[1:])
    with pytest.raises(JobError, match="has no change of a row yet"):
        captured(source.name).load(context)
    send(source, CapturedTable(*COLUMNS, schemas=False).created(*customer(1, "a")))
    with pytest.raises(JobError, match=r"the newest change has no schema: have the connector write them"):
        captured(source.name).load(context)
    with pytest.raises(JobError, match="'id INTT' is no schema"):
        captured(source.name, schema="id INTT").load(context)
    with pytest.raises(JobError, match="no-such-topic"):
        captured("no-such-topic", schema="id INT").load(context)
    send(source, CapturedTable(("id", "int4", -1), ("_op", "text", -1)).created("1", "x"))
    with pytest.raises(JobError, match="the table has a column '_op', which is the name of a column of its changes"):
        captured(source.name).load(context)


def test_the_newest_change_is_found_behind_many_tombstones(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(2)
    send(source, CUSTOMERS.created(*customer(1, "a")), CUSTOMERS.deleted(*of_key(1))[1:] * 1_500)
    rows = captured(source.name).load(context_of(spark, tmp_path, source.bootstrap)).rows
    assert rows.columns[:2] == ["id", "name"]


class Shop:
    """A job that keeps a copy of customers, run over and over as a new process would."""

    def __init__(self, spark: SparkSession, new_topic: TopicFactory, directory: Path) -> None:
        self.source = new_topic(2)
        self.letters = new_topic()
        self.context = context_of(spark, directory, self.source.bootstrap)
        self.checkpoints = directory / "checkpoints"

    def run(self, into: Any, *events: list[Event]) -> None:
        send(self.source, *events)
        job = Job("shop", dead_letters=self.letters.name)
        job.apply_changes(captured(self.source.name), into=into, name="customers")
        run_job(job, self.context, self.checkpoints)

    def forget_the_last_micro_batch(self) -> None:
        """As if Spark had died after the sink's commit, before its own."""
        commits = self.checkpoints / "customers" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["database", "delta", "iceberg"])
def test_a_table_follows_the_captured_one(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, kind: str
) -> None:
    shop, copy = Shop(spark, new_topic, tmp_path), Target(kind, tmp_path)
    everything = "id, name, CAST(credit AS DECIMAL(12, 2)) || '', CAST(since AS TEXT)"

    def rows() -> list[tuple[Any, ...]]:
        return [(number, name, str(credit)[:3]) for number, name, credit, _ in copy.read(everything)]

    made = [CUSTOMERS.created(*customer(number, "x")) for number in (1, 2, 3, 4)]
    shop.run(copy.sink(), *made)
    assert rows() == [(1, "x", "1.5"), (2, "x", "1.5"), (3, "x", "1.5"), (4, "x", "1.5")]
    # in one micro-batch: created and deleted, deleted and created, deleted, another key
    changes = [
        CUSTOMERS.created(*customer(5, "y")), CUSTOMERS.deleted(*of_key(5)),
        CUSTOMERS.deleted(*of_key(1)), CUSTOMERS.created(*customer(1, "y")),
        CUSTOMERS.updated(*customer(2, "y")), CUSTOMERS.deleted(*of_key(2)),
        CUSTOMERS.updated(*customer(6, "y", "2.50"), old=customer(3, "x")),
    ]  # fmt: skip
    shop.run(copy.sink(), *changes, [(None, b"no event"), *CUSTOMERS.truncated()])
    expected = [(1, "y", "1.5"), (4, "x", "1.5"), (6, "y", "2.5")]
    assert rows() == expected
    shop.forget_the_last_micro_batch()
    shop.run(copy.sink())
    assert rows() == expected

    found = [DeadLetter.read(cast(Any, message.headers())) for message in shop.letters.messages()]
    assert sorted((each.reason[:15], each.view) for each in found if each is not None) == [
        ("malformed JSON", shop.source.name), ("the table was t", shop.source.name),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["database", "delta", "iceberg"])
def test_times_bytes_and_lists_arrive_in_tables(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, kind: str
) -> None:
    shop, copy = Shop(spark, new_topic, tmp_path), Target(kind, tmp_path)
    types = ("uuid", "timestamp", "timestamptz", "bytea", "_int8", "bool", "float8", "numeric")
    table = CapturedTable(*((f"of_{name}", name, -1) for name in types), key=("of_uuid",))
    ident, at = "00000000-0000-0000-0000-000000000001", "2024-02-29 12:00:00.25"
    shop.run(copy.sink(), table.created(ident, at, f"{at}+00", r"\x00ff", "{1,NULL}", "t", "0.1", "12.345"))
    names = ", ".join(f"of_{name}" for name in types)
    ((*found,),) = copy.read(names)
    assert [str(found[1])[:22], str(found[2])[:22]] == [at, at]
    numbers = "[1, null]" if kind == "database" else [1, None]
    assert [found[0], found[3], found[4], bool(found[5]), *found[6:]] == [
        ident,
        b"\x00\xff",
        numbers,
        True,
        0.1,
        "12.345",
    ]


def test_a_compacted_topic_follows_the_captured_table(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    shop, out = Shop(spark, new_topic, tmp_path), new_topic(2)
    shop.run(topic(out.name), CUSTOMERS.created(*customer(1, "a")), CUSTOMERS.created(*customer(2, "b")))
    shop.run(topic(out.name), CUSTOMERS.updated(*customer(1, "c")), CUSTOMERS.deleted(*of_key(2)))
    messages = [(message.key(), message.value()) for message in out.messages()]
    found = {key: [value and json.loads(value)["name"] for own, value in messages if own == key] for key, _ in messages}
    assert found == {b"1": ["a", "c"], b"2": ["b", None]}
    assert json.loads(messages[0][1] or b"").keys() == {"id", "name", "credit", "since"}


def test_a_view_between_and_keys_by_name(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    source, letters = new_topic(), new_topic()
    url = f"sqlite:///{tmp_path}/out.db"
    job = Job("shop", dead_letters=letters.name)

    @job.view(customers=captured(source.name))
    def renamed(customers: Any) -> Any:
        return customers.select(F.col("id").alias("number"), "name", "_op", "_ts", "_partition", "_offset")

    flow = job.apply_changes(renamed, into=database(url, "out"), keys="number")
    send(source, CUSTOMERS.created(*customer(1, "a")), CUSTOMERS.created(*customer(2, "b")))
    send(source, CUSTOMERS.deleted(*of_key(2)))
    run_job(job, context_of(spark, tmp_path, source.bootstrap), tmp_path / "checkpoints")

    assert flow.name == "renamed_applied"
    connection = sqlite3.connect(tmp_path / "out.db")
    assert connection.execute("SELECT number, name FROM out").fetchall() == [(1, "a")]
    connection.close()


def test_tables_whose_changes_have_no_order_are_refused(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source = new_topic(2)
    context = context_of(spark, tmp_path, source.bootstrap)

    def planned(**options: Any) -> Any:
        job = Job("shop")
        given = captured(source.name, schema=options.pop("schema", None))
        job.apply_changes(given, into=database("sqlite://", "out"), name="copy", **options)
        return plan(job, context)

    with pytest.raises(JobError, match="flow 'copy': the key of the table is not known from the records' keys"):
        planned(schema="id INT")
    assert planned(schema="id INT", keys="id")
    send(source, CapturedTable(*COLUMNS, key=()).created(*customer(1, "a")))
    for keys in ((), ("id",)):
        with pytest.raises(JobError, match="flow 'copy': the captured table has no primary key"):
            planned(keys=keys)
    send(source, CUSTOMERS.created(*customer(1, "a")))
    with pytest.raises(JobError, match="keys names the column 'nr', and the table has only: id, name, credit, since"):
        planned(keys="nr")
    (flow, letters) = planned()
    assert (flow.mode, letters.name) == ("changes", f"{source.name}.dead-letters")
    made = captured(source.name).decode(topic(source.name).read(context), context)
    assert reasons(made) == {0: "check failed: the record has a key, as the newest change has"}


def test_one_table_in_two_ways_is_refused(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    source = new_topic()
    job = Job("shop")
    job.apply_changes(captured(source.name, schema="id INT"), into=topic("a"), keys="id", name="a")
    job.apply_changes(captured(source.name, schema="id BIGINT"), into=topic("b"), keys="id", name="b")
    with pytest.raises(PipelineError, match="in two ways"):
        plan(job, context_of(spark, tmp_path, source.bootstrap))


def test_changes_behind_the_watermark_are_found(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    source, side = new_topic(), new_topic()
    context = context_of(spark, tmp_path, source.bootstrap)
    orders = CapturedTable(("id", "int4", -1), ("at", "timestamptz", -1))

    def flow(load: Load) -> DataFrame:
        changes = load(captured(source.name))
        assert isinstance(changes, Checked)
        timed = watermark(changes.rows, "at", "10 minutes", window="10 minutes")
        return timed.groupBy(F.window("at", "10 minutes")).count()

    def run(*numbers: int) -> None:
        send(source, *(orders.created(str(number), f"2026-01-01 {number:02}:00:00+00") for number in numbers))
        run_to_end(flow(lambda given: given.load(context)), tmp_path / "checkpoint")

    run(10)
    run(10, 8)
    position = tmp_path / "late.json"
    late = LateRows("flow", tmp_path / "checkpoint", position, context, flow, topic=topic(side.name))
    assert late.catch_up(unheard=True) == 1
    assert [json.loads(message.value() or b"")["id"] for message in side.messages()] == [8]


def test_a_golden_test_compares_the_table_that_would_be(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    job = Job("shop")
    job.apply_changes(captured("customers-captured"), into=database("sqlite:////nowhere/out.db", "out"), name="copy")
    events = CUSTOMERS.created(*customer(1, "a")) + CUSTOMERS.created(*customer(2, "b"))
    events += CUSTOMERS.updated(*customer(1, "c")) + CUSTOMERS.deleted(*of_key(2))
    trial = Trial(spark, job, tmp_path, bootstrap, tmp_path / "scratch", uuid.uuid4().hex[:8])

    outputs = trial.run({"customers-captured": [InputRecord(key, value) for key, value in events]})

    row = {"id": 1, "name": "c", "credit": 1.5, "since": "2026-01-31"}
    assert outputs == {"copy": [{"value": row}], "shop.dead-letters": []}


@pytest.mark.soak
def test_the_example_of_the_page_runs(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    source = new_topic(2, name="shop.public.customers")
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "apply_changes" in block]
    file = tmp_path / "shop.py"
    file.write_text(f"{example}\njob.apply_changes(customers, into=topic('customers-copy'), name='copy')\n")
    ottla = CommandLine(tmp_path / "home", bootstrap)

    def rows(*events: list[Event]) -> list[tuple[Any, ...]]:
        send(source, *events)
        done = ottla("run", str(file), "--once")
        assert done.returncode == 0, done.stdout + done.stderr
        found = DeltaTable(tmp_path / "customers").to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["name"]) for row in found)

    assert rows(CUSTOMERS.created(*customer(1, "a")), CUSTOMERS.created(*customer(2, "b"))) == [(1, "a"), (2, "b")]
    assert rows(CUSTOMERS.deleted(*of_key(2)), CUSTOMERS.updated(*customer(1, "c"))) == [(1, "c")]
    gone = [json.loads(message.value() or b"") for message in Topic(bootstrap, "customers-gone").messages()]
    assert [each["id"] for each in gone] == [2]
    assert ottla.status("shop")["flows"]["customers"]["mode"] == "changes"
    # no row of the copy is deleted for its age
    brokers = Brokers({"bootstrap.servers": bootstrap})
    assert brokers.deleting(["customers-copy", "customers-gone"]) == {"customers-gone": "delete"}
