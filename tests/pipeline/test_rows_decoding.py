import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, files, table, topic
from ottla.pipeline.errors import JobError
from ottla.pipeline.queries import plan
from ottla.pipeline.rows import (
    Checked,
    Registry,
    checked,
    from_avro,
    from_json,
    from_protobuf,
    registry,
    to_avro,
)
from ottla.pipeline.rows.dead_letters import DeadLetter, original_headers
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import reasons, records, run_job
from tests.support.schema_registry import SchemaRegistry
from tests.unit.pipeline.rows.flight_proto import a_flight, message_class

FLIGHT = "a INT NOT NULL, b STRING, c STRUCT<d: INT NOT NULL>, e ARRAY<INT>, t TIMESTAMP"

WELL = {
    '{"a": 1, "b": "x"}': (1, "x", None, None),
    ' {"a": 1, "c": {"d": 2}, "e": [3], "more": 4} ': (1, None, 2, [3]),
    '{"a": 1, "b": {"z": 1}}': (1, '{"z":1}', None, None),  # text takes anything, as with Spark's own
}
ILL = {
    None: "no value (a tombstone)",
    b"\xff": "not UTF-8",
    "": "malformed JSON",
    '{"a": 1': "malformed JSON",
    '{"a": 1} and more': "malformed JSON",
    '{"a": 1}{"a": 2}': "malformed JSON",
    "{a: 1}": "malformed JSON",
    "null": "not one JSON object",
    "1": "not one JSON object",
    '[{"a": 1}]': "not one JSON object",
    '{"a": 1}, {"a": 2}': "not one JSON object",
    '{"b": "x"}': "missing required field 'a'",
    '{"a": null}': "missing required field 'a'",
    '{"a": 1, "c": {}}': "missing required field 'c.d'",
    '{"a": "1"}': "wrong type: 'a' is STRING, not INT",
    '{"a": 99999999999}': "wrong type: 'a' is BIGINT, not INT",
    '{"a": 1, "c": {"d": "x"}}': "wrong type: 'c.d' is STRING, not INT",
    '{"a": 1, "c": 5}': "wrong type: 'c' is BIGINT, not STRUCT<D:INT>",
    '{"a": 1, "e": [1, "x"]}': "wrong type: 'e' is ARRAY<VARIANT>, not ARRAY<INT>",
    '{"a": 1, "t": "yesterday"}': "wrong type: 't' is STRING, not TIMESTAMP",
}


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def test_json_passes_whole_or_is_rejected_with_what_is_wrong(spark: SparkSession) -> None:
    read = from_json(records(spark, *map(as_bytes, [*WELL, *ILL])), FLIGHT, keep=("offset",))

    rows = read.rows.orderBy("offset").select("a", "b", "c.d", "e").collect()
    assert [tuple(row) for row in rows] == list(WELL.values())
    assert reasons(read) == {len(WELL) + number: reason for number, reason in enumerate(ILL.values())}


def test_a_schema_without_required_fields_takes_an_empty_object(spark: SparkSession) -> None:
    read = from_json(records(spark, b"{}", b"[]"), "a INT")

    assert [tuple(row) for row in read.rows.collect()] == [(None,)]
    assert reasons(read) == {1: "not one JSON object"}


def test_a_column_cannot_be_kept_beside_one_of_the_same_name(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="cannot be kept, the schema has them too: offset"):
        from_json(records(spark), "offset INT", keep=("offset",))


def test_checks_reject_false_and_null_and_see_only_what_passed_before(spark: SparkSession) -> None:
    texts = ['{"n": 10, "by": 2}', '{"n": 10, "by": 0}', '{"n": 10}', '{"n": 1, "by": 2}', "x"]
    read = (
        from_json(records(spark, *map(as_bytes, texts)), "n INT, by INT")
        .check("divides", F.col("by") != 0)
        .check("is large", F.col("n") / F.col("by") > 1)  # fails the query for a row that the first lets through
        .with_columns(result=(F.col("n") / F.col("by")).cast("int"))
        .select("result")
    )

    assert [tuple(row) for row in read.rows.collect()] == [(5,)]
    assert reasons(read) == {
        1: "check failed: divides",
        2: "check failed: divides",
        3: "check failed: is large",
        4: "malformed JSON",
    }


NUMBERS = [*range(6), None]


def numbers(spark: SparkSession) -> Checked:
    texts = [json.dumps({"n": number}).encode() for number in NUMBERS]
    return from_json(records(spark, *texts), "n INT").of_view("clean")


