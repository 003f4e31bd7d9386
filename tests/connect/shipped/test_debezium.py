"""The same changes by Ottla's worker and by Kafka Connect with Debezium's connector: what is in the topics is the same,
field by field, but for what docs/connectors.md says: the changes here have no names beyond ASCII and no defaults with
quotes in them, which Debezium garbles.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.connect.shipped.comparing import OURS, THEIRS, Topics, fields_differ, operations_differ, written_by_both
from tests.connect.shipped.test_postgres import VALUES
from tests.support.connect import messages_of
from tests.support.connect_process import GenuineConnect, OttlaConnect
from tests.support.eventually import eventually
from tests.support.postgres import USER, Postgres

pytestmark = pytest.mark.soak

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
def topics(request: pytest.FixtureRequest) -> Iterator[Topics]:
    """What both have written with the same settings."""
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
        yield written_by_both(broker.bootstrap, list(known))


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


def test_the_same_topics_have_records_of_the_same_operations(topics: Topics) -> None:
    assert operations_differ(topics) == []


def test_records_are_the_same_field_by_field(topics: Topics) -> None:
    found = fields_differ(topics)
    assert not found, "\n".join(found)


def test_transactions_have_a_topic_if_they_are_to_be_told_of(topics: Topics, request: pytest.FixtureRequest) -> None:
    settings = SETTINGS[request.node.callspec.params["topics"]]
    assert {"transaction", "begins-and-ends"} & topics.keys() == {
        name
        for name in [settings.get("topic.transaction", "transaction")]
        if "provide.transaction.metadata" in settings
    }
    if settings == SETTINGS["more"]:
        assert len(topics["transaction"][0]) == 2 * len(TRANSACTIONS)
