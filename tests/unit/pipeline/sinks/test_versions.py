"""Tables of each kind that keep all versions of the rows: exact rows, each micro-batch once."""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from sqlalchemy import create_engine, text
from tests.support.local_rows import LocalRows
from tests.support.sink_crashes import Crashing

from ottla.pipeline.context import HISTORY, RunContext
from ottla.pipeline.sinks import SinkError, database, delta, iceberg
from ottla.pipeline.sinks.batches import MicroBatch

QUERY = "11111111-2222-3333-4444-555555555555"
KEY = ("shop", "id")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
OWN = [("id", pa.int64()), ("shop", pa.string()), ("note", pa.string())]
TABLE = pa.schema([*OWN, pa.field("valid_from", TIME), pa.field("valid_to", TIME)])
COLUMNS = [*map(pa.field, *zip(*OWN, strict=True)), pa.field("_op", pa.string()), pa.field("_ts", TIME)]
COLUMNS += [pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]

Change = tuple[int | None, str | None, str, str | None, int | None]
"""Id, shop, what was done, the note afterwards, and when in seconds."""


class Versions:
    """A table of one kind, and a reader that shares nothing with the sink."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self._catalog: dict[str, Any] = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/warehouse",
        }
        self._url = f"sqlite:///{directory}/out.db"
        self._sinks: dict[str, Callable[[], Any]] = {
            "database": lambda: database(self._url, "out", key=KEY),
            "delta": lambda: delta("out", key=KEY, partition_by="shop"),
            "iceberg": lambda: iceberg("shop.out", catalog="test", key=KEY, partition_by="shop", **self._catalog),
        }

    def apply(self, number: int, *changes: Change, offsets: tuple[int, ...] = ()) -> None:
        """One micro-batch; the offsets of its changes count up unless they are given."""
        at = offsets or range(len(changes))
        rows = [
            (number, shop, note, op, None if when is None else EPOCH + timedelta(seconds=when), 0, at[row])
            for row, (number, shop, op, note, when) in enumerate(changes)
        ]
        arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(COLUMNS)]
        table = pa.Table.from_arrays(arrays, schema=pa.schema(COLUMNS))
        context = RunContext(cast(Any, None), "", "job", "run", self.directory, self.directory)
        writer = self._sinks[self.kind]().writer(TABLE, HISTORY, context)
        writer.write(MicroBatch(cast(Any, LocalRows(table)), QUERY, number))

    def rows(self) -> list[tuple[Any, ...]]:
        """Shop, id, note, and the seconds from and to."""
        names = ("shop", "id", "note", "valid_from", "valid_to")
        if self.kind == "database":
            engine = create_engine(self._url)
            with engine.connect() as connection:
                rows = [tuple(row) for row in connection.execute(text(f"SELECT {', '.join(names)} FROM out"))]
            engine.dispose()
            found = [
                (*row[:3], *(at and datetime.fromisoformat(at).replace(tzinfo=UTC) for at in row[3:])) for row in rows
            ]
        elif self.kind == "delta":
            found = [
                tuple(row[n] for n in names)
                for row in DeltaTable(self.directory / "out").to_pyarrow_table().to_pylist()
            ]
        else:
            scan = load_catalog("test", **self._catalog).load_table("shop.out").scan()
            found = [tuple(row[n] for n in names) for row in scan.to_arrow().to_pylist()]
        seconds = [(*row[:3], *(at and int((at - EPOCH).total_seconds()) for at in row[3:])) for row in found]
        return sorted(seconds, key=lambda row: (*row[:2], row[3], row[4] is None, row[4] or 0, row[2]))


@pytest.fixture(params=["database", "delta", "iceberg"])
def versions(request: pytest.FixtureRequest, tmp_path: Path) -> Versions:
    return Versions(request.param, tmp_path)


def test_versions_follow_each_other(versions: Versions) -> None:
    versions.apply(0, (1, "a", "r", "x", 10), (2, "a", "r", "x", 10), (1, "b", "c", None, 11))
    assert versions.rows() == [("a", 1, "x", 10, None), ("a", 2, "x", 10, None), ("b", 1, None, 11, None)]
    versions.apply(1, (1, "a", "u", "y", 20), (2, "a", "d", None, 20), (3, "b", "c", "z", 20))
    versions.apply(2, (1, "a", "u", "q", 20), (1, "a", "u", "r", 30), (2, "a", "c", "again", 40))
    assert versions.rows() == [
        ("a", 1, "x", 10, 20), ("a", 1, "y", 20, 20), ("a", 1, "q", 20, 30), ("a", 1, "r", 30, None),
        ("a", 2, "x", 10, 20), ("a", 2, "again", 40, None), ("b", 1, None, 11, None), ("b", 3, "z", 20, None),
    ]  # fmt: skip


def test_the_source_orders_changes_of_one_time(versions: Versions) -> None:
    versions.apply(
        0, (1, "a", "u", "last", 5), (1, "a", "c", "first", 5), (1, "a", "u", "middle", 5), offsets=(9, 7, 8)
    )
    assert [row[2:] for row in versions.rows()] == [("first", 5, 5), ("middle", 5, 5), ("last", 5, None)]
    versions.apply(1, (1, "a", "u", "later", 4))
    assert {row[2:] for row in versions.rows()} == {
        ("first", 5, 5), ("middle", 5, 5), ("last", 5, 5), ("later", 5, None),
    }  # fmt: skip


def test_a_repeated_micro_batch_makes_no_version_twice(versions: Versions) -> None:
    first: list[Change] = [(1, "a", "c", "x", 1), (2, "a", "c", "x", 1)]
    versions.apply(0, *first)
    versions.apply(0, *first)
    second: list[Change] = [(1, "a", "u", "y", 2), (None, None, "t", None, 3), (2, "a", "c", "z", 3)]
    versions.apply(1, *second)
    expected = [("a", 1, "x", 1, 2), ("a", 1, "y", 2, 3), ("a", 2, "x", 1, 3), ("a", 2, "z", 3, None)]
    assert versions.rows() == expected
    versions.apply(1, *second)
    versions.apply(0, *first)
    assert versions.rows() == expected


def test_a_truncate_ends_all_versions_and_is_remembered(versions: Versions) -> None:
    versions.apply(0, (1, "a", "c", "x", 1), (2, "b", "c", "x", 1))
    versions.apply(1, (None, None, "t", None, 5))
    assert versions.rows() == [("a", 1, "x", 1, 5), ("b", 2, "x", 1, 5)]
    versions.apply(2, (3, "a", "c", "late", 4), (3, "b", "c", "new", 5))
    versions.apply(3, (2, "b", "d", None, 7))
    assert versions.rows() == [
        ("a", 1, "x", 1, 5), ("a", 3, "late", 4, 5), ("b", 2, "x", 1, 5), ("b", 3, "new", 5, None),
    ]  # fmt: skip


def test_nothing_and_rows_that_are_not_there(versions: Versions) -> None:
    versions.apply(0)
    versions.apply(1, (1, "a", "d", None, 1))
    versions.apply(2, (None, None, "t", None, 2))
    assert versions.rows() == []
    versions.apply(3, (1, "a", "u", "x", 3))
    assert versions.rows() == [("a", 1, "x", 3, None)]


def test_changes_without_time_or_key_are_refused(versions: Versions) -> None:
    with pytest.raises(SinkError, match="1 changes do not tell when they were made"):
        versions.apply(0, (1, "a", "c", "x", None))
    with pytest.raises(SinkError, match="1 rows have no 'shop', which is part of the key"):
        versions.apply(0, (1, None, "c", "x", 1))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "stride"), [("database", 4), ("delta", 1), ("iceberg", 4)])
def test_a_driver_killed_at_any_step_doubles_no_version(tmp_path: Path, kind: str, stride: int) -> None:
    """`stride` keeps the test short; with 1 it goes through every step."""
    batches = [[[(1, "a"), (2, "a")]], [[(1, "b")], [(3, "a")]], [[(1, "c")]]]
    before = [(1, "a", 0, None), (2, "a", 0, None)]
    after = [(1, "a", 0, 1), (1, "b", 1, None), (2, "a", 0, None), (3, "a", 1, None)]
    at_the_end = [(1, "a", 0, 1), (1, "b", 1, 2), (1, "c", 2, None), (2, "a", 0, None), (3, "a", 1, None)]
    seen = []
    for step in range(0, _MOST_STEPS, stride):
        target = Crashing(kind, tmp_path / str(step), {"key": "flight"}, HISTORY)
        target.directory.mkdir()
        assert target.write({0: batches[0]})
        finished = target.write({1: batches[1]}, kill_at=step)
        seen.append(_flights(target))
        assert seen[-1] in (before, after), step
        assert target.write({1: batches[1], 2: batches[2]}), "Spark repeats the micro-batch, and goes on"
        assert _flights(target) == at_the_end, step
        if finished:
            break
    else:
        pytest.fail(f"more than {_MOST_STEPS} steps")
    assert before in seen
    assert after in seen


_MOST_STEPS = 80


def _flights(target: Crashing) -> list[tuple[Any, ...]]:
    if target.kind == "database":
        connection = sqlite3.connect(target.directory / "out.db")
        found = connection.execute("SELECT flight, carrier, valid_from, valid_to FROM out").fetchall()
        connection.close()
        rows = [(*row[:2], *(at and int(at[17:19]) for at in row[2:])) for row in found]
    else:
        if target.kind == "delta":
            table = DeltaTable(target.directory / "out").to_pyarrow_table()
        else:
            table = load_catalog("test", **target.catalog).load_table("flights.out").scan().to_arrow()
        names = ("flight", "carrier", "valid_from", "valid_to")
        found = list(zip(*(table[name].to_pylist() for name in names), strict=True))
        rows = [(*row[:2], *(at and at.second for at in row[2:])) for row in found]
    return sorted(rows, key=lambda row: (row[0], row[2]))
