"""Iceberg tables without a jar: tasks write Parquet, the driver commits by PyIceberg.

The table's property `ottla.<query id>` holds the number of the last micro-batch and changes in the same commit as the
rows, so that a repeated micro-batch is recognised. A commit that meets another one is begun again, and asks anew.

Source: Iceberg table specification, "Commit Conflict Resolution and Retry", "Column Projection" (name mapping).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import fs

from ottla.pipeline.context import Outputs, RunContext
from ottla.pipeline.sinks.base import COMPACT_EVERY, SinkError
from ottla.pipeline.sinks.changes import Changes
from ottla.pipeline.sinks.fitting import check_fit
from ottla.pipeline.sinks.iceberg_rewrite import (
    add_versions,
    apply,
    begin,
    compact,
    known_versions,
    remove_all,
    written_rows,
)
from ottla.pipeline.sinks.intervals import Key, Last
from ottla.pipeline.sinks.names import column_names, with_suffix
from ottla.pipeline.sinks.staging import Layout, StagedFile
from ottla.pipeline.sinks.table_sink import FileTableSink, Notes, Version
from ottla.pipeline.sinks.versions import VersionedChanges, Versions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

_NAME_MAPPING: Final = "schema.name-mapping.default"
"""Our files name their columns and do not number them."""
_TRUNCATED: Final = ".truncated"
"""Ends the property with the time at which the captured table was truncated last, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class IcebergSink(FileTableSink):
    """An Iceberg table as an output. See `iceberg`."""

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        return f"Iceberg table {self.table}"

    def renamed(self, suffix: str) -> "IcebergSink":
        return replace(self, table=with_suffix(self.table, suffix))

    def last_batch(self, query_id: str, _outputs: Outputs) -> int | None:
        """By the table's property of the query."""
        catalog = self._catalog()
        return _noted(catalog.load_table(self.table).properties, query_id) if catalog.table_exists(self.table) else None

    def read(self, context: RunContext) -> "DataFrame":
        """The newest snapshot, by way of this process's memory. Raises SinkError if there is no table yet."""
        return context.spark.createDataFrame(self.open().scan().to_arrow())

    def newest_snapshot(self, _context: RunContext) -> str:
        table = self.open()
        snapshot = table.current_snapshot()
        if snapshot is None:
            raise SinkError(f"{self.describe()} has no snapshot yet: nothing was written to it")
        return f"{table.metadata.table_uuid}@{snapshot.snapshot_id}"

    def rows_of(self, _context: RunContext, snapshot: str) -> pa.Table:
        table, (uuid, _, number) = self.open(), snapshot.partition("@")
        if str(table.metadata.table_uuid) != uuid:
            raise SinkError(f"{self.describe()} was deleted and made anew: its snapshot {number} is gone")
        if table.snapshot_by_id(int(number)) is None:
            raise SinkError(f"{self.describe()} has no snapshot {number} any longer (it has expired)")
        return table.scan(snapshot_id=int(number)).to_arrow()

    def compact(self, _directory: Path) -> str:
        """Rewrite small files as large ones, a snapshot for each large one; readers and writers go on meanwhile."""
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

    def conflict(self) -> type[Exception]:
        from pyiceberg.exceptions import CommitFailedException

        return CommitFailedException

    def prepared(self, schema: pa.Schema, _context: RunContext) -> "tuple[Layout, Callable[[], IcebergVersion]]":
        catalog = self._catalog()
        if not catalog.table_exists(self.table):
            self._create(catalog, schema)
        table = catalog.load_table(self.table)
        check_fit(table.schema().as_arrow(), schema, self.describe())
        found = tuple(table.schema().find_column_name(each.source_id) or "?" for each in table.spec().fields)
        by_value = all(str(each.transform) == "identity" for each in table.spec().fields)
        self.check_partitions(found if by_value else ("?",), ", ".join(map(str, table.spec().fields)))
        if table.name_mapping() is None:
            with table.transaction() as transaction:
                transaction.set_properties({_NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
        storage = IcebergStorage(f"{table.location().rstrip('/')}/data", dict(table.io.properties))
        layout = Layout(storage, schema, tuple(schema.names), self.partition_by)
        return layout, partial(IcebergVersion, self, storage.location)

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
    return IcebergSink(
        table,
        catalog,
        properties,
        key=column_names(key),
        partition_by=column_names(partition_by),
        compact_every=compact_every,
    )


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


class IcebergVersion(Version):
    """The newest snapshot of an Iceberg table, and a transaction upon it."""

    def __init__(self, sink: IcebergSink, location: str) -> None:
        self._sink = sink
        self._location = location
        self._transaction = begin(sink.open())

    def last_batch(self, query_id: str) -> int | None:
        return _noted(self._transaction.table_metadata.properties, query_id)

    def truncated(self, query_id: str) -> int | None:
        return _noted(self._transaction.table_metadata.properties, query_id, _TRUNCATED)

    def known(self, changes: VersionedChanges) -> dict[Key, Last]:
        return known_versions(self._transaction, changes)

    def written(self, keys: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        return written_rows(self._transaction, keys, self._sink.key, columns)

    def add(self, files: list[StagedFile], notes: Notes, *, replaces: bool) -> None:
        if replaces:
            remove_all(self._transaction, _of_snapshot(notes))
        if files:
            paths = [f"{self._location}/{file.path}" for file in files]
            self._transaction.add_files(paths, snapshot_properties=_of_snapshot(notes), check_duplicate_files=False)
        self._commit(notes)

    def merge(self, changes: Changes, notes: Notes) -> None:
        apply(self._transaction, changes, self._sink.key, _of_snapshot(notes))
        self._commit(notes)

    def add_versions(self, versions: Versions, notes: Notes) -> None:
        add_versions(self._transaction, versions, self._sink.key, _of_snapshot(notes))
        self._commit(notes)

    def compact(self) -> str:
        return compact(self._sink.open)

    def _commit(self, notes: Notes) -> None:
        properties = {_property(notes.query_id): str(notes.number)}
        if notes.truncated is not None:
            properties[_property(notes.query_id, _TRUNCATED)] = str(notes.truncated)
        self._transaction.set_properties(properties)
        self._transaction.commit_transaction()


def _property(query_id: str, what: str = "") -> str:
    """The table's property with the query's last micro-batch, or with something else of it."""
    return f"ottla.{query_id}{what}"


def _noted(properties: Mapping[str, str], query_id: str, what: str = "") -> int | None:
    found = properties.get(_property(query_id, what))
    return None if found is None else int(found)


def _of_snapshot(notes: Notes) -> dict[str, str]:
    return {"ottla.query": notes.query_id, "ottla.batch": str(notes.number)}
