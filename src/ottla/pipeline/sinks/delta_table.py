"""Delta tables without a jar: tasks write Parquet, the driver commits by delta-rs.

Each commit carries the transaction (application `ottla-<query id>`, version = number of the micro-batch) of Delta's
protocol, so that a repeated micro-batch is recognised, also by a driver that was thought dead: its commit conflicts.

Source: Delta transaction log protocol, "Transaction Identifiers", "Add File".
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.context import Outputs, RunContext, path_from
from ottla.pipeline.sinks.base import COMPACT_EVERY, SinkError
from ottla.pipeline.sinks.changes import Changes
from ottla.pipeline.sinks.fitting import check_fit
from ottla.pipeline.sinks.intervals import Key, Last
from ottla.pipeline.sinks.names import column_names
from ottla.pipeline.sinks.parquet_statistics import column_statistics
from ottla.pipeline.sinks.staging import Layout, StagedFile, as_text
from ottla.pipeline.sinks.table_sink import FileTableSink, Notes, Version, compacted
from ottla.pipeline.sinks.versions import VersionedChanges, Versions, last_versions

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.table import TableMerger
    from pyspark.sql import DataFrame

_FILES: Final = "data"
"""The directory of the files, below the table's."""
_REMOVED: Final = "__ottla_removed"
"""The column of merged rows that is true for those to remove, or to end."""


@dataclass(frozen=True, slots=True)
class DeltaSink(FileTableSink):
    """A Delta table as an output. See `delta`."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        return f"Delta table {self.path}"

    def renamed(self, suffix: str) -> "DeltaSink":
        return replace(self, path=f"{self.path.rstrip('/')}-{suffix}")

    def last_batch(self, query_id: str, outputs: Outputs) -> int | None:
        """By the transaction of the query's application in the table's log."""
        uri = outputs.path(self.path)
        if not _deltalake().DeltaTable.is_deltatable(uri, storage_options=dict(self.options) or None):
            return None
        return self.load(uri).last_batch(query_id)

    def read(self, context: RunContext) -> "DataFrame":
        """The newest version, by way of this process's memory. Raises SinkError if there is no table yet."""
        return context.spark.createDataFrame(self.open(context.path(self.path)).to_pyarrow_table())

    def newest_snapshot(self, context: RunContext) -> str:
        table = self.open(context.path(self.path))
        return f"{table.metadata().id}@{table.version()}"

    def rows_of(self, context: RunContext, snapshot: str) -> pa.Table:
        deltalake, (uuid, _, number) = _deltalake(), snapshot.partition("@")
        table = self.open(context.path(self.path))
        if str(table.metadata().id) != uuid:
            raise SinkError(f"{self.describe()} was deleted and made anew: its version {number} is gone")
        try:
            table.load_as_version(int(number))
            return table.to_pyarrow_table()
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise SinkError(f"{self.describe()} has no version {number} any longer (vacuum): {error}") from error

    def compact(self, directory: Path) -> str:
        """Rewrite small files as large ones in one commit; readers and writers go on meanwhile.

        The small ones stay for readers of older versions; Delta's vacuum removes them.
        """
        return self.load(path_from(directory, self.path)).compact()

    def open(self, uri: str) -> "DeltaTable":
        """Raises SinkError if there is no such table."""
        deltalake = _deltalake()
        try:
            table: DeltaTable = deltalake.DeltaTable(uri, storage_options=dict(self.options) or None)
        except deltalake.exceptions.TableNotFoundError as error:
            raise SinkError(f"{self.describe()} is not there yet") from error
        return table

    def load(self, uri: str) -> "DeltaVersion":
        """The newest version of the table. Raises SinkError if there is no such table."""
        return DeltaVersion(self, self.open(uri))

    def conflict(self) -> type[Exception]:
        error: type[Exception] = _deltalake().exceptions.CommitFailedError
        return error

    def prepared(self, schema: pa.Schema, context: RunContext) -> "tuple[Layout, Callable[[], DeltaVersion]]":
        deltalake, uri = _deltalake(), context.path(self.path)
        options = dict(self.options) or None
        if not deltalake.DeltaTable.is_deltatable(uri, storage_options=options):
            deltalake.DeltaTable.create(
                uri, schema, mode="ignore", partition_by=list(self.partition_by), storage_options=options
            )
        table = self.open(uri)
        check_fit(pa.schema(table.schema().to_arrow()), schema, self.describe())
        found = tuple(table.metadata().partition_columns)
        self.check_partitions(found, ", ".join(found))
        in_file = tuple(name for name in schema.names if name not in self.partition_by)
        return Layout(DeltaStorage(uri, self.options), schema, in_file, self.partition_by), partial(self.load, uri)


def delta(
    path: str,
    *,
    partition_by: str | Sequence[str] = (),
    key: str | Sequence[str] = (),
    compact_every: int | None = COMPACT_EVERY,
    **options: str,
) -> DeltaSink:
    """A Delta table, made if it is not there; each micro-batch is one version of it, once.

    A relative path is meant from the job file's directory; an address (`s3://...`) goes to delta-rs with `options`.
    With a `key`, rows take the place of those with the same key (what mode `update` needs; the rows of a micro-batch
    pass through the driver's memory then). Mode `complete` replaces the whole table. Small files are compacted after
    every `compact_every` micro-batches; None: never.
    """
    return DeltaSink(
        path, options, key=column_names(key), partition_by=column_names(partition_by), compact_every=compact_every
    )


