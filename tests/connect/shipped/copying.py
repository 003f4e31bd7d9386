"""A table of PostgreSQL under load that connectors copy into another one, by way of a topic."""

import random
import threading
from types import TracebackType
from typing import Any, Final

import psycopg2

from tests.support.postgres import USER, Postgres

_CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
_FIRST_ROWS: Final = 300


def source(server: Postgres) -> dict[str, str]:
    """Captures the table."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.orders",
        "publication.autocreate.mode": "filtered",
        **_CONVERTERS,
    }


def sink(server: Postgres) -> dict[str, str]:
    """Writes the copy."""
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "shop.public.orders",
        "connection.url": f"jdbc:postgresql://{USER}@127.0.0.1:{server.port}/postgres",
        "table.name.format": "orders_copy",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
        **_CONVERTERS,
    }


class Load:
    """Changes the table as long as the block runs, and a while longer if that was short; from a seed."""

    def __init__(self, server: Postgres, *, at_least: int, pause_s: float) -> None:
        self._server = server
        self._at_least = at_least
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        with _connect(server) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE orders "
                "(id int PRIMARY KEY, name text NOT NULL, price numeric(9,2), at timestamptz, tags text[])"
            )
            cursor.execute(
                "INSERT INTO orders SELECT n, 'first ' || n, n, now(), NULL FROM generate_series(0, %s) n",
                (_FIRST_ROWS,),
            )

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        dice = random.Random(7)
        number = 1000
        connection: Any = None
        while not self._stop.is_set() or number < 1000 + self._at_least:
            number += 1
            try:
                connection = connection or _connect(self._server)
                _change(connection, dice, number)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):  # the server is being restarted
                connection = None
            self._stop.wait(self._pause_s)


def differences(server: Postgres) -> tuple[int, int]:
    """Rows that are only in the table, and only in the copy; (-1, -1) before there is one."""
    with _connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('orders_copy') IS NULL")
        if cursor.fetchone()[0]:
            return (-1, -1)
        both = []
        table = "SELECT id, name, price, at, to_jsonb(tags)::text FROM orders"
        copy = "SELECT id, name, price, at, tags::text FROM orders_copy"
        for one, other in ((table, copy), (copy, table)):
            cursor.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {other}) AS d")
            both.append(cursor.fetchone()[0])
    return both[0], both[1]


def _connect(server: Postgres) -> Any:
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="postgres")
    connection.autocommit = True
    return connection


def _change(connection: Any, dice: random.Random, number: int) -> None:
    """One transaction of an inserted, a changed and a deleted row, now and then of more."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "INSERT INTO orders VALUES (%s, %s, %s, now(), %s)",
            (number, f"item\t{number}\\", dice.randrange(10_000) / 100, [str(number), None]),
        )
        cursor.execute("UPDATE orders SET price = price + 1 WHERE id = %s", (dice.randrange(number),))
        cursor.execute("DELETE FROM orders WHERE id = %s", (dice.randrange(number),))
        if number % 50 == 0:
            cursor.execute("UPDATE orders SET name = upper(name) WHERE id %% 7 = %s", (number % 7,))
            cursor.execute("UPDATE orders SET id = -id WHERE id = %s", (dice.randrange(1, number),))
        cursor.execute("ROLLBACK" if number % 20 == 0 else "COMMIT")