def test_rows_that_break_an_expectation_stay_are_left_out_or_are_rejected(spark: SparkSession) -> None:
    expecting = (
        numbers(spark)
        .expect("is large", F.col("n") > 1)
        .expect("is not three", F.col("n") != 3, otherwise="drop")
        .expect("is small", F.col("n") < 5, otherwise="quarantine")
        .select("n", F.lit(1).alias("m"))
    )
    assert sorted(row.n for row in expecting.rows.collect()) == [0, 1, 2, 4]
    assert reasons(expecting) == {5: "check failed: is small"}
    assert expecting.rows.columns == ["n", "m"]


def test_a_row_that_must_not_be_fails_the_query(spark: SparkSession) -> None:
    expecting = numbers(spark).expect("is known", F.col("n").isNotNull(), otherwise="fail")
    with pytest.raises(PySparkException, match="a row breaks the expectation 'is known'"):
        expecting.rows.collect()
    assert expecting.rejected.collect() == []


def test_expectations_that_cannot_be(spark: SparkSession) -> None:
    rows = numbers(spark).expect("is known", F.col("n").isNotNull())
    with pytest.raises(JobError, match="'is small' cannot have otherwise='ignore'; there are warn, drop, quarantine, "):
        rows.expect("is small", F.col("n") < 5, otherwise="ignore")
    with pytest.raises(JobError, match="there are two expectations 'is known'"):
        rows.expect("is known", F.col("n") < 5)


def test_rows_that_refer_to_nothing_stay_are_left_out_or_are_rejected(spark: SparkSession) -> None:
    known = spark.createDataFrame([(0,), (1,), (1,), (4,), (None,)], "id LONG")  # a value may come twice
    expecting = (
        numbers(spark)
        .expect_in("may be known", {"n": "ID"}, known)
        .expect_in("is known", {"N": "id"}, known, otherwise="drop")
        .expect("is small", F.col("n") < 4, otherwise="quarantine")
        .select("n", F.lit(1).alias("m"))
    )
    assert [tuple(row) for row in expecting.rows.orderBy("n").collect()] == [(0, 1), (1, 1)]
    # whether a row is rejected depends on the row alone: 5 is, though it would have been left out before
    assert reasons(expecting) == dict.fromkeys((4, 5, 6), "check failed: is small")
    rejecting = numbers(spark).expect_in("is known", {"n": "id"}, known, otherwise="quarantine")
    assert {row.n for row in rejecting.rows.collect()} == {0, 1, 4, None}
    assert set(reasons(rejecting)) == {2, 3, 5}
    failing = numbers(spark).expect_in("is known", {"n": "id"}, known, otherwise="fail")
    with pytest.raises(PySparkException, match="a row breaks the expectation 'is known'"):
        failing.rows.collect()


def test_a_reference_of_which_a_part_is_null_refers_to_nothing(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "a"), (1, "b"), (1, None), (None, "b"), (None, None)], "id INT, kind STRING")
    known = spark.createDataFrame([(1, "a"), (2, "b"), (1, None)], "id LONG, kind STRING")

    kept = checked(rows).expect_in("is known", ("id", "kind"), known, otherwise="drop").rows

    assert {tuple(row) for row in kept.collect()} == {(1, "a"), (1, None), (None, "b"), (None, None)}
    assert kept.columns == ["id", "kind"]


def test_references_that_cannot_be(spark: SparkSession) -> None:
    rows = checked(spark.createDataFrame([(1, "a")], "id INT, kind STRING"))
    known = spark.createDataFrame([(1,)], "flight_number LONG")
    with pytest.raises(JobError, match="'is known': the rows have no column 'ids'; did you mean 'id'"):
        rows.expect_in("is known", "ids", known)
    with pytest.raises(JobError, match="'is known': the table has no column 'kind'; there are flight_number"):
        rows.expect_in("is known", "kind", known)
    with pytest.raises(JobError, match="compares STRING with the table's BIGINT: cast one of them first"):
        rows.expect_in("is known", {"kind": "flight_number"}, known)
    with pytest.raises(JobError, match="'is known' names no column"):
        rows.expect_in("is known", (), known)
    with pytest.raises(JobError, match="refers to a stream"):
        rows.expect_in("is known", {"id": "value"}, spark.readStream.format("rate").load())


def test_a_later_view_knows_the_record_if_the_rows_kept_it(spark: SparkSession) -> None:
    first = from_json(records(spark, b'{"n": 1}', b'{"n": 2}'), "n INT").keep_source().rows

    later = checked(first).check("is even", F.col("n") % 2 == 0)

    assert reasons(later) == {0: "check failed: is even"}
    assert [(row.key, row.value) for row in later.rejected.collect()] == [(b"k", b'{"n": 1}')]


