"""The same changes by Ottla's worker and by Kafka Connect with Debezium's connector: what is in the topics is the same,
field by field, but for what docs/connectors.md says: the changes here have no names beyond ASCII and no defaults with
quotes in them, which Debezium garbles.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.connect.shipped.test_postgres import VALUES
from tests.support.connect import messages_of
from tests.support.connect_process import GenuineConnect, OttlaConnect
from tests.support.eventually import eventually
from tests.support.postgres import USER, Postgres

pytestmark = pytest.mark.soak

OURS, THEIRS = "ours", "them"  # of the same length, so that one takes the other's place in every text
KINDS = {kind: literal for kind, (literal, _, _) in VALUES.items() if kind != "pair"}  # Debezium leaves composites out
BEFORE = (
    "CREATE TYPE mood AS ENUM ('happy', 'so so')",
    "CREATE DOMAIN amount AS numeric(8,2)",
    "CREATE TABLE kinds (id int PRIMARY KEY, "
    + ", ".join(f"c{number} {kind}" for number, kind in enumerate(KINDS))
    + ")",
    f"INSERT INTO kinds VALUES (1, {', '.join(KINDS.values())})",
    "CREATE TABLE required (id int PRIMARY KEY, "
    + ", ".join(f"c{number} {kind} NOT NULL" for number, kind in enumerate(KINDS))
    + ")",
    f"INSERT INTO required VALUES (1, {', '.join(KINDS.values())})",
    "CREATE TABLE keyless (a int, b text)",
    "ALTER TABLE keyless REPLICA IDENTITY FULL",
    "CREATE TABLE pairs (a int, b text, c text DEFAULT 'a b', d int NOT NULL DEFAULT 7, "
    "e timestamptz DEFAULT now(), f int GENERATED ALWAYS AS (a * 2) STORED, PRIMARY KEY (b, a))",
    'CREATE TABLE "Odd names" ("Id no" int PRIMARY KEY, "a.b" text, "c" text)',
    "CREATE TABLE long (id int PRIMARY KEY, n int, doc text, raw bytea, list int[], js jsonb)",
    "ALTER TABLE long ALTER doc SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL",
    "CREATE TABLE whole (id int PRIMARY KEY, n int, doc text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL, ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE by_index (id int, code text NOT NULL, n int)",
    "CREATE UNIQUE INDEX by_code ON by_index (code)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code",
)
DURING = (
    f"INSERT INTO kinds VALUES (2, {', '.join(KINDS.values())}), (3, {', '.join('NULL' for _ in KINDS)})",
    "UPDATE kinds SET c0 = 5 WHERE id = 2",
    "UPDATE kinds SET id = 9 WHERE id = 2",
    "DELETE FROM kinds WHERE id = 3",
    f"INSERT INTO required VALUES (2, {', '.join(KINDS.values())})",
    "DELETE FROM required WHERE id = 2",
    "INSERT INTO keyless VALUES (1, 'x')",
    "UPDATE keyless SET a = 2",
    "DELETE FROM keyless",
    "INSERT INTO pairs VALUES (1, 'k')",
    "UPDATE pairs SET d = 8",
    "UPDATE pairs SET b = 'other'",
    "DELETE FROM pairs",
    """INSERT INTO "Odd names" VALUES (1, 'x', 'ü😀')""",
    "INSERT INTO long VALUES (1, 1, repeat('x', 9000), decode(repeat('ab', 9000), 'hex'), "
    "(SELECT array_agg(n) FROM generate_series(1, 9000) n), (SELECT jsonb_agg(n) FROM generate_series(1, 9000) n))",
    "UPDATE long SET n = 2",
    "DELETE FROM long",
    "INSERT INTO whole VALUES (1, 1, repeat('x', 9000))",
    "UPDATE whole SET n = 2",
    "DELETE FROM whole",
    "INSERT INTO by_index VALUES (1, 'a', 1)",
    "UPDATE by_index SET code = 'b'",
    "DELETE FROM by_index",
    "BEGIN; INSERT INTO keyless VALUES (5, 'a'); INSERT INTO pairs VALUES (5, 'b'); COMMIT",
    "BEGIN; INSERT INTO pairs VALUES (6, 'c'); SELECT pg_logical_emit_message(true, 'outbox', 'amid'); COMMIT",
    "SELECT pg_logical_emit_message(true, 'outbox', 'alone')",
    "SELECT pg_logical_emit_message(false, 'outbox', 'in no transaction')",
    "INSERT INTO pairs VALUES (7, 'd')",
    "ALTER TABLE keyless ADD c bigint DEFAULT 4",
    "INSERT INTO keyless VALUES (6, 'later', 7)",
    "ALTER TABLE keyless DROP b",
    "INSERT INTO keyless VALUES (7, 8)",
    "TRUNCATE keyless",
    "INSERT INTO kinds VALUES (100)",
)
TRANSACTIONS = [each for each in DURING if not each.startswith("ALTER") and "message(false" not in each]
"""Those of which the server tells. That of the truncate, which is in no topic by default, is empty."""
FAR = [
    f"public.{table}.c{list(KINDS).index(kind)}"
    for table in ("kinds", "required")
    for kind in ("timestamp(3)", "time", "money")
]
"""Columns that docs/connectors.md names as other than Debezium's if they are texts or of Connect's own types."""
MASKED = [
    f"public.kinds.c{number}"
    for number, kind in enumerate(KINDS)
    if kind not in ("bytea", "uuid", "jsonb", "int4range", "inet")
]
"""Masked by both."""
SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "more": {
        "provide.transaction.metadata": "true",
        "xmin.fetch.interval.ms": "3600000",
    },
    "texts": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64",
        "interval.handling.mode": "string",
        "skipped.operations": "none",
        "tombstones.on.delete": "false",
        "publication.autocreate.mode": "filtered",
        "table.exclude.list": "public.whole",
        "column.exclude.list": ",".join((*FAR, "public.long.raw")),
        "provide.transaction.metadata": "true",
        "topic.transaction": "begins-and-ends",
    },
    "less": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "adaptive_time_microseconds",
        "binary.handling.mode": "hex",
        "skipped.operations": "u,t",
        "schema.include.list": "pub.*",
        "column.exclude.list": "public.pairs.c,public.long.js",
        "column.mask.with.4.chars": ",".join(("public.pairs.b", "public.keyless.a", *MASKED)),
        "column.mask.hash.SHA-256.with.salt.pepper": "public.whole.doc",
        "column.mask.hash.v2.SHA-512.with.salt.pepper.and.salt": "public.by_index.code,public.keyless.b",
        "column.truncate.to.5.chars": "public.long.doc,public.long.raw",
        "message.key.columns": "public.keyless:a",
        "message.prefix.exclude.list": "out.*",
        "provide.transaction.metadata": "true",
    },
}
LAST = f"{OURS}.public.kinds"


@pytest.fixture(scope="module", params=SETTINGS)
def topics(request: pytest.FixtureRequest) -> Iterator[dict[str, tuple[list[Any], list[Any]]]]:
    """What both have written, by the topics' names without the prefix."""
    with (
        Postgres(wal_level="logical") as server,
        Broker() as broker,
        GenuineConnect(broker.bootstrap, offset_flush_interval_ms="1000") as theirs,
        OttlaConnect(broker.bootstrap, group_id="ours", config_storage_topic="ours-configs",
                     offset_storage_topic="ours-offsets", status_storage_topic="ours-status") as ours,
        closing(psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="postgres")) as connection,
    ):  # fmt: skip
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in BEFORE:
                cursor.execute(statement)
            for worker, prefix in ((ours, OURS), (theirs, THEIRS)):
                worker.put("captures", config(server, prefix) | SETTINGS[request.param])
                worker.wait("captures", "RUNNING")
                # both stream before anything changes: rows of the snapshot are as of now, changes come after
                eventually(partial(streams, cursor, prefix), timeout_s=120)
            for statement in DURING:
                cursor.execute(statement)
        eventually(lambda: is_last(broker.bootstrap, LAST), timeout_s=120)
        eventually(lambda: is_last(broker.bootstrap, LAST.replace(OURS, THEIRS)), timeout_s=120)
        known = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
        names = {name.partition(".")[2] for name in known if name.startswith((f"{OURS}.", f"{THEIRS}."))}
        yield {name: (written(broker, OURS, name), written(broker, THEIRS, name)) for name in sorted(names)}