@dataclass(frozen=True, slots=True)
class DeltaStorage:
    """Staged files lie in the table's own directory: Delta's readers know only what its log names."""

    uri: str
    options: Mapping[str, str]

    def open(self) -> tuple[fs.FileSystem, str]:
        """The table's file system, and the directory of its files there."""
        if "://" not in self.uri:
            return fs.LocalFileSystem(), f"{self.uri}/{_FILES}"
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options))), _FILES


class DeltaVersion(Version):
    """The newest version of a Delta table."""

    def __init__(self, sink: DeltaSink, table: "DeltaTable") -> None:
        self._sink = sink
        self._table = table

    def last_batch(self, query_id: str) -> int | None:
        return self._table.transaction_version(_application(query_id))

    def truncated(self, query_id: str) -> int | None:
        return self._table.transaction_version(_truncated(query_id))

    def known(self, changes: VersionedChanges) -> dict[Key, Last]:
        import pyarrow.compute as pc

        first, keys = changes.key[0], changes.keys
        wanted = pc.field(VALID_TO).is_null() if changes.truncates else None
        if keys.num_rows:
            some = pc.field(first).isin(keys[first].combine_chunks())
            wanted = some if wanted is None else wanted | some
        columns = [*changes.key, VALID_FROM, VALID_TO]
        assert wanted is not None, "changes have keys, or are truncates"
        found = self._rows(columns, wanted, keys.schema.field(first).type)
        schema = pa.schema([changes.schema.field(name) for name in columns])
        return last_versions(found.cast(schema), changes.key)

    def written(self, keys: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        import pyarrow.compute as pc

        first = self._sink.key[0]
        wanted = pc.field(first).isin(keys[first].combine_chunks())
        return self._rows(list(columns), wanted, keys.schema.field(first).type)

    def _rows(self, columns: list[str], wanted: Any, kind: Any) -> pa.Table:
        """These columns of the rows for which an expression holds, which compares values of the type `kind`.

        Statistics of text and of bytes in files that delta-rs has merged have a type that Arrow cannot compare, so that
        every file is read then.
        """
        dataset = self._table.to_pyarrow_dataset()
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)):
            return dataset.to_table(columns=columns, filter=wanted)
        found = [pa.Table.from_batches([each]).filter(wanted) for each in dataset.to_batches(columns=columns)]
        return pa.concat_tables([dataset.schema.empty_table().select(columns), *found])

    def add(self, files: list[StagedFile], notes: Notes, *, replaces: bool) -> None:
        partition_by = list(self._sink.partition_by)
        self._table.create_write_transaction(
            [_add_action(partition_by, file) for file in files],
            "overwrite" if replaces else "append",
            self._table.schema(),
            partition_by,
            commit_properties=_commit_properties(notes),
        )

    def merge(self, changes: Changes, notes: Notes) -> None:
        merger = self._merger(changes.removed, changes.put, "", notes)
        is_put = f"changed.{_quoted(_REMOVED)} = false"
        merger = merger.when_matched_delete(f"changed.{_quoted(_REMOVED)} = true")
        merger = merger.when_matched_update_all(is_put, except_cols=[_REMOVED])
        merger.when_not_matched_insert_all(is_put, except_cols=[_REMOVED]).execute()

    def add_versions(self, versions: Versions, notes: Notes) -> None:
        if not versions.num_rows:
            self.add([], notes, replaces=False)
            return
        is_open = f" AND changed.{_quoted(_REMOVED)} = true AND kept.{_quoted(VALID_TO)} IS NULL"
        merger = self._merger(versions.ended, versions.added, is_open, notes)
        merger = merger.when_matched_update({_quoted(VALID_TO): f"changed.{_quoted(VALID_TO)}"})
        merger.when_not_matched_insert_all(f"changed.{_quoted(_REMOVED)} = false", except_cols=[_REMOVED]).execute()

    def compact(self) -> str:
        figures = self._table.optimize.compact()
        return compacted(figures["numFilesRemoved"], figures["numFilesAdded"])

    def _merger(self, removed: pa.Table, put: pa.Table, more: str, notes: Notes) -> "TableMerger":
        """Rows, flagged by `_REMOVED`, beside those with the same key; `more`: further conditions for that."""
        flagged = [
            rows.append_column(_REMOVED, pa.array([flag] * rows.num_rows, pa.bool_()))
            for rows, flag in ((put, False), (removed, True))
        ]
        return self._table.merge(
            pa.concat_tables(flagged, promote_options="default"),
            " AND ".join(f"kept.{_quoted(name)} = changed.{_quoted(name)}" for name in self._sink.key) + more,
            source_alias="changed",
            target_alias="kept",
            commit_properties=_commit_properties(notes),
        )


def _application(query_id: str) -> str:
    return f"ottla-{query_id}"


def _truncated(query_id: str) -> str:
    """The application whose version is when the captured table was truncated last, in microseconds since 1970."""
    return f"{_application(query_id)}-truncated"


def _commit_properties(notes: Notes) -> Any:
    from deltalake.transaction import CommitProperties, Transaction

    now_ms = int(time.time() * 1000)
    noted = [Transaction(_application(notes.query_id), notes.number, now_ms)]
    if notes.truncated is not None:
        noted.append(Transaction(_truncated(notes.query_id), notes.truncated, now_ms))
    return CommitProperties(custom_metadata={"ottla.batch": str(notes.number)}, app_transactions=noted)


def _add_action(partition_by: Sequence[str], file: StagedFile) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(
        path=f"{_FILES}/{file.path}",
        size=file.size_bytes,
        partition_values=dict(zip(partition_by, map(as_text, file.partition), strict=True)),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(column_statistics(file.metadata)),
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ModuleNotFoundError as error:
        raise SinkError("Delta tables need a package: in a checkout of Ottla, pip install '.[pipeline]'") from error
    return deltalake
