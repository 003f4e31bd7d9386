"""How far sources are behind, against a real PostgreSQL: in the REST API, and in what `ottla connect` prints."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from ottla.cli.app import run as ottla
from ottla.testing import Broker, ConnectWorker
from tests.support.connect import values_of
from tests.support.eventually import eventually
from tests.support.postgres import USER, Postgres

_MB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(wal_level="logical") as postgres:
        prepare(postgres)
        yield postgres


@pytest.fixture(scope="module")
def stand() -> Iterator[tuple[Broker, ConnectWorker]]:
    with Broker() as broker, ConnectWorker(broker.bootstrap) as worker:
        yield broker, worker


def run(server: Postgres, *statements: str) -> Any:
    """Run statements, each by itself; the first column of the last one's first row."""
    with closing(psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="postgres")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            found = cursor.fetchone() if cursor.description else None
    return None if found is None else found[0]


def prepare(server: Postgres) -> None:
    run(server, "CREATE TABLE items (id int PRIMARY KEY, note text)", "INSERT INTO items VALUES (1, 'a')")
    run(server, "CREATE ROLE reader LOGIN REPLICATION", "GRANT SELECT ON items TO reader")
    run(server, "CREATE PUBLICATION dbz_publication FOR TABLE items")


def capture(server: Postgres) -> dict[str, str]:
    return {
        "connector.class": "postgres-source",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "reader",
        "database.dbname": "postgres",
        "table.include.list": "public.items",
        "topic.prefix": "shop",
        "heartbeat.interval.ms": "500",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    }


def lag(worker: ConnectWorker, name: str) -> dict[str, Any]:
    (row,) = worker.request("GET", f"/connectors/{name}/lag")
    return dict(row)


def delivery(worker: ConnectWorker, name: str) -> dict[str, Any]:
    (task,) = worker.request("GET", f"/connectors/{name}/progress")
    return dict(task["delivery"] or {})


@pytest.fixture
def command(stand: tuple[Broker, ConnectWorker], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command of `ottla connect`: what it prints into a pipe."""

    def printed(*arguments: str) -> str:
        capsys.readouterr()
        assert ottla(["connect", *arguments, "--url", stand[1].url]) == 0
        return capsys.readouterr().out

    return printed


def test_a_capture_shows_its_lag_behind_the_log_and_the_last_change(
    server: Postgres, stand: tuple[Broker, ConnectWorker], command: Callable[..., str]
) -> None:
    broker, worker = stand
    worker.put("items", capture(server))
    eventually(lambda: values_of(broker.bootstrap, "shop.public.items", 1), timeout_s=60)
    before = int(time.time() * 1000)
    run(server, "INSERT INTO items VALUES (2, 'b')")
    after = int(time.time() * 1000)
    eventually(lambda: before <= (delivery(worker, "items").get("changed_at") or 0) <= after, timeout_s=60)
    shown = delivery(worker, "items")
    assert shown["delivered_at"] >= shown["changed_at"]
    eventually(lambda: lag(worker, "items")["lag"] < _MB, timeout_s=60)

    worker.request("PUT", "/connectors/items/pause")  # the lag of a connector that does nothing grows
    worker.wait("items", "PAUSED")
    start = lag(worker, "items")
    run(server, "CREATE TABLE big AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
    run(server, "INSERT INTO items VALUES (3, 'c')")
    held = lag(worker, "items")
    assert held["partition"] == {"server": "shop"}
    assert (held["unit"], held["error"], held["position"]) == ("bytes", None, start["position"])
    assert held["lag"] > 5 * _MB - _MB // 2
    diff = f"SELECT pg_wal_lsn_diff('{held['end']}', '{held['position']}')::bigint"
    assert held["lag"] == run(server, diff)
    found = json.loads(command("status", "items", "--json"))
    assert (found["connector"]["state"], found["lag"][0]["partition"]) == ("PAUSED", {"server": "shop"})
    assert found["progress"][0]["delivery"]["changed_at"] == shown["changed_at"]  # kept over the end of the task
    first, _task = command("status", "items").splitlines()
    assert first.split("\t")[5].endswith(" bytes")
    part, position, _end, lag_bytes, error = command("lag", "items").split("\t")
    assert (part, position, error.strip()) == ("shop", held["position"], "-")
    assert int(lag_bytes) >= held["lag"]

    worker.request("PUT", "/connectors/items/resume")
    eventually(lambda: values_of(broker.bootstrap, "shop.public.items", 3), timeout_s=60)
    eventually(lambda: lag(worker, "items")["lag"] < _MB, timeout_s=60)
    eventually(lambda: delivery(worker, "items")["changed_at"] > after, timeout_s=60)


def test_rows_of_tables_have_a_position_and_no_lag(server: Postgres, stand: tuple[Broker, ConnectWorker]) -> None:
    broker, worker = stand
    run(server, "CREATE TABLE rows (id int PRIMARY KEY)", "INSERT INTO rows VALUES (7)")
    worker.put(
        "polled",
        {
            "connector.class": "relational-source",
            "connection.url": server.url,
            "table.whitelist": "rows",
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "topic.prefix": "polled-",
            "poll.interval.ms": "200",
        },
    )
    eventually(lambda: values_of(broker.bootstrap, "polled-rows", 1), timeout_s=60)
    eventually(lambda: delivery(worker, "polled").get("changed_at"), timeout_s=60)
    row = lag(worker, "polled")
    assert (row["partition"], row["position"]) == ({"table": "rows"}, "incrementing 7")
    assert (row["end"], row["lag"], row["unit"], row["error"]) == (None, None, None, None)


def test_a_task_that_has_delivered_nothing_is_idle_since_it_began(
    server: Postgres, stand: tuple[Broker, ConnectWorker], command: Callable[..., str]
) -> None:
    _, worker = stand
    worker.put("nothing", {"connector.class": "tests.connect.connectors.Numbers", "topic": "none", "count": "0"})
    worker.wait("nothing", "RUNNING")
    shown = delivery(worker, "nothing")
    assert (shown["delivered_at"], shown["changed_at"]) == (None, None)
    assert abs(shown["idle_since"] - time.time() * 1000) < 60_000
    assert worker.request("GET", "/connectors/nothing/lag") == []
    _, task = command("status", "nothing").splitlines()
    assert task.split("\t")[6] == "-"
    assert task.split("\t")[7].startswith("20")


@pytest.mark.timeout(120)
def test_a_database_that_is_away_is_a_sentence_and_no_failure_of_the_command(
    stand: tuple[Broker, ConnectWorker], command: Callable[..., str]
) -> None:
    broker, worker = stand
    with Postgres(wal_level="logical") as server:
        prepare(server)
        worker.put("away", {**capture(server), "topic.prefix": "away"})
        eventually(lambda: values_of(broker.bootstrap, "away.public.items", 1), timeout_s=60)
        eventually(lambda: lag(worker, "away")["lag"] is not None, timeout_s=60)
    row = lag(worker, "away")
    assert (row["lag"], row["position"]) == (None, None)
    assert f"127.0.0.1:{server.port}" in row["error"]
    first, _task = command("status", "away").splitlines()
    assert first.split("\t")[5] == "unknown"
    assert "cannot be reached" in first.split("\t")[4]