def written(broker: Broker, prefix: str, name: str) -> list[Any]:
    """All records but Debezium's tombstones without a key, which no compacted topic takes."""
    found = messages_of(broker.bootstrap, f"{prefix}.{name}", 0)
    return [each for each in found if each.key() is not None or each.value() is not None]


def config(server: Postgres, prefix: str) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
        "slot.name": prefix,
        "publication.name": prefix,
    }


def streams(cursor: Any, slot: str) -> bool:
    cursor.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (slot,))
    return bool(cursor.fetchone() == (True,))


def is_last(bootstrap: str, topic: str) -> bool:
    """Whether the last change is there."""
    return any(b'{"id":100}' in (message.key() or b"") for message in messages_of(bootstrap, topic, 1))


def test_the_same_topics_have_records_of_the_same_operations(topics: dict[str, tuple[list[Any], list[Any]]]) -> None:
    for name, (ours, theirs) in topics.items():
        assert [operation(each) for each in ours] == [operation(each) for each in theirs], name


def test_records_are_the_same_field_by_field(topics: dict[str, tuple[list[Any], list[Any]]]) -> None:
    found: list[str] = []
    for name, (ours, theirs) in topics.items():
        for number, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            where = f"{name}[{number}]"
            found += differences(f"{where}.key", document(our.key()), document(their.key()))
            found += differences(f"{where}.value", document(our.value()), document(their.value()))
            found += differences(f"{where}.headers", headers(our), headers(their))
    assert not found, "\n".join(dict.fromkeys(found))


