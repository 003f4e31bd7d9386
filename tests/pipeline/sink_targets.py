"""Each kind of table sink, and a reader of it that knows nothing of Ottla."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from ottla.pipeline.sinks import database, delta, iceberg, parquet
from ottla.pipeline.sinks.base import Sink


class Target:
    """One kind of sink below a directory, and a reader that shares nothing with it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self._catalog: dict[str, Any] = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/warehouse",
        }

    def sink(self, **options: Any) -> Sink:
        makers: dict[str, Callable[..., Sink]] = {
            "parquet": lambda **given: parquet("out", **given),
            "delta": lambda **given: delta("out", **given),
            "iceberg": lambda **given: iceberg("flights.out", catalog="test", **given, **self._catalog),
            "database": lambda **given: database(f"sqlite:///{self.directory}/out.db", "out", **given),
        }
        return makers[self.kind](**options)

    def read(self, columns: str) -> list[tuple[Any, ...]]:
        if self.kind == "parquet":
            found = f"read_parquet('{self.directory}/out/**/*.parquet', hive_partitioning=true)"
            return sorted(duckdb.execute(f"SELECT {columns} FROM {found}").fetchall())
        if self.kind == "database":
            connection = sqlite3.connect(self.directory / "out.db")
            try:
                return sorted(connection.execute(f"SELECT {columns} FROM out").fetchall())
            finally:
                connection.close()
        if self.kind == "delta":
            rows = DeltaTable(self.directory / "out").to_pyarrow_table()
        else:
            rows = load_catalog("test", **self._catalog).load_table("flights.out").scan().to_arrow()
        return sorted(duckdb.from_arrow(rows).select(columns).fetchall())
