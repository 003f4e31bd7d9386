"""Delta tables without a jar: tasks write Parquet, the driver commits by delta-rs.

Each commit carries the transaction (application `ottla-<query id>`, version = number of the micro-batch) of Delta's
protocol, so that a repeated micro-batch is recognised, also by a driver that was thought dead: its commit conflicts.

Source: Delta transaction log protocol, "Transaction Identifiers", "Add File".
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.context import CHANGES, HISTORY, Outputs, QuerySpec, RunContext, path_from
from ottla.pipeline.sinks.base import COMMIT_ATTEMPTS, COMPACT_EVERY, SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches
from ottla.pipeline.sinks.changes import Changes, reduced
from ottla.pipeline.sinks.fitting import check_fit, check_key, check_partitioning, table_of
from ottla.pipeline.sinks.intervals import Key, Last
from ottla.pipeline.sinks.names import column_names
from ottla.pipeline.sinks.parquet_statistics import column_statistics
from ottla.pipeline.sinks.staging import Layout, StagedFile, as_text, discard, leftovers, stage
from ottla.pipeline.sinks.versions import VersionedChanges, last_versions

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_FILES: Final = "data"
"""The directory of the files, below the table's."""
_REMOVED: Final = "__ottla_removed"
"""The column of merged rows that is true for those to remove."""


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A Delta table as an output. See `delta`."""

    path: str
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    compact_every: int | None = COMPACT_EVERY
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_versions(self) -> bool:
        """Whether rows can be ended in it (`Job.apply_changes`, `history="all"`)."""
        return True

    def describe(self) -> str:
        return f"Delta table {self.path}"

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        """Raises SinkError if the table has other columns or partitions, or a key is missing."""
        schema, key = table_of(rows.schema, query.mode, self.key, self.describe())
        writer = replace(self, key=key).writer(schema, query.mode, query.context)
        return start_batches(rows, query, writer.write)

    def writer(self, schema: pa.Schema, mode: str, context: RunContext) -> "DeltaWriter":
        """What writes micro-batches of such rows; the table is made if missing. Raises SinkError as `start`."""
        check_partitioning(schema, self.partition_by, self.describe())
        check_key(schema, self.key, mode, self.describe())
        uri = context.path(self.path)
        self._prepare(uri, schema)
        in_file = tuple(name for name in schema.names if name not in self.partition_by)
        layout = Layout(DeltaStorage(uri, self.options), schema, in_file, self.partition_by)
        return DeltaWriter(
            self, uri, layout, replaces=mode == "complete", deletes=mode == CHANGES, versions=mode == HISTORY
        )

    def renamed(self, suffix: str) -> "DeltaSink":
        return replace(self, path=f"{self.path.rstrip('/')}-{suffix}")

    def last_batch(self, query_id: str, outputs: Outputs) -> int | None:
        """By the transaction of the query's application in the table's log."""
        uri = outputs.path(self.path)
        if not _deltalake().DeltaTable.is_deltatable(uri, storage_options=dict(self.options) or None):
            return None
        return self.open(uri).transaction_version(_application(query_id))

    def read(self, context: RunContext) -> "DataFrame":
        """The newest version, by way of this process's memory. Raises SinkError if there is no table yet."""
        return context.spark.createDataFrame(self.open(context.path(self.path)).to_pyarrow_table())

    def compact(self, directory: Path) -> str:
        """Rewrite small files as large ones in one commit; readers and writers go on meanwhile.

        The small ones stay for readers of older versions; Delta's vacuum removes them.
        """
        return compact(self.open(path_from(directory, self.path)))

    def open(self, uri: str) -> "DeltaTable":
        """Raises SinkError if there is no such table."""
        deltalake = _deltalake()
        try:
            table: DeltaTable = deltalake.DeltaTable(uri, storage_options=dict(self.options) or None)
        except deltalake.exceptions.TableNotFoundError as error:
            raise SinkError(f"{self.describe()} is not there yet") from error
        return table

    def _prepare(self, uri: str, schema: pa.Schema) -> None:
        deltalake = _deltalake()
        options = dict(self.options) or None
        if not deltalake.DeltaTable.is_deltatable(uri, storage_options=options):
            deltalake.DeltaTable.create(
                uri, schema, mode="ignore", partition_by=list(self.partition_by), storage_options=options
            )
        table = self.open(uri)
        check_fit(pa.schema(table.schema().to_arrow()), schema, self.describe())
        found = tuple(table.metadata().partition_columns)
        if found != self.partition_by:
            raise SinkError(
                f"{self.describe()} is partitioned by {', '.join(found) or 'nothing'}, "
                f"the job asks for {', '.join(self.partition_by) or 'no partitions'}: write to another table"
            )


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
    return DeltaSink(path, column_names(partition_by), column_names(key), compact_every, options)