def document(payload: bytes | None) -> Any:
    """JSON, with the name of this worker's prefix as the other has it."""
    return None if payload is None else json.loads(payload.replace(OURS.encode(), THEIRS.encode()))


def headers(message: Any) -> list[tuple[str, Any]]:
    return [(name, value.replace(OURS.encode(), THEIRS.encode())) for name, value in message.headers() or ()]


def operation(message: Any) -> str | None:
    """Of a change, or what is told of a transaction. None: a tombstone."""
    value = document(message.value())
    return None if value is None else value["payload"].get("op") or value["payload"]["status"]


def test_transactions_have_a_topic_if_they_are_to_be_told_of(
    topics: dict[str, tuple[list[Any], list[Any]]], request: pytest.FixtureRequest
) -> None:
    settings = SETTINGS[request.node.callspec.params["topics"]]
    assert {"transaction", "begins-and-ends"} & topics.keys() == {
        name
        for name in [settings.get("topic.transaction", "transaction")]
        if "provide.transaction.metadata" in settings
    }
    if settings == SETTINGS["more"]:
        assert len(topics["transaction"][0]) == 2 * len(TRANSACTIONS)


def differences(where: str, ours: Any, theirs: Any) -> list[str]:
    """A line for each field that is not the same, but for those that cannot be."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if where.endswith((".payload.source", ".payload")):
            ours, theirs = comparable(ours), comparable(theirs)
        if list(ours) != list(theirs):
            return [f"{where} has {list(ours)}, Debezium's {list(theirs)}"]
        return [line for name in ours for line in differences(f"{where}.{name}", ours[name], theirs[name])]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for number, (a, b) in pairs for line in differences(f"{where}[{number}]", a, b)]
    if type(ours) is type(theirs) and ours == theirs:
        return []
    return [f"{where}: {str(ours)[:300]!r}, Debezium's {str(theirs)[:300]!r}"]


def comparable(struct: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on when a connector looked: its own clock and, of rows of a snapshot, its place."""
    unlike = {"ts_ms", "ts_us", "ts_ns"} if "op" in struct else set()
    if struct.get("snapshot", "false") != "false":
        unlike = {"ts_ms", "ts_us", "ts_ns", "lsn", "txId", "sequence"}
    if struct.get("xmin") is not None:  # of the slot, when it was looked up
        unlike = unlike | {"xmin"}
    if struct.get("data_collections"):  # in no order
        struct = struct | {"data_collections": sorted(map(counted, struct["data_collections"]))}
    return {name: "" if name in unlike else value for name, value in struct.items()}


def counted(count: dict[str, Any]) -> tuple[str, int]:
    """How many changes a table has. What Debezium calls messages is the name of an object in Java's memory."""
    name = count["data_collection"]
    return ("LOGICAL_DECODING_MESSAGE" if "LogicalDecodingMessageId@" in name else name, count["event_count"])