def test_rows_of_files_are_rejected_as_json_without_a_source(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, None), (2, "x")], "n INT, s STRING")

    (letter,) = checked(rows).check("has s", F.col("s").isNotNull()).rejected.collect()

    assert (letter.key, json.loads(letter.value)) == (None, {"n": 1, "s": None})
    assert DeadLetter.read([tuple(each) for each in letter.headers]) == DeadLetter(
        "check failed: has s", None, None, None, None, None, None
    )


def test_a_row_that_cannot_be_left_out_fails_who_reads_it(spark: SparkSession) -> None:
    read = from_json(records(spark, b'{"n": 1}', b"x"), "n INT")

    with pytest.raises(PySparkException, match=r"the table cannot be read: the record at offset 1 of partition 0"):
        read.passed_or_fail("the table").collect()
    assert from_json(records(spark, b'{"n": 1}'), "n INT").passed_or_fail("the table").collect() == [(1,)]


def test_what_a_job_rejects_is_in_its_dead_letter_topic_with_all_it_had(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, out, letters = new_topic(2), new_topic(), new_topic()
    job = Job("cleaning", dead_letters=letters.name)

    @job.view(flights=topic(source.name))
    def clean(flights: DataFrame) -> Checked:
        return from_json(flights, "carrier STRING, delay INT").check("has carrier", F.col("carrier").isNotNull())

    @job.flow(flights=clean, to=topic(out.name, key="carrier"))
    def kept(flights: DataFrame) -> DataFrame:
        return flights

    source.send(['{"carrier": "UA", "delay": 1}', "{"], key=b"first", headers=[("trace", b"1"), ("empty", None)])
    source.send(['{"delay": 2}'], partition=1, timestamp=1_700_000_000_000)
    context = context_of(spark, tmp_path, bootstrap)
    for _ in range(2):  # the second run finds nothing new
        run_job(job, context, tmp_path / "checkpoints")

    assert [(each.key(), each.value()) for each in out.messages()] == [(b"UA", b'{"carrier":"UA","delay":1}')]
    found = {(each.value() or b"").decode(): each for each in letters.messages()}
    assert len(letters.messages()) == 2
    malformed, unnamed = found["{"], found['{"delay": 2}']
    assert (malformed.key(), original_headers(cast(Any, malformed.headers()))) == (
        b"first",
        [("trace", b"1"), ("empty", None)],
    )
    letter = DeadLetter.read(cast(Any, malformed.headers()))
    assert letter is not None
    assert (letter.reason, letter.topic, letter.partition, letter.offset) == ("malformed JSON", source.name, 0, 1)
    assert DeadLetter.read(cast(Any, unnamed.headers())) == DeadLetter(
        "check failed: has carrier", source.name, 1, 0, 1_700_000_000_000, "cleaning", "clean"
    )


# -- schemas of a registry -------------------------------------------------------------------------

LEG = {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}
NEWER = {**LEG, "fields": [*LEG["fields"], {"name": "miles", "type": ["null", "int"], "default": None}]}


@dataclass(frozen=True)
class Writer:
    """Another program, with Confluent's own serializers."""

    server: SchemaRegistry
    client: SchemaRegistryClient

    @property
    def registry(self) -> Registry:
        return registry(self.server.url, user="writer:secret", settings={"max.retries": "0"})

    def avro(self, schema: Any, row: dict[str, Any], subject: str = "legs") -> bytes:
        return self._written(AvroSerializer(self.client, json.dumps(schema)), row, subject)

    def protobuf(self, message: Any, subject: str = "flights") -> bytes:
        return self._written(ProtobufSerializer(type(message), self.client), message, subject)

    def _written(self, serializer: Any, value: Any, subject: str) -> bytes:
        made: bytes = serializer(value, SerializationContext(subject, MessageField.VALUE))
        return made


@pytest.fixture
def writer() -> Iterator[Writer]:
    with SchemaRegistry(user="writer:secret") as server:
        client = SchemaRegistryClient({"url": server.url, "basic.auth.user.info": "writer:secret"})
        yield Writer(server, client)
        client.close()


def test_avro_of_older_and_newer_schemas_is_read_as_the_latest(spark: SparkSession, writer: Writer) -> None:
    old, new = writer.avro(LEG, {"to": "JFK"}), writer.avro(NEWER, {"to": "EWR", "miles": 9})
    frame = records(spark, old, new, old[:-1], b"\0\0\0\0\x63xyz", b"{}", None)

    read = from_avro(frame, registry=writer.registry, subject="legs-value", keep=("offset",))

    assert [tuple(row) for row in read.rows.orderBy("offset").collect()] == [(0, "JFK", None), (1, "EWR", 9)]
    assert reasons(read) == {
        2: "malformed Avro: EOFError: Expected 3 bytes, read 2",
        3: "unknown schema id 99",
        4: "not the registry's wire format: 2 bytes, its head alone has 5",
        5: "no value (a tombstone)",
    }
    assert from_avro(frame, LEG, registry=writer.registry).rows.columns == ["to"]


def test_avro_by_a_schema_alone_has_no_head(spark: SparkSession, writer: Writer) -> None:
    bare = writer.avro(LEG, {"to": "JFK"})[5:]

    assert from_avro(records(spark, bare), LEG).rows.collect() == [("JFK",)]


def test_rows_become_avro_that_other_programs_read(spark: SparkSession, writer: Writer) -> None:
    rows = spark.createDataFrame([("JFK", 3), ("EWR", None)], "to STRING, miles INT")

    made = to_avro(rows, registry=writer.registry, subject="legs-value", schema=NEWER, keep=("to",)).collect()

    read = AvroDeserializer(writer.client)
    context = SerializationContext("legs", MessageField.VALUE)
    assert [(row.to, read(bytes(row.value), context)) for row in made] == [
        ("JFK", {"to": "JFK", "miles": 3}),
        ("EWR", {"to": "EWR", "miles": None}),
    ]
    with pytest.raises(ValueError, match="the rows lack fields of the Avro schema Leg: to"):
        to_avro(rows.drop("to"), registry=writer.registry, subject="legs-value")
    with pytest.raises(PySparkException, match="a row does not fit the Avro schema Leg"):
        to_avro(rows.withColumn("to", F.lit(None)), registry=writer.registry, subject="legs-value").collect()


def test_protobuf_is_read_by_the_message_its_indexes_name(spark: SparkSession, writer: Writer) -> None:
    flight, other = writer.protobuf(a_flight()), writer.protobuf(message_class("demo.Other")(x=1))

    read = from_protobuf(
        records(spark, flight, other, flight[:-1], flight[:5]),
        "demo.Flight",
        registry=writer.registry,
        subject="flights-value",
    )

    (row,) = read.rows.select(
        "carrier", "delay", F.col("seen").cast("long"), "name", "legs.to", "big", "kind"
    ).collect()
    assert tuple(row) == ("UA", -3, 1_357_016_400, "United", ["JFK"], 2**64 - 1, "B")
    assert reasons(read) == {
        1: "the record holds a message demo.Other, not demo.Flight",
        2: "malformed Protobuf: Error parsing message with type 'demo.Flight': Wire format was corrupt",
        3: "not the registry's wire format: its message indexes have no end",
    }
    bare = from_protobuf(records(spark, a_flight().SerializeToString()), message_class("demo.Flight"))
    assert bare.rows.select("tags", F.col("late").cast("string")).collect() == [
        ({"x": 1}, "INTERVAL '0 00:00:01.5' DAY TO SECOND")
    ]


def test_a_registry_that_is_away_fails_the_query_and_rejects_nothing(spark: SparkSession, writer: Writer) -> None:
    frame = records(spark, writer.avro(LEG, {"to": "JFK"}))
    writer.server.stop()

    read = from_avro(frame, LEG, registry=writer.registry)

    for rows in (read.rows, read.rejected):
        with pytest.raises(PySparkException, match=r"RegistryAwayError: the registry at .* cannot be reached"):
            rows.collect()


def test_a_verdict_that_comes_out_otherwise_in_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    context = context_of(spark, tmp_path, "127.0.0.1:1")

    def planned(make: Callable[[DataFrame, DataFrame], Checked]) -> list[str]:
        job = Job("flights")

        @job.flow(
            rows=files("rows", format="json", schema="carrier STRING, at TIMESTAMP", stream=True),
            airlines=table("airlines", key="carrier", schema="carrier STRING, name STRING"),
            to=topic("out"),
        )
        def flights(rows: DataFrame, airlines: DataFrame) -> Checked:
            return make(rows, airlines)

        return [each.name for each in plan(job, context)]

    is_past = F.col("at") < F.current_timestamp()
    known, has_one = F.col("name").isNotNull(), F.col("carrier").isNotNull()
    for make, said in (
        (lambda rows, _: checked(rows).check("is past", is_past), "asks for the current time"),
        (lambda rows, _: checked(rows.where(F.rand() < 0.1)).check("has one", has_one), "nondeterministic functions"),
        (lambda rows, airlines: checked(rows.join(airlines, "carrier", "left")).check("known", known), "after a join"),
    ):
        with pytest.raises(JobError, match=f"'flights' rejects rows by a condition .* lost: it .*{said}"):
            planned(make)

    steady = planned(
        lambda rows, _: checked(rows).check("at", F.col("at") > "2020-01-01").with_columns(seen=F.current_timestamp())
    )
    assert steady == ["flights", "flights.dead-letters"]
