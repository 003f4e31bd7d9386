"""Databases that the relational connectors are tried against."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy
from sqlalchemy import Engine

from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres

KINDS = ["sqlite", "postgresql", "mariadb"]


@contextmanager
def server(kind: str, directory: Path) -> Iterator[str]:
    """SQLAlchemy's URL of a database of this kind."""
    if kind == "sqlite":
        yield f"sqlite:///{directory}/rows.db"
    elif kind == "postgresql":
        with Postgres() as postgres:
            yield postgres.url.replace("+psycopg:", "+psycopg2:")
    else:
        with MariaDb() as mariadb:
            yield mariadb.url


def emptied(url: str) -> Engine:
    """The database without its tables."""
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        everything = sqlalchemy.MetaData()
        everything.reflect(connection)
        everything.drop_all(connection)
    return engine


def rows(engine: Engine, query: str) -> list[tuple[object, ...]]:
    """All rows of a query."""
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sqlalchemy.text(query))]
