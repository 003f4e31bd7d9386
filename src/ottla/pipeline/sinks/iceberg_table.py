"""Iceberg tables without a jar: tasks write Parquet, the driver commits by PyIceberg.

The table's property `ottla.<query id>` holds the number of the last micro-batch and changes in the same commit as the
rows, so that a repeated micro-batch is recognised. A commit that meets another one is begun again, and asks anew.

Source: Iceberg table specification, "Commit Conflict Resolution and Retry", "Column Projection" (name mapping).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from pyarrow import fs

from ottla.pipeline.context import CHANGES, HISTORY, Outputs, QuerySpec, RunContext
from ottla.pipeline.sinks.base import COMMIT_ATTEMPTS, COMPACT_EVERY, SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches
from ottla.pipeline.sinks.changes import reduced
from ottla.pipeline.sinks.fitting import check_fit, check_key, check_partitioning, table_of
from ottla.pipeline.sinks.names import column_names, with_suffix
from ottla.pipeline.sinks.staging import Layout, discard, leftovers, stage
from ottla.pipeline.sinks.versions import VersionedChanges

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_NAME_MAPPING: Final = "schema.name-mapping.default"
"""Our files name their columns and do not number them."""


@dataclass(frozen=True, slots=True)
class IcebergSink:
    """An Iceberg table as an output. See `iceberg`."""

    table: str
    catalog: str = "default"
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    compact_every: int | None = COMPACT_EVERY
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_versions(self) -> bool:
        """Whether rows can be ended in it (`Job.apply_changes`, `history="all"`)."""
        return True

    def describe(self) -> str:
        return f"Iceberg table {self.table}"

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        """Raises SinkError if the table has other columns or partitions, or a key is missing."""
        schema, key = table_of(rows.schema, query.mode, self.key, self.describe())
        writer = replace(self, key=key).writer(schema, query.mode, query.context)
        return start_batches(rows, query, writer.write)

    def writer(self, schema: pa.Schema, mode: str, _context: RunContext) -> "IcebergWriter":
        """What writes micro-batches of such rows; the table is made if missing. Raises SinkError as `start`."""
        check_partitioning(schema, self.partition_by, self.describe())
        check_key(schema, self.key, mode, self.describe())
        table = self._prepare(schema)
        storage = IcebergStorage(f"{table.location().rstrip('/')}/data", dict(table.io.properties))
        return IcebergWriter(
            self, storage, schema, replaces=mode == "complete", deletes=mode == CHANGES, versions=mode == HISTORY
        )

    def renamed(self, suffix: str) -> "IcebergSink":
        return replace(self, table=with_suffix(self.table, suffix))

    def last_batch(self, query_id: str, _outputs: Outputs) -> int | None:
        """By the table's property of the query."""
        catalog = self._catalog()
        if not catalog.table_exists(self.table):
            return None
        noted = catalog.load_table(self.table).properties.get(property_of(query_id))
        return None if noted is None else int(noted)

    def read(self, context: RunContext) -> "DataFrame":
        """The newest snapshot, by way of this process's memory. Raises SinkError if there is no table yet."""
        return context.spark.createDataFrame(self.open().scan().to_arrow())

    def compact(self, _directory: Path) -> str:
        """Rewrite small files as large ones, a snapshot for each large one; readers and writers go on meanwhile."""
        from ottla.pipeline.sinks.iceberg_rewrite import compact

        return compact(self.open)

    def open(self) -> "Table":
        """Raises SinkError if there is no such table."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog().load_table(self.table)
        except NoSuchTableError as error:
            raise SinkError(f"{self.describe()} is not there yet") from error

    def _catalog(self) -> "Catalog":
        try:
            from pyiceberg.catalog import load_catalog
        except ModuleNotFoundError as error:
            raise SinkError("Iceberg needs a package: in a checkout of Ottla, pip install '.[pipeline]'") from error
        try:
            return load_catalog(self.catalog, **self.properties)
        except ValueError as error:
            raise SinkError(
                f"{self.describe()}: the catalog '{self.catalog}' cannot be opened: {error}. "
                "Name it in .pyiceberg.yaml, or give its properties, such as uri=..., warehouse=..."
            ) from error

    def _prepare(self, schema: pa.Schema) -> "Table":
        catalog = self._catalog()
        if not catalog.table_exists(self.table):
            self._create(catalog, schema)
        table = catalog.load_table(self.table)
        check_fit(table.schema().as_arrow(), schema, self.describe())
        found = tuple(table.schema().find_column_name(each.source_id) or "?" for each in table.spec().fields)
        if found != self.partition_by or not all(str(each.transform) == "identity" for each in table.spec().fields):
            raise SinkError(
                f"{self.describe()} is partitioned by {', '.join(map(str, table.spec().fields)) or 'nothing'}, "
                f"the job asks for {', '.join(self.partition_by) or 'no partitions'}: write to another table"
            )
        if table.name_mapping() is None:
            with table.transaction() as transaction:
                transaction.set_properties({_NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
        return table

    def _create(self, catalog: "Catalog", schema: pa.Schema) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        namespace = self.table.rpartition(".")[0]
        if not namespace:
            raise SinkError(f"{self.describe()} has no namespace: name it as in 'flights.delays'")
        catalog.create_namespace_if_not_exists(namespace)
        try:
            with (
                catalog.create_table_transaction(self.table, schema) as transaction,
                transaction.update_spec() as spec,
            ):
                for name in self.partition_by:
                    spec.add_identity(name)
        except (TableAlreadyExistsError, CommitFailedException):
            if not catalog.table_exists(self.table):  # another flow was quicker
                raise


def iceberg(
    table: str,
    *,
    catalog: str = "default",
    partition_by: str | Sequence[str] = (),
    key: str | Sequence[str] = (),
    compact_every: int | None = COMPACT_EVERY,
    **properties: str,
) -> IcebergSink:
    """An Iceberg table `namespace.name`, made if it is not there; each micro-batch is one commit, once.

    `catalog` is one of `.pyiceberg.yaml`, or made of `properties` (PyIceberg's: `uri="sqlite:////data/catalog.db",
    warehouse="file:///data"`). With a `key`, rows take the place of those with the same key (what mode `update` needs;
    the rows of a micro-batch pass through the driver's memory then). Mode `complete` replaces the whole table.
    Partitions are by value (identity). Small files are compacted after every `compact_every` micro-batches; None:
    never.
    """
    return IcebergSink(table, catalog, column_names(partition_by), column_names(key), compact_every, properties)


@dataclass(frozen=True, slots=True)
class IcebergStorage:
    """Staged files lie where the table's files do: Iceberg's readers know only what its manifests name."""

    location: str
    properties: Mapping[str, str]

    def open(self) -> tuple[fs.FileSystem, str]:
        """The table's file system, and the directory of its files there."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        files = PyArrowFileIO(dict(self.properties))
        scheme, host, path = files.parse_location(self.location, files.properties)
        return files.fs_by_scheme(scheme, host), path


def property_of(query_id: str) -> str:
    """The table's property with the last micro-batch of the query."""
    return f"ottla.{query_id}"


def commit_once(table: Callable[[], "Table"], batch: MicroBatch, change: Callable[["Transaction"], None]) -> bool:
    """Change the table and note the micro-batch in one commit; False if that has been done before.

    `change` is called again when another commit came first.
    """
    name = property_of(batch.query_id)

    def change_and_note(transaction: "Transaction") -> bool | None:
        if int(transaction.table_metadata.properties.get(name, -1)) >= batch.number:
            return None
        change(transaction)
        transaction.set_properties({name: str(batch.number)})
        return True

    return commit_anew(table, change_and_note) is not None


def commit_anew(table: Callable[[], "Table"], change: Callable[["Transaction"], T | None]) -> T | None:
    """Commit what `change` does, unless that is None; on a conflict, load the table again and do it anew."""
    from pyiceberg.exceptions import CommitFailedException

    attempts_left = COMMIT_ATTEMPTS
    while True:
        transaction = _without_blind_retries(table()).transaction()
        try:
            changed = change(transaction)
            if changed is not None:
                transaction.commit_transaction()
            return changed
        except CommitFailedException:
            attempts_left -= 1
            if not attempts_left:
                raise


def _without_blind_retries(table: "Table") -> "Table":
    """PyIceberg repeats a commit on top of whatever came in between, which may be the same micro-batch."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writes micro-batches into a table. `replaces`: each takes the place of all rows; `deletes`: rows are changes of a
    captured table, deletes among them; `versions`: the same, and all versions are kept."""

    sink: IcebergSink
    storage: IcebergStorage
    schema: pa.Schema
    replaces: bool
    deletes: bool
    versions: bool = False

    def write(self, batch: MicroBatch) -> None:
        """One micro-batch in one commit, or just its computation if it is in the table already."""
        from ottla.pipeline.sinks.iceberg_rewrite import compact

        if int(self.sink.open().properties.get(property_of(batch.query_id), -1)) >= batch.number:
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
            compact(self.sink.open)

    def _add(self, batch: MicroBatch) -> None:
        from ottla.pipeline.sinks.iceberg_rewrite import remove_all

        layout = Layout(self.storage, self.schema, tuple(self.schema.names), self.sink.partition_by)
        files = [file.path for file in stage(batch, layout)]
        if not files and not self.replaces:
            return
        notes = _notes(batch)

        def change(transaction: "Transaction") -> None:
            if self.replaces:
                remove_all(transaction, notes)
            if files:
                paths = [f"{self.storage.location}/{path}" for path in files]
                transaction.add_files(paths, snapshot_properties=notes, check_duplicate_files=False)

        if commit_once(self.sink.open, batch, change):
            discard(self.storage, leftovers(self.storage, batch, files))
        else:
            discard(self.storage, files)  # a driver that was thought dead has done it

    def _merge(self, batch: MicroBatch) -> None:
        from ottla.pipeline.sinks.iceberg_rewrite import apply

        rows, key = batch.rows.toArrow(), self.sink.key
        changes = reduced(rows, self.schema, key, self.sink.describe(), deletes=self.deletes)
        if changes.num_rows:
            change = partial(apply, changes=changes, key=key, notes=_notes(batch))
            commit_once(self.sink.open, batch, change)

    def _add_versions(self, batch: MicroBatch) -> None:
        from ottla.pipeline.sinks.iceberg_rewrite import add_versions

        rows, key = batch.rows.toArrow(), self.sink.key
        changes = VersionedChanges.of(rows, self.schema, key, self.sink.describe())
        name = f"{property_of(batch.query_id)}.truncated"

        def change(transaction: "Transaction") -> None:
            noted = transaction.table_metadata.properties.get(name)
            truncated = None if noted is None else int(noted)
            add_versions(transaction, changes, truncated, _notes(batch))
            if changes.truncates:
                newest = max([*changes.truncates, *([] if truncated is None else [truncated])])
                transaction.set_properties({name: str(newest)})

        if not changes.is_empty:
            commit_once(self.sink.open, batch, change)


def _notes(batch: MicroBatch) -> dict[str, str]:
    return {"ottla.query": batch.query_id, "ottla.batch": str(batch.number)}
