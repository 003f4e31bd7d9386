"""A driver that was thought dead writes the same micro-batch at the same time: one of them does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.support.local_rows import LocalRows, Run, numbered

from ottla.pipeline.context import RunContext
from ottla.pipeline.sinks import delta, iceberg, parquet
from ottla.pipeline.sinks.batches import MicroBatch

QUERY = "11111111-2222-3333-4444-555555555555"


class Interrupted(LocalRows):
    """Rows during whose computation something else happens."""

    def __init__(self, table: pa.Table, meanwhile: Callable[[], None]) -> None:
        super().__init__(table)
        self._meanwhile = meanwhile

    def mapInArrow(self, run: Run, schema: str) -> LocalRows:  # noqa: N802 - Spark's name
        found = super().mapInArrow(run, schema)
        self._meanwhile()
        return found

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self._meanwhile()
        return super().toArrow()


def files_below(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.suffix in (".parquet", ".part")}


@pytest.mark.parametrize(
    ("kind", "options"),
    [("parquet", {}), ("delta", {}), ("delta", {"key": "flight"}), ("iceberg", {}), ("iceberg", {"key": "flight"})],
)
def test_of_two_drivers_one_writes(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    catalog: dict[str, Any] = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    sinks: dict[str, Callable[[], Any]] = {
        "parquet": lambda: parquet("out"),
        "delta": lambda: delta("out", **options),
        "iceberg": lambda: iceberg("flights.out", catalog="test", **options, **catalog),
    }
    context = RunContext(cast(Any, None), "", "job", "run", tmp_path, tmp_path)
    rows = numbered(1, 2, 3)
    writer = sinks[kind]().writer(rows.schema, "append", context)

    def write(rows: LocalRows) -> None:
        writer.write(MicroBatch(cast(Any, rows), QUERY, 0))

    write(Interrupted(rows, lambda: write(Interrupted(rows, lambda: write(LocalRows(rows))))))

    if kind == "parquet":
        found = duckdb.execute(f"SELECT flight FROM read_parquet('{tmp_path}/out/**/*.parquet')").fetchall()
        assert len(files_below(tmp_path)) == 1
    elif kind == "delta":
        table = DeltaTable(tmp_path / "out")
        found = [(flight,) for flight in table.to_pyarrow_table()["flight"].to_pylist()]
        assert len(files_below(tmp_path)) == len(table.file_uris())
    else:
        scan = load_catalog("test", **catalog).load_table("flights.out").scan()
        found = [(flight,) for flight in scan.to_arrow()["flight"].to_pylist()]
        assert len(files_below(tmp_path)) == len(list(scan.plan_files()))
    assert sorted(found) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_compaction_that_others_overtake_does_not_fail_the_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    catalog: dict[str, Any] = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    sink: Any = (
        delta("out", compact_every=1)
        if kind == "delta"
        else iceberg("flights.out", catalog="test", compact_every=1, **catalog)
    )
    rows = numbered(1, 2, 3)
    context = RunContext(cast(Any, None), "", "job", "run", tmp_path, tmp_path)
    writer = sink.writer(rows.schema, "append", context)

    def overtaken(_version: object) -> str:
        raise sink.conflict()("another commit came first")

    monkeypatch.setattr(type(writer.load()), "compact", overtaken)
    with caplog.at_level("INFO"):
        writer.write(MicroBatch(cast(Any, LocalRows(rows)), QUERY, 0))
    assert writer.load().last_batch(QUERY) == 0
    assert "another writer was at it" in caplog.text
