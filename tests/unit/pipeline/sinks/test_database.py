"""Databases: types, keys with and without a constraint, and the one transaction that makes it once."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text
from tests.support.local_rows import LocalRows
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres

from ottla.pipeline.context import RunContext
from ottla.pipeline.sinks import SinkError, database
from ottla.pipeline.sinks.batches import MicroBatch
from ottla.pipeline.sinks.database_table import DatabaseTable

QUERY = "11111111-2222-3333-4444-555555555555"
COUNTS = pa.schema([("carrier", pa.string()), ("day", pa.date32()), ("count", pa.int64())])
DAY = dt.date(2013, 1, 1)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/out.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    yield server.url
    execute(server.url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            results = [connection.execute(text(statement)) for statement in statements]
            return [tuple(row) for row in results[-1]] if results[-1].returns_rows else []
    finally:
        engine.dispose()


def write(sink: DatabaseTable, number: int, rows: pa.Table, mode: str = "append") -> None:
    context = RunContext(cast(Any, None), "", "job", "run", Path(), Path())
    sink.writer(rows.schema, mode, context).write(MicroBatch(cast(Any, LocalRows(rows)), QUERY, number))


def counts(*rows: tuple[str, int]) -> pa.Table:
    return pa.table(
        {"carrier": [row[0] for row in rows], "day": [DAY] * len(rows), "count": [row[1] for row in rows]}, COUNTS
    )


def test_values_of_every_type_arrive(url: str) -> None:
    values: dict[str, tuple[Any, Any]] = {
        "text": ("Zürich", pa.string()),
        "long": (2**53 + 1, pa.int64()),
        "small": (-5, pa.int16()),
        "number": (0.1, pa.float64()),
        "money": (Decimal("12345678901234567890.12"), pa.decimal128(22, 2)),
        "yes": (True, pa.bool_()),
        "day": (DAY, pa.date32()),
        "at": (dt.datetime(2013, 1, 1, 5, 0, 0, 123456, dt.UTC), pa.timestamp("us", "UTC")),
        "raw": (b"\x00\xff", pa.binary()),
        "list": ([1, 2], pa.list_(pa.int32())),
        "missing": (None, pa.string()),
    }
    columns = {name: pa.array([value], kind) for name, (value, kind) in values.items()}
    write(database(url, "out"), 0, pa.table(columns))
    (row,) = execute(url, f"SELECT {', '.join(chr(34) + name + chr(34) for name in values)} FROM out")
    found = dict(zip(values, row, strict=True))
    assert (found["text"], found["long"], found["small"], found["number"]) == ("Zürich", 2**53 + 1, -5, 0.1)
    assert (Decimal(found["money"]), bool(found["yes"]), found["missing"]) == (values["money"][0], True, None)
    assert (bytes(found["raw"]), str(found["day"]), str(found["list"])) == (b"\x00\xff", "2013-01-01", "[1, 2]")
    assert "05:00:00.123456" in str(found["at"])


def test_a_micro_batch_is_written_once(url: str) -> None:
    sink = database(url, "out")
    write(sink, 0, counts(("UA", 1)))
    write(sink, 0, counts(("UA", 1)))
    write(sink, 1, counts(("AA", 2)))
    write(sink, 0, counts(("UA", 1)))
    assert execute(url, "SELECT carrier, count FROM out ORDER BY carrier") == [("AA", 2), ("UA", 1)]


@pytest.mark.parametrize("constraint", ["primary key", "unique index", "none"])
def test_rows_replace_those_of_the_same_key(url: str, constraint: str) -> None:
    if constraint != "primary key":
        execute(url, "CREATE TABLE out (carrier TEXT, day DATE, count BIGINT)")
    if constraint == "unique index":
        execute(url, "CREATE UNIQUE INDEX of_out ON out (day, carrier)")
    sink = database(url, "out", key=("carrier", "day"))
    write(sink, 0, counts(("UA", 1), ("AA", 1), ("UA", 2)), "update")
    write(sink, 1, counts(("UA", 3), ("DL", 1)), "update")
    assert execute(url, "SELECT carrier, count FROM out ORDER BY carrier") == [("AA", 1), ("DL", 1), ("UA", 3)]


def test_a_complete_result_replaces_the_table(url: str) -> None:
    write(database(url, "out"), 0, counts(("UA", 1), ("AA", 1)), "complete")
    write(database(url, "out"), 1, counts(("UA", 2)), "complete")
    assert execute(url, "SELECT carrier, count FROM out") == [("UA", 2)]


def test_two_tables_of_one_query_do_not_take_each_others_note(url: str) -> None:
    for name in ("left_out", "right_out"):
        write(database(url, name), 0, counts(("UA", 1)))
        assert execute(url, f"SELECT count FROM {name}") == [(1,)]


def test_what_does_not_fit_is_said(url: str) -> None:
    execute(url, "CREATE TABLE out (carrier TEXT, airport TEXT NOT NULL)")
    with pytest.raises(
        SinkError, match=r"column 'day' is not in the table.*'airport' is not in the rows, may not be null"
    ):
        write(database(url, "out"), 0, counts(("UA", 1)))
    nameless = counts(("UA", 1), ("AA", 2)).set_column(0, "carrier", pa.array([None, None], pa.string()))
    with pytest.raises(SinkError, match="2 rows have no 'carrier', which is part of the key"):
        write(database(url, "other", key="carrier"), 0, nameless)


def test_what_cannot_be_reached_is_said(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"sqlite:///.*cannot be (made|reached): unable to open database file"):
        write(database(f"sqlite:///{tmp_path}/none/out.db", "out"), 0, counts())
    with pytest.raises(SinkError, match="no URL of a database that SQLAlchemy knows"):
        write(database("out.db", "out"), 0, counts())
    assert "secret" not in database("postgresql://me:secret@host/db", "out").describe()


def test_keys_that_differ_in_case_accents_or_blanks_are_different_rows_in_mariadb() -> None:
    keys = ["a", "A", "a ", "\u00e1", "\u00df", "ss"]
    with MariaDb() as server:
        sink = database(server.url, "out", key="carrier")
        write(sink, 0, counts(*((key, 1) for key in keys)), "update")
        write(sink, 1, counts(("A", 2)), "update")
        found = execute(server.url, "SELECT carrier, count FROM `out`")
    assert sorted(found) == sorted((key, 2 if key == "A" else 1) for key in keys)
