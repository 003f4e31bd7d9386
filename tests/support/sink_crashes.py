"""Micro-batches written by processes of their own, which can be killed by SIGKILL at any of their steps.

A step is an event of the interpreter (audit hook) that touches a file, or the call or return of a function that makes a
change durable outside Python's sight.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from ottla.pipeline.context import HISTORY, RunContext
from ottla.pipeline.corrections import Closing, Corrections, Rule
from ottla.pipeline.sinks import database, delta, iceberg, parquet
from ottla.pipeline.sinks.batches import MicroBatch
from tests.support.local_rows import LocalRows

Batch = list[list[tuple[int, str]]]
"""Per task, rows of flight and carrier."""

CORRECTING: Final = "correcting"
QUERY: Final = "11111111-2222-3333-4444-555555555555"
_SUMS: Final = Corrections(("carrier",), {"flight": Rule.SUM}, Closing("end"))
_SCHEMA: Final = pa.schema([("flight", pa.int32()), ("carrier", pa.string())])
_TIME: Final = pa.timestamp("us", "UTC")
_TOUCHES: Final = ("open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir")
_PROCESSES: Final = multiprocessing.get_context("forkserver")
# what every process needs, imported once (installed packages only: the server does not know where the tests are)
_PROCESSES.set_forkserver_preload(
    ["deltalake", "ottla.pipeline.sinks.iceberg_rewrite", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyspark"]
)


@dataclass(frozen=True)
class Crashing:
    """A sink of one kind below a directory. `options` are the sink's. In the mode `HISTORY`, rows are updates of
    flights, the micro-batch's number of seconds after 1970. In the mode `CORRECTING`, micro-batches after the first are
    late rows, which are merged: flights are added up."""

    kind: str
    directory: Path
    options: dict[str, Any]
    mode: str = "append"

    @property
    def catalog(self) -> dict[str, str]:
        return {"uri": f"sqlite:///{self.directory}/catalog.db", "warehouse": f"file://{self.directory}/warehouse"}

    def write(self, batches: dict[int, Batch], *, kill_at: int | None = None) -> bool:
        """Write micro-batches in a new process; False if it was killed at the step of that number, from 0 on."""
        process = _PROCESSES.Process(target=_run, args=(self, batches, kill_at))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        assert process.exitcode == 0 or kill_at is not None
        return process.exitcode == 0

    def sink(self) -> Any:
        if self.kind == "parquet":
            return parquet("out", **self.options)
        if self.kind == "delta":
            return delta("out", **self.options)
        if self.kind == "iceberg":
            options: dict[str, Any] = {**self.options, **self.catalog}
            return iceberg("flights.out", catalog="test", **options)
        return database(f"sqlite:///{self.directory}/out.db", "out", **self.options)


def _run(target: Crashing, batches: dict[int, Batch], kill_at: int | None) -> None:
    context = RunContext(cast(Any, None), "", "job", "run", target.directory, target.directory)
    keeps_versions = target.mode == HISTORY
    schema = pa.schema([*_SCHEMA, ("valid_from", _TIME), ("valid_to", _TIME)]) if keeps_versions else _SCHEMA
    writer = target.sink().writer(schema, "update" if target.mode == CORRECTING else target.mode, context)
    if kill_at is not None:
        _kill_at(kill_at, str(target.directory))
    for number, tasks in batches.items():
        tables = [pa.table(dict(zip(_SCHEMA.names, zip(*rows, strict=True), strict=True)), _SCHEMA) for rows in tasks]
        if keeps_versions:
            tables = [_updates(number, table) for table in tables]
        rows = cast(Any, LocalRows(*tables))
        if target.mode == CORRECTING and number:
            writer.correct(MicroBatch(rows, f"late-{QUERY}", number), _SUMS)
        else:
            writer.write(MicroBatch(rows, QUERY, number))
    if kill_at is not None:
        _steps.step()  # written, and Spark has not heard of it


def _updates(number: int, rows: pa.Table) -> pa.Table:
    columns = {"_op": "u", "_ts": pa.scalar(number * 1_000_000, _TIME), "_partition": 0}
    for name, value in columns.items():
        rows = rows.append_column(name, pa.array([value] * rows.num_rows, _TIME if name == "_ts" else None))
    return rows.append_column("_offset", pa.array(range(rows.num_rows)))


class _Steps:
    left: int = -1

    def step(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


_steps: Final = _Steps()


def _kill_at(step: int, directory: str) -> None:
    _steps.left = step

    def touched(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _TOUCHES and str(arguments[0]).startswith(directory):
            _steps.step()

    sys.addaudithook(touched)
    for owner, name in _durable():
        setattr(owner, name, _between(getattr(owner, name)))


def _durable() -> list[tuple[Any, str]]:
    """What these libraries do to files is not seen by Python."""
    import deltalake
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine.default import DefaultDialect

    return [
        (pa.parquet.ParquetWriter, "close"),
        (deltalake.DeltaTable, "create_write_transaction"),
        (deltalake.table.TableMerger, "execute"),
        (SqlCatalog, "commit_table"),
        (DefaultDialect, "do_execute"),
        (DefaultDialect, "do_executemany"),
        (DefaultDialect, "do_commit"),
    ]


def _between(function: Callable[..., Any]) -> Callable[..., Any]:
    def between(*arguments: Any, **options: Any) -> Any:
        _steps.step()
        result = function(*arguments, **options)
        _steps.step()
        return result

    return between
