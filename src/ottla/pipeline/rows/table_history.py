"""A table of all versions, as `apply_changes(..., history="all")` writes it, to join streams with as of the time of
each row: Delta or Iceberg.

One snapshot of the table is read when the run starts for the first time, by the driver, into the same sorted files as
the history of a topic (`version_store`). The run keeps to that snapshot (`context.Pins`, in run.json), so that it gives
the same rows however often a micro-batch is done, and however the table is rewritten meanwhile. A start with
`--newest-tables` takes a newer one, provided that it agrees about the time that the old one knew.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.rows.table_versions import NoVersionsError, changes_of
from ottla.pipeline.rows.version_reader import TableSource
from ottla.pipeline.rows.version_runs import AT, OP
from ottla.pipeline.rows.version_store import HistoryError, Snapshot
from ottla.pipeline.sinks.base import SinkError, Snapshots
from ottla.pipeline.times import time_text

HISTORIES: Final = "history"
"""The directory below a run's home."""
START: Final = "start"
"""The value of `until` for a table that had all changes when the run took its snapshot."""
_PREFIX: Final = "table-"
_COLUMNS: Final = "table.json"
"""The columns, in the directory of the versions; it is written last."""
_SNAPSHOT: Final = "snapshot"
_KEPT_AS: Final = "kept_as"
_TAKEN_US: Final = "taken_us"
_KNOWN_UNTIL: Final = "known_until_us"


