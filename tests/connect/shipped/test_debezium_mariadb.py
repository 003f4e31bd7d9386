"""The same changes of a MariaDB or MySQL by Ottla's worker and by Kafka Connect with Debezium's connector: what is in
the topics is the same, field by field, but for what docs/connectors.md says.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.connect.shipped.comparing import OURS, THEIRS, Topics, fields_differ, operations_differ, written_by_both
from tests.connect.shipped.mysql_database import started
from tests.support.connect import messages_of
from tests.support.connect_process import GenuineMariaDbConnect, GenuineMySqlConnect, OttlaConnect
from tests.support.eventually import eventually
from tests.support.mariadb import PASSWORD, USER, MariaDb

pytestmark = pytest.mark.soak

KINDS = {
    "TINYINT": "-128",
    "SMALLINT UNSIGNED": "65535",
    "MEDIUMINT": "-8388608",
    "INT UNSIGNED": "4294967295",
    "BIGINT": "-9223372036854775808",
    "BOOLEAN": "true",
    "DECIMAL(10,2)": "-12.50",
    "FLOAT": "0.5",
    "DOUBLE": "0.1",
    "BIT(1)": "b'1'",
    "BIT(10)": "b'0000000011'",
    "CHAR(3)": "'a'",
    "VARCHAR(20)": "'ü😀'",
    "TEXT": "'long'",
    "BINARY(4)": "x'00ff'",
    "VARBINARY(4)": "x'00ff'",
    "BLOB": "x'00ff'",
    "DATE": "'2024-02-29'",
    "TIME": "'-100:00:01'",
    "TIME(3)": "'00:00:01.5'",
    "DATETIME": "'1969-12-31 23:59:59'",
    "DATETIME(3)": "'2024-02-29 12:00:00.25'",
    "DATETIME(6)": "'9999-12-31 23:59:59.999999'",
    "TIMESTAMP(3)": "'2024-02-29 12:00:00.125'",
    "YEAR": "2024",
    "ENUM('happy','so so')": "'so so'",
    "SET('a','b')": "'a,b'",
}
BEFORE = (
    "CREATE TABLE kinds (id INT PRIMARY KEY, "
    + ", ".join(f"c{number} {kind} NULL" for number, kind in enumerate(KINDS))
    + ")",
    f"INSERT INTO kinds VALUES (1, {', '.join(KINDS.values())})",
    "CREATE TABLE required (id INT PRIMARY KEY, "
    + ", ".join(f"c{number} {kind} NOT NULL" for number, kind in enumerate(KINDS))
    + ")",
    f"INSERT INTO required VALUES (1, {', '.join(KINDS.values())})",
    "CREATE TABLE keyless (a INT, b TEXT)",
    "INSERT INTO keyless VALUES (0, 'first')",
    "CREATE TABLE pairs (a INT, b VARCHAR(20), c VARCHAR(20) DEFAULT 'a b', d INT NOT NULL DEFAULT 7, "
    "PRIMARY KEY (b, a))",
    "CREATE TABLE defaults (id INT PRIMARY KEY, a TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, "
    "b DATETIME DEFAULT NOW(), c DECIMAL(6,2) NOT NULL DEFAULT 1.5, d BIT(1) DEFAULT b'1', "
    "e ENUM('x','y') NOT NULL DEFAULT 'y', f DATE DEFAULT '2024-02-29', g FLOAT DEFAULT 0.5, "
    "h BIGINT UNSIGNED DEFAULT 12, i TIME NOT NULL DEFAULT '01:02:03', j DATETIME(3) DEFAULT '2024-02-29 01:02:03.5', "
    "k BOOLEAN NOT NULL DEFAULT true, l VARCHAR(9) DEFAULT NULL, m YEAR DEFAULT 2024, n CHAR(4) NOT NULL DEFAULT '', "
    "o SET('p','q') NOT NULL DEFAULT 'p,q', r TIMESTAMP NULL DEFAULT '2024-02-29 01:02:03')",
    "INSERT INTO defaults (id) VALUES (1)",
)
DURING = (
    f"INSERT INTO kinds VALUES (2, {', '.join(KINDS.values())}), (3, {', '.join('NULL' for _ in KINDS)})",
    "UPDATE kinds SET c0 = 5 WHERE id = 2",
    "UPDATE kinds SET id = 9 WHERE id = 2",
    "DELETE FROM kinds WHERE id = 3",
    f"INSERT INTO required VALUES (2, {', '.join(KINDS.values())})",
    "DELETE FROM required WHERE id = 2",
    "INSERT INTO keyless VALUES (1, 'x')",
    "UPDATE keyless SET a = 2 WHERE a = 1",
    "DELETE FROM keyless",
    "INSERT INTO pairs (a, b) VALUES (1, 'k'), (2, 'l')",
    "UPDATE pairs SET d = 8",
    "UPDATE pairs SET b = 'other' WHERE a = 1",
    "DELETE FROM pairs WHERE a = 2",
    "INSERT INTO defaults (id) VALUES (2)",
    "DELETE FROM defaults WHERE id = 2",
    "BEGIN",
    "INSERT INTO keyless VALUES (5, 'a')",
    "INSERT INTO pairs (a, b) VALUES (5, 'b')",
    "COMMIT",
    "INSERT INTO kinds (id) VALUES (100)",
)
SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "more": {
        "provide.transaction.metadata": "true",
        "decimal.handling.mode": "string",
        "binary.handling.mode": "base64",
        "column.exclude.list": "shop.pairs.c",
        "column.mask.with.4.chars": "shop.kinds.c12",
        "column.truncate.to.2.chars": "shop.kinds.c13",
        "skipped.operations": "u,t",
    },
}
LAST = f"{OURS}.shop.kinds"


CONNECTORS = {
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
}


CASES = [("mariadb", "plain"), ("mariadb", "more"), ("mysql", "plain")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def topics(request: pytest.FixtureRequest) -> Iterator[Topics]:
    """What both have written with the same settings."""
    kind, settings = request.param
    genuine = GenuineMariaDbConnect if kind == "mariadb" else GenuineMySqlConnect
    with (
        started(kind) as server,
        Broker() as broker,
        genuine(broker.bootstrap, offset_flush_interval_ms="1000") as theirs,
        OttlaConnect(broker.bootstrap, group_id="ours", config_storage_topic="ours-configs",
                     offset_storage_topic="ours-offsets", status_storage_topic="ours-status") as ours,
        closing(server.connect("shop")) as connection,
    ):  # fmt: skip
        with connection.cursor() as cursor:
            for statement in BEFORE:
                cursor.execute(statement)
            for readers, (worker, prefix) in enumerate(((ours, OURS), (theirs, THEIRS)), 1):
                own = config(server, broker.bootstrap, prefix)
                worker.put("captures", own | SETTINGS[settings])
                worker.wait("captures", "RUNNING")
                # both stream before anything changes: rows of the snapshot are as of now, changes come after
                eventually(partial(stream, cursor, readers), timeout_s=120)
            for statement in DURING:
                cursor.execute(statement)
        eventually(lambda: is_last(broker.bootstrap, LAST), timeout_s=120)
        eventually(lambda: is_last(broker.bootstrap, LAST.replace(OURS, THEIRS)), timeout_s=120)
        known = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
        yield written_by_both(broker.bootstrap, list(known))


def config(server: MariaDb, bootstrap: str, prefix: str) -> dict[str, str]:
    own = {"database.ssl.mode": "disabled"} if server.kind == "mysql" else {}
    return own | {
        "connector.class": CONNECTORS[server.kind],
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.server.id": {OURS: "6001", THEIRS: "6002"}[prefix],
        "database.include.list": "shop",
        "topic.prefix": prefix,
        "include.schema.changes": "false",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"history-{prefix}",
    }


def stream(cursor: Any, readers: int) -> bool:
    """Whether so many read the binlog."""
    cursor.execute("SELECT count(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
    return bool(cursor.fetchone()[0] >= readers)


def is_last(bootstrap: str, topic: str) -> bool:
    """Whether the last change is there."""
    return any(b'{"id":100}' in (message.key() or b"") for message in messages_of(bootstrap, topic, 1))


def test_the_same_topics_have_records_of_the_same_operations(topics: Topics) -> None:
    assert operations_differ(topics) == []


OF_MYSQL = re.compile(r"\.value\.payload\.source\.(?:ts_ms|ts_us|ts_ns|thread):")
"""Debezium has times of MySQL's GTID events, which have microseconds, and the thread of the BEGIN."""


def test_records_are_the_same_field_by_field(topics: Topics, request: pytest.FixtureRequest) -> None:
    # Debezium dates the first begin after its start by an event before it
    found = [each for each in fields_differ(topics) if not each.startswith("transaction[0].value.payload.ts_ms")]
    if request.node.callspec.params["topics"][0] == "mysql":
        found = [each for each in found if not OF_MYSQL.search(each)]
    assert not found, "\n".join(found)