def compact(table: "DeltaTable") -> str:
    """A phrase that describes the result."""
    figures = table.optimize.compact()
    removed, added = figures["numFilesRemoved"], figures["numFilesAdded"]
    return f"{removed} files became {added}" if removed else "no small files"


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


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Writes micro-batches into a table. `replaces`: each takes the place of all rows; `deletes`: rows are changes of a
    captured table, deletes among them; `versions`: the same, and all versions are kept."""

    sink: DeltaSink
    uri: str
    layout: Layout
    replaces: bool
    deletes: bool
    versions: bool = False

    def write(self, batch: MicroBatch) -> None:
        """One micro-batch in one commit, or just its computation if it is in the table already."""
        if _is_recorded(self.sink.open(self.uri), batch):
            batch.run()
            return
        if self.versions:
            self._add_versions(batch)
        elif self.sink.key and not self.replaces:
            self._merge(batch)
        else:
            self._add(batch)
        every = self.sink.compact_every
        if every is not None and batch.number % every == every - 1:
            try:
                compact(self.sink.open(self.uri))
            except _deltalake().exceptions.CommitFailedError:
                log.info("%s: another writer was at it; the next compaction takes these files", self.sink.describe())

    def _add(self, batch: MicroBatch) -> None:
        layout = self.layout
        files = stage(batch, layout)
        if not files and not self.replaces:
            return
        actions = [_add_action(layout, file) for file in files]

        def change(table: "DeltaTable") -> None:
            table.create_write_transaction(
                actions,
                "overwrite" if self.replaces else "append",
                table.schema(),
                list(layout.partition_by),
                commit_properties=_commit_properties(batch),
            )

        paths = [file.path for file in files]
        if self._commit_once(batch, change):
            discard(layout.storage, leftovers(layout.storage, batch, paths))
        else:
            discard(layout.storage, paths)  # a driver that was thought dead has done it

    def _merge(self, batch: MicroBatch) -> None:
        key = self.sink.key
        rows, schema = batch.rows.toArrow(), self.layout.schema
        changes = reduced(rows, schema, key, self.sink.describe(), deletes=self.deletes)
        if not changes.num_rows:
            return
        merged = _flagged(changes)

        def change(table: "DeltaTable") -> None:
            merger = table.merge(
                merged,
                " AND ".join(f"kept.{_quoted(name)} = changed.{_quoted(name)}" for name in key),
                source_alias="changed",
                target_alias="kept",
                commit_properties=_commit_properties(batch),
            )
            is_put = f"changed.{_quoted(_REMOVED)} = false"
            merger = merger.when_matched_delete(f"changed.{_quoted(_REMOVED)} = true")
            merger = merger.when_matched_update_all(is_put, except_cols=[_REMOVED])
            merger.when_not_matched_insert_all(is_put, except_cols=[_REMOVED]).execute()

        self._commit_once(batch, change)

    def _add_versions(self, batch: MicroBatch) -> None:
        key, schema = self.sink.key, self.layout.schema
        changes = VersionedChanges.of(batch.rows.toArrow(), schema, key, self.sink.describe())
        if changes.is_empty:
            return

        def change(table: "DeltaTable") -> None:
            truncated = table.transaction_version(_truncated(batch))
            versions = changes.versions(_known_versions(table, changes), truncated)
            newest = max([*changes.truncates, *([] if truncated is None else [truncated])], default=None)
            properties = _commit_properties(batch, newest)
            if not versions.num_rows:
                table.create_write_transaction(
                    [], "append", table.schema(), list(self.layout.partition_by), commit_properties=properties
                )
                return
            ended = versions.ended.append_column(_REMOVED, pa.array([True] * versions.ended.num_rows, pa.bool_()))
            added = versions.added.append_column(_REMOVED, pa.array([False] * versions.added.num_rows, pa.bool_()))
            same = " AND ".join(f"kept.{_quoted(name)} = changed.{_quoted(name)}" for name in key)
            is_ended = f"changed.{_quoted(_REMOVED)} = true"
            merger = table.merge(
                pa.concat_tables([ended, added], promote_options="default"),
                f"{same} AND {is_ended} AND kept.{_quoted(VALID_TO)} IS NULL",
                source_alias="changed",
                target_alias="kept",
                commit_properties=properties,
            )
            merger = merger.when_matched_update({_quoted(VALID_TO): f"changed.{_quoted(VALID_TO)}"})
            merger.when_not_matched_insert_all(f"changed.{_quoted(_REMOVED)} = false", except_cols=[_REMOVED]).execute()

        self._commit_once(batch, change)

    def _commit_once(self, batch: MicroBatch, change: "Callable[[DeltaTable], None]") -> bool:
        """False if the micro-batch is in the table already. After a conflict both are asked and done anew."""
        attempts_left = COMMIT_ATTEMPTS
        while True:
            table = self.sink.open(self.uri)
            if _is_recorded(table, batch):
                return False
            try:
                change(table)
                return True
            except _deltalake().exceptions.CommitFailedError:
                attempts_left -= 1
                if not attempts_left:
                    raise


def _flagged(changes: Changes) -> pa.Table:
    """All changes in one table, with a column that is true for rows to remove."""
    flagged = [
        rows.append_column(_REMOVED, pa.array([removed] * rows.num_rows, pa.bool_()))
        for rows, removed in ((changes.put, False), (changes.removed, True))
    ]
    return pa.concat_tables(flagged, promote_options="default")


def _known_versions(table: "DeltaTable", changes: VersionedChanges) -> dict[Key, Last]:
    """The newest versions of the changed keys, and all open ones if the captured table was truncated."""
    import pyarrow.compute as pc

    first, keys = changes.key[0], changes.keys
    wanted = pc.field(VALID_TO).is_null() if changes.truncates else None
    if keys.num_rows:
        some = pc.field(first).isin(keys[first].combine_chunks())
        wanted = some if wanted is None else wanted | some
    columns = [*changes.key, VALID_FROM, VALID_TO]
    found = table.to_pyarrow_dataset().to_table(columns=columns, filter=wanted)
    schema = pa.schema([changes.schema.field(name) for name in columns])
    return last_versions(found.cast(schema), changes.key)


def _is_recorded(table: "DeltaTable", batch: MicroBatch) -> bool:
    last = table.transaction_version(_application(batch.query_id))
    return last is not None and last >= batch.number


def _application(query_id: str) -> str:
    return f"ottla-{query_id}"


def _truncated(batch: MicroBatch) -> str:
    """The application whose version is when the captured table was truncated last, in microseconds since 1970."""
    return f"{_application(batch.query_id)}-truncated"


def _commit_properties(batch: MicroBatch, truncated: int | None = None) -> Any:
    from deltalake.transaction import CommitProperties, Transaction

    now_ms = int(time.time() * 1000)
    noted = [Transaction(_application(batch.query_id), batch.number, now_ms)]
    if truncated is not None:
        noted.append(Transaction(_truncated(batch), truncated, now_ms))

    return CommitProperties(
        custom_metadata={"ottla.batch": str(batch.number)},
        app_transactions=noted,
    )


def _add_action(layout: Layout, file: StagedFile) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(
        path=f"{_FILES}/{file.path}",
        size=file.size_bytes,
        partition_values=dict(zip(layout.partition_by, map(as_text, file.partition), strict=True)),
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