@dataclass(frozen=True, slots=True)
class TableHistory:
    """See `history`. `since_us` and `until_us` are in microseconds since 1970, `delay_us` in microseconds."""

    table: Snapshots
    keys: tuple[str, ...]
    delay_us: int
    since_us: int | None = None
    until_us: int | None = None
    until_start: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return f"history of {self.table.describe()}"

    def read(self, context: RunContext) -> tuple[TableSource, Any]:
        """What `Versions` are made of: the source of the versions, and the table's columns. Raises JobError."""
        pins, name = context.tables, f"{self.table.describe()} by {', '.join(self.keys)}"
        if pins.is_first_use():
            _remove_unused(context, {str(pin[_KEPT_AS]) for pin in pins.known.values()})
        before = pins.of(name)
        pin = self._newest(context) if before is None or pins.is_due(name) else before
        kept_as = self._keep(context, pin)
        source, columns, snapshot = self._opened(context, pin, kept_as)
        if before is not None and before[_SNAPSHOT] != pin[_SNAPSHOT]:
            older = str(before[_KEPT_AS])
            if not _directory(context, older).exists():
                older = self._keep(context, before)
            self._check_same_past(self._opened(context, before, older)[2], snapshot, int(before[_KNOWN_UNTIL]))
        pins.keep(name, {**pin, _KNOWN_UNTIL: snapshot.settled, _KEPT_AS: kept_as})
        return source, columns

    def _newest(self, context: RunContext) -> dict[str, Any]:
        try:
            return {_SNAPSHOT: self.table.newest_snapshot(context), _TAKEN_US: time.time_ns() // 1000}
        except SinkError as error:
            raise JobError(f"{self}: {error}") from error

    def _keep(self, context: RunContext, pin: Mapping[str, Any]) -> str:
        """Have the versions of a snapshot in the files of the run; the name of their directory."""
        given = (self.describe(), pin[_SNAPSHOT], self.keys, self.delay_us, self.since_us, self._until(pin))
        kept_as = f"{_PREFIX}{hashlib.sha256(repr(given).encode()).hexdigest()[:16]}"
        directory = _directory(context, kept_as)
        if not (directory / _COLUMNS).exists():
            self._make(context, pin, directory)
        return kept_as

    def _opened(self, context: RunContext, pin: Mapping[str, Any], kept_as: str) -> tuple[TableSource, Any, Snapshot]:
        directory = _directory(context, kept_as)
        columns = (directory / _COLUMNS).read_text(encoding="utf-8")
        source = TableSource(str(self), str(directory), f"snapshot {_id_of(pin[_SNAPSHOT])}", columns, self.keys)
        snapshot = source.store().current()
        if snapshot is None:
            raise JobError(f"{self}: {directory} cannot be read: remove it, and start the run again")
        return source, StructType.fromJson(json.loads(columns)), snapshot

    def _make(self, context: RunContext, pin: Mapping[str, Any], directory: Path) -> None:
        """Read the snapshot, and keep its versions. The file that describes them is written last."""
        try:
            table = self.table.rows_of(context, pin[_SNAPSHOT])
        except SinkError as error:
            raise JobError(
                f"{self}: {error}. The run keeps to that snapshot; --newest-tables takes the newest, if the run has a "
                "copy to compare it with. Otherwise compute the output anew: ottla pipeline replay ... --newest-tables"
            ) from error
        own = self._columns(table.schema)
        try:
            columns = from_arrow_schema(own)
            schema: Any = to_arrow_schema(columns, timezone="UTC")
        except PySparkException as error:
            raise JobError(f"{self}: {error}") from error
        times = [pa.field(name, pa.timestamp("us", "UTC")) for name in (VALID_FROM, VALID_TO)]
        try:
            table = table.select([*own.names, VALID_FROM, VALID_TO]).cast(pa.schema([*schema, *times]))
            changes = changes_of(table, self.keys, self.since_us)
        except (NoVersionsError, pa.ArrowException) as error:
            raise JobError(f"{self}: {error}") from error
        if not changes.num_rows:
            raise JobError(f"{self}: the table has no version of a row yet: {_id_of(pin[_SNAPSHOT])} is empty")
        at = changes[AT].to_numpy()
        until = self._until(pin)
        source = TableSource(str(self), str(directory), "", columns.json(), self.keys)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with source.store().locked():
                since = int(at.min()) if self.since_us is None else self.since_us
                source.store().keep(changes, since, int(at.max()) - self.delay_us if until is None else until)
        except HistoryError as error:
            raise JobError(f"{self}: {error}") from error
        fresh = directory / f".{_COLUMNS}.new"
        fresh.write_text(columns.json(), encoding="utf-8")
        fresh.replace(directory / _COLUMNS)

    def _until(self, pin: Mapping[str, Any]) -> int | None:
        return int(pin[_TAKEN_US]) - self.delay_us if self.until_start else self.until_us

    def _columns(self, schema: pa.Schema) -> pa.Schema:
        """Those of the table without the two times. Raises JobError for a table without them, or without its key."""
        from ottla.pipeline.rows.history import check_key_type

        for name in (VALID_FROM, VALID_TO):
            if name not in schema.names or not pa.types.is_timestamp(schema.field(name).type):
                raise JobError(
                    f"{self}: the table has no time {name!r}, and a table of today's rows has no history: write it by "
                    "apply_changes(..., history='all')"
                )
        own = pa.schema([field for field in schema if field.name not in (VALID_FROM, VALID_TO)])
        for name in self.keys:
            if name not in own.names:
                raise JobError(f"{self}: its key has the column {name!r}, and the table has: {', '.join(own.names)}")
            check_key_type(str(self), name, from_arrow_schema(pa.schema([own.field(name)]))[name].dataType)
        return own

    def _check_same_past(self, older: Snapshot, newer: Snapshot, until: int) -> None:
        """Rows were joined with the older snapshot: the newer one has to tell the same of what that knew. Raises
        JobError."""
        names = [name for name in older.schema.names if name in newer.schema.names]
        one, other = (_past(each, until, names) for each in (older, newer))
        if not one.equals(other):
            raise JobError(
                f"{self}: its newest snapshot has other versions of the time before {time_text(until)} than the one "
                "that the run has joined rows with. Start without --newest-tables; or compute the output anew: "
                "ottla pipeline replay ... --newest-tables"
            )

    def __str__(self) -> str:
        return f"history({self.table.describe()})"


def _past(snapshot: Snapshot, until: int, names: list[str]) -> pa.Table:
    """The changes up to a time. Those of one snapshot are in one run, sorted by key and time."""
    (run,) = snapshot.runs
    chosen = np.flatnonzero(run.at <= until)
    return run.changes.select([*names, AT, OP]).take(pa.array(chosen)).combine_chunks()


def _directory(context: RunContext, kept_as: str) -> Path:
    return (context.home / HISTORIES / kept_as).absolute()


def _remove_unused(context: RunContext, used: set[str]) -> None:
    """What earlier starts of the run have left of snapshots that it no longer reads."""
    for directory in (context.home / HISTORIES).glob(f"{_PREFIX}*"):
        if directory.name not in used:
            shutil.rmtree(directory, ignore_errors=True)


def _id_of(snapshot: str) -> str:
    return snapshot.rpartition("@")[2]


def instant_us(text: str) -> int | None:
    """`2026-01-31T00:00:00Z` in microseconds since 1970; None for what is no time with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
