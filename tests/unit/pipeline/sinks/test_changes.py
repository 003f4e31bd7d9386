"""Changes of a captured table in tables of each kind: rows put and removed by key, each micro-batch once."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from sqlalchemy import create_engine, text
from tests.support.local_rows import LocalRows

from ottla.pipeline.context import CHANGES, RunContext
from ottla.pipeline.sinks import SinkError, database, delta, iceberg
from ottla.pipeline.sinks.batches import MicroBatch

QUERY = "11111111-2222-3333-4444-555555555555"
KEY = ("shop", "id")
TABLE = pa.schema([("id", pa.decimal128(9, 2)), ("shop", pa.string()), ("note", pa.string())])
COLUMNS = [*TABLE, pa.field("_op", pa.string()), pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]

Change = tuple[int, str, str, str | None]
"""Id, shop, what was done, and the note afterwards."""


class Copy:
    """A table of one kind, and a reader that shares nothing with the sink."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        catalog: dict[str, Any] = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/warehouse",
        }
        self._catalog = catalog
        self.sinks: dict[str, Callable[[], Any]] = {
            "database": lambda: database(self._url, "out", key=KEY),
            "delta": lambda: delta("out", key=KEY, partition_by="shop"),
            "iceberg": lambda: iceberg("shop.out", catalog="test", key=KEY, partition_by="shop", **catalog),
        }
        self._url = f"sqlite:///{directory}/out.db"

    def apply(self, number: int, *changes: Change, offsets: tuple[int, ...] = ()) -> None:
        """One micro-batch; the offsets of its changes count up unless they are given."""
        at = offsets or range(len(changes))
        rows = [(number, shop, note, op, 0, at[row]) for row, (number, shop, op, note) in enumerate(changes)]
        arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(COLUMNS)]
        table = pa.Table.from_arrays(arrays, schema=pa.schema(COLUMNS))
        context = RunContext(cast(Any, None), "", "job", "run", self.directory, self.directory)
        writer = self.sinks[self.kind]().writer(TABLE, CHANGES, context)
        writer.write(MicroBatch(cast(Any, LocalRows(table)), QUERY, number))

    def rows(self) -> list[tuple[int, str, str | None]]:
        if self.kind == "database":
            engine = create_engine(self._url)
            with engine.connect() as connection:
                found = [tuple(row) for row in connection.execute(text("SELECT id, shop, note FROM out"))]
            engine.dispose()
        elif self.kind == "delta":
            found = [tuple(row.values()) for row in DeltaTable(self.directory / "out").to_pyarrow_table().to_pylist()]
        else:
            scan = load_catalog("test", **self._catalog).load_table("shop.out").scan()
            found = [tuple(row.values()) for row in scan.to_arrow().to_pylist()]
        return sorted((int(Decimal(number)), shop, note) for number, shop, note in found)


@pytest.fixture(params=["database", "delta", "iceberg"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    return Copy(request.param, tmp_path)


def test_rows_are_put_and_removed_by_their_key(copy: Copy) -> None:
    copy.apply(0, (1, "a", "r", "x"), (2, "a", "r", "x"), (1, "b", "c", None))
    assert copy.rows() == [(1, "a", "x"), (1, "b", None), (2, "a", "x")]
    copy.apply(1, (1, "a", "d", None), (2, "a", "u", "y"), (3, "b", "c", "z"))
    assert copy.rows() == [(1, "b", None), (2, "a", "y"), (3, "b", "z")]
    copy.apply(2, (2, "a", "d", None), (1, "b", "d", None), (3, "b", "d", None))
    assert copy.rows() == []
    copy.apply(3, (2, "a", "c", "again"))
    assert copy.rows() == [(2, "a", "again")]


def test_the_last_change_of_a_key_in_a_micro_batch_counts_by_its_offset(copy: Copy) -> None:
    copy.apply(0, (1, "a", "c", "x"), (1, "a", "d", None), (2, "a", "d", None), (2, "a", "c", "y"))
    assert copy.rows() == [(2, "a", "y")]
    copy.apply(1, (2, "a", "d", None), (2, "a", "u", "late"), (3, "a", "u", "z"), offsets=(9, 8, 7))
    assert copy.rows() == [(3, "a", "z")]


def test_a_repeated_micro_batch_changes_nothing(copy: Copy) -> None:
    first: list[Change] = [(1, "a", "c", "x"), (2, "a", "c", "x")]
    copy.apply(0, *first)
    copy.apply(0, *first)
    copy.apply(1, (1, "a", "d", None))
    copy.apply(2, (1, "a", "c", "again"))
    copy.apply(1, (1, "a", "d", None))
    assert copy.rows() == [(1, "a", "again"), (2, "a", "x")]


def test_removing_rows_that_are_not_there_and_nothing_at_all(copy: Copy) -> None:
    copy.apply(0, (1, "a", "d", None))
    copy.apply(1)
    assert copy.rows() == []
    copy.apply(2, (1, "a", "c", "x"))
    copy.apply(3, (1, "b", "d", None), (2, "a", "d", None))
    assert copy.rows() == [(1, "a", "x")]


def test_a_key_that_is_null_is_refused(copy: Copy) -> None:
    with pytest.raises(SinkError, match="1 rows have no 'shop', which is part of the key"):
        copy.apply(0, (1, cast(str, None), "d", None))


@pytest.mark.parametrize("sink", [database("sqlite://", "out"), delta("out"), iceberg("shop.out", catalog="test")])
def test_changes_need_a_key(sink: Any, tmp_path: Path) -> None:
    context = RunContext(cast(Any, None), "", "job", "run", tmp_path, tmp_path)
    with pytest.raises(SinkError, match=r"needs key=\.\.\. in mode 'changes'"):
        sink.writer(TABLE, CHANGES, context)
