"""A database of a test's own on a MariaDB or MySQL."""

from typing import Any, Final

import pytest
from pymysql.connections import Connection

from ottla.connect.api import SourceRecord
from tests.support.mariadb import PASSWORD, USER, MariaDb
from tests.support.mysql import MySql

SERVERS: Final = ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)]
"""What `started` takes, as parameters of a fixture."""


def started(kind: str, **settings: str) -> MariaDb:
    """A server that writes what change capture needs."""
    if kind == "mariadb":
        return MariaDb(binlog_row_metadata="FULL", **settings)
    return MySql(binlog_row_metadata="FULL", **settings)


def up_to(last: int) -> str:
    """Rows with the numbers from 1 on, in a column `seq`."""
    rows = f"WITH RECURSIVE s AS (SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM s WHERE seq < {last}) SELECT seq FROM s"
    return f"({rows}) AS numbers"


class Driver:
    """What the driver reads in this process from now on, and what fails in it where nobody catches that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packets = 0
        self.failures: list[Any] = []
        original: Any = Connection._read_packet

        def read_packet(*given: Any, **more: Any) -> Any:
            self.packets += 1
            return original(*given, **more)

        monkeypatch.setattr(Connection, "_read_packet", read_packet)
        monkeypatch.setattr("sys.unraisablehook", self.failures.append)


class Database:
    """A database of the test's own, and the statements that it runs."""

    def __init__(self, server: MariaDb, name: str) -> None:
        self.server, self.name = server, name
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        self.connection = server.connect(name)

    def run(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def config(self, **more: str) -> dict[str, str]:
        of_database = {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.include.list": self.name,
            "topic.prefix": "shop",
        }
        return of_database | {name.replace("_", "."): value for name, value in more.items()}


def ops(records: list[SourceRecord]) -> list[tuple[str | None, Any]]:
    """Op and key's id; None for a tombstone."""
    return [(each.value["op"] if each.value else None, each.key["id"] if each.key else None) for each in records]
