"""A database of a test's own on a MariaDB."""

from typing import Any

from ottla.connect.api import SourceRecord
from tests.support.mariadb import PASSWORD, USER, MariaDb


class Database:
    """A database of the test's own, and what it is told."""

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
