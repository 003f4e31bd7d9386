"""SIGKILL at every step of a micro-batch: no row is lost or doubled, and nothing is left over."""

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.support.sink_crashes import CORRECTING, Crashing

from ottla.pipeline.sinks.parquet_files import OWN_DIRECTORY

BATCHES = [
    [[(1, "UA"), (2, "A/A")], [(3, "UA")]],
    [[(4, "UA"), (5, "A/A")], [(6, "UA")]],
    [[(7, "UA")]],
]
FIRST, SECOND, THIRD = ([row for task in batch for row in task] for batch in BATCHES)
MOST_STEPS = 80


def rows_in(target: Crashing) -> list[tuple[Any, ...]]:
    """As others read it, who know nothing of Ottla."""
    columns = "flight, carrier"
    if target.kind == "parquet":
        files = f"read_parquet('{target.directory}/out/**/*.parquet', hive_partitioning=true)"
        return sorted(duckdb.execute(f"SELECT {columns} FROM {files}").fetchall())
    if target.kind == "database":
        connection = sqlite3.connect(target.directory / "out.db")
        try:
            return sorted(connection.execute(f"SELECT {columns} FROM out").fetchall())
        finally:
            connection.close()
    if target.kind == "delta":
        table = DeltaTable(target.directory / "out").to_pyarrow_table()
    else:
        table = load_catalog("test", **target.catalog).load_table("flights.out").scan().to_arrow()
    return sorted(duckdb.from_arrow(table).select(columns).fetchall())


def stray_files(target: Crashing) -> set[str]:
    """Files of rows that no reader would ever see."""
    if target.kind == "parquet":
        return {str(path) for path in (target.directory / "out" / OWN_DIRECTORY).rglob("*.part")}
    if target.kind == "delta":
        known = {uri.removeprefix("file://") for uri in DeltaTable(target.directory / "out").file_uris()}
        present = {str(path) for path in (target.directory / "out" / "data").rglob("*.parquet")}
        return {path.replace("%", "_") for path in present} - {
            path.replace("%25", "_").replace("%", "_") for path in known
        }
    if target.kind == "iceberg":
        table = load_catalog("test", **target.catalog).load_table("flights.out")
        known = {str(path).removeprefix("file://") for path in table.inspect.files()["file_path"].to_pylist()}
        return {str(path) for path in (target.directory / "warehouse").rglob("data/**/*.parquet")} - known
    return set()


def is_partial(rows: list[tuple[Any, ...]], before: list[Any], after: list[Any]) -> bool:
    """Nothing missing of what was there, nothing twice, nothing strange."""
    return len(set(rows)) == len(rows) and set(before) <= set(rows) <= {*before, *after}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "stride"),
    [
        ("parquet", 2),
        ("delta", 1),
        ("iceberg", 9),
        ("database", 6),
        *(pytest.param(kind, 1, marks=pytest.mark.soak) for kind in ("iceberg", "database")),
    ],
)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(tmp_path: Path, kind: str, stride: int) -> None:
    """`stride` keeps the test short; with 1 it goes through every step."""
    options = {} if kind == "database" else {"partition_by": "carrier"}
    after_kill = set()
    for step in range(0, MOST_STEPS, stride):
        target = Crashing(kind, tmp_path / str(step), options)
        target.directory.mkdir()
        assert target.write({0: BATCHES[0]})
        finished = target.write({1: BATCHES[1]}, kill_at=step)
        seen = rows_in(target)
        after_kill.add(len(seen))
        if kind == "parquet":
            assert is_partial(seen, FIRST, SECOND), step
        else:
            assert seen in (sorted(FIRST), sorted(FIRST + SECOND)), step
        assert target.write({1: BATCHES[1], 2: BATCHES[2]}), "Spark repeats the micro-batch, and goes on"
        assert rows_in(target) == sorted(FIRST + SECOND + THIRD), step
        assert stray_files(target) == set(), step
        if finished:
            break
    else:
        pytest.fail(f"more than {MOST_STEPS} steps")
    assert step > 3
    assert {len(FIRST), len(FIRST + SECOND)} <= after_kill, "kills before and after the commit"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "stride"), [("delta", 3), ("iceberg", 11), ("database", 13)])
def test_late_rows_are_merged_once_wherever_a_driver_is_killed(tmp_path: Path, kind: str, stride: int) -> None:
    """`stride` keeps the test short; with 1 it goes through every step."""
    first, late, later = [[(1, "UA")], [(2, "AA")]], [[(10, "UA")], [(30, "DL")]], [[(100, "AA")], [(300, "DL")]]
    seen = set()
    for step in range(0, MOST_STEPS, stride):
        target = Crashing(kind, tmp_path / str(step), {"key": "carrier"}, CORRECTING)
        target.directory.mkdir()
        assert target.write({0: first})
        finished = target.write({1: late}, kill_at=step)
        seen.add(tuple(rows_in(target)))
        assert target.write({1: late, 2: later}), "the follower repeats the micro-batch, and goes on"
        assert rows_in(target) == [(11, "UA"), (102, "AA"), (330, "DL")], step
        if finished:
            break
    else:
        pytest.fail(f"more than {MOST_STEPS} steps")
    assert seen == {((1, "UA"), (2, "AA")), ((2, "AA"), (11, "UA"), (30, "DL"))}, "kills before and after the commit"
