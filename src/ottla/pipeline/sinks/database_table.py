"""Tables of any database that SQLAlchemy reaches, each row in them once.

The number of the last micro-batch of each query is kept in a table beside, `ottla_batches`, and changes in the same
transaction of the database as the rows. The transaction begins with that change: a micro-batch that is repeated finds
nothing to change, and two drivers that write the same one wait for each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.pipeline.context import CHANGES, HISTORY, Outputs, RunContext
from ottla.pipeline.corrections import Corrections
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.batches import MicroBatch
from ottla.pipeline.sinks.changes import Changes, newest_rows, reduced
from ottla.pipeline.sinks.database_types import arrow_rows, python_rows
from ottla.pipeline.sinks.fitting import check_key
from ottla.pipeline.sinks.names import column_names, with_suffix
from ottla.pipeline.sinks.table_sink import TableSink
from ottla.pipeline.sinks.versions import VersionedChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection, Engine, Table

BATCHES: Final = "ottla_batches"
_KEYS_AT_ONCE: Final = 100
"""In one statement; databases limit its parameters."""
_TRUNCATED: Final = "-truncated"
"""Ends the name of a query in `BATCHES` whose number is when the captured table was truncated last, in microseconds."""


@dataclass(frozen=True, slots=True)
class DatabaseTable(TableSink):
    """A table of a database as an output. See `database`."""

    url: str
    table: str
    schema: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> str:
        """Without the password."""
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        name = f"{self.schema}.{self.table}" if self.schema else self.table
        try:
            return f"table {name} of {make_url(self.url).render_as_string(hide_password=True)}"
        except ArgumentError:
            return f"table {name}"

    def writer(self, schema: pa.Schema, mode: str, _context: RunContext) -> "DatabaseWriter":
        """What writes micro-batches of such rows; the table is made if missing. Raises SinkError as `start`."""
        check_key(schema, self.key, mode, self.describe())
        self._prepare(schema, keeps_versions=mode == HISTORY)
        return DatabaseWriter(self, schema, mode)

    def renamed(self, suffix: str) -> "DatabaseTable":
        return replace(self, table=with_suffix(self.table, suffix))

    def last_batch(self, query_id: str, _outputs: Outputs) -> int | None:
        """By the table `ottla_batches` beside it. Raises SinkError if the database cannot be reached."""
        from sqlalchemy import inspect, select
        from sqlalchemy.exc import OperationalError

        engine, batches = self.engine(), batches_table(self.schema)
        try:
            if not inspect(engine).has_table(BATCHES, schema=self.schema):
                return None
            noted = select(batches.c.batch).where(batches.c.query == query_id, batches.c.target == self.table)
            with engine.connect() as connection:
                found: int | None = connection.execute(noted).scalar()
                return found
        except OperationalError as error:
            raise SinkError(f"{self.describe()} cannot be reached: {error.orig}") from error

    def read(self, context: RunContext) -> "DataFrame":
        """The table as it is now, by way of this process's memory. Raises SinkError if there is none."""
        from sqlalchemy import select

        from ottla.pipeline.sinks.database_types import as_spark_schema

        engine = self.engine()
        table = self.reflected(engine)
        with engine.connect() as connection:
            rows = [tuple(row) for row in connection.execute(select(table))]
        return context.spark.createDataFrame(rows, as_spark_schema(table))

    def engine(self) -> "Engine":
        """Without a pool: a connection per micro-batch, so that one that broke in between is no trouble.

        Raises SinkError if the URL is none, or its driver is not installed.
        """
        try:
            from sqlalchemy import NullPool, create_engine
            from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        except ModuleNotFoundError as error:
            raise SinkError("databases need a package: in a checkout of Ottla, pip install '.[pipeline]'") from error
        from ottla.pipeline.sinks.database_types import as_json

        try:
            return create_engine(self.url, poolclass=NullPool, json_serializer=as_json, **self.options)
        except (ArgumentError, NoSuchModuleError) as error:
            raise SinkError(f"database(...): this is no URL of a database that SQLAlchemy knows: {error}") from error
        except ModuleNotFoundError as error:
            raise SinkError(f"{self.describe()} needs the package {error.name}: pip install {error.name}") from error

    def reflected(self, engine: "Engine") -> "Table":
        """The table as the database describes it. Raises SinkError if there is none, or no database."""
        from sqlalchemy import MetaData, Table
        from sqlalchemy.exc import NoSuchTableError, OperationalError

        try:
            return Table(self.table, MetaData(), schema=self.schema, autoload_with=engine)
        except NoSuchTableError as error:
            raise SinkError(f"{self.describe()} is not there yet") from error
        except OperationalError as error:
            raise SinkError(f"{self.describe()} cannot be reached: {error.orig}") from error

    def _prepare(self, schema: pa.Schema, *, keeps_versions: bool) -> None:
        from sqlalchemy import Index, MetaData, Table, inspect
        from sqlalchemy.exc import OperationalError, ProgrammingError

        from ottla.pipeline.sinks.database_types import as_columns

        engine, names = self.engine(), schema.names
        try:
            is_there = inspect(engine).has_table(self.table, schema=self.schema)
            columns = as_columns(schema, self.key, engine.dialect, self.describe())
            if not is_there:
                indexes = []
                if keeps_versions:  # of a key there are many rows
                    for column in columns:
                        column.primary_key = False
                    indexes = [Index(f"{self.table}_by_key", *(each for each in columns if each.name in self.key))]
                Table(self.table, MetaData(), *columns, *indexes, schema=self.schema).create(engine, checkfirst=True)
            batches_table(self.schema).create(engine, checkfirst=True)
        except (OperationalError, ProgrammingError) as error:
            raise SinkError(f"{self.describe()} cannot be made: {error.orig}") from error
        table = self.reflected(engine)
        found = [f"column '{name}' is not in the table" for name in names if name not in table.columns]
        found += [
            f"the table's column '{column.name}' is not in the rows, may not be null and has no default"
            for column in table.columns
            if column.name not in names
            and not column.nullable
            and column.server_default is None
            and column.autoincrement is not True
            and not (column.primary_key and column.autoincrement == "auto" and not self.key)
        ]
        if found:
            raise SinkError(f"{self.describe()} has other columns than the rows: {'; '.join(found)}")


def database(
    url: str, table: str, *, key: str | Sequence[str] = (), schema: str | None = None, **options: Any
) -> DatabaseTable:
    """A table of a database, created if it does not exist; each micro-batch is one transaction, once.

    `url` is SQLAlchemy's (`postgresql+psycopg://user@host/name`, `sqlite:////data/delays.db`), `options` those of its
    `create_engine`. With a `key`, rows take the place of those with the same key (what mode `update` needs); mode
    `complete` replaces the whole table. A micro-batch passes through the driver's memory.
    """
    return DatabaseTable(url, table, schema, options, key=column_names(key))


def batches_table(schema: str | None) -> "Table":
    """Which micro-batch of each query was written last."""
    from sqlalchemy import BigInteger, Column, MetaData, String, Table

    return Table(
        BATCHES,
        MetaData(),
        Column("query", String(64), primary_key=True),
        Column("target", String(255), primary_key=True),
        Column("batch", BigInteger, nullable=False),
        schema=schema,
    )


@dataclass(frozen=True, slots=True)
class DatabaseWriter:
    """Writes micro-batches into a table."""

    sink: DatabaseTable
    schema: pa.Schema
    mode: str

    def write(self, batch: MicroBatch) -> None:
        """One micro-batch in one transaction, unless the database has it already."""
        if self.mode == HISTORY:
            self._add_versions(batch)
            return
        rows, key, replaces = batch.rows.toArrow(), self.sink.key, self.mode == "complete"
        if key and not replaces:
            changes = reduced(rows, self.schema, key, self.sink.describe(), deletes=self.mode == CHANGES)
        else:
            changes = Changes.added(rows.cast(self.schema), key)
        if not changes.num_rows and not replaces:
            return
        engine = self.sink.engine()
        table = self.sink.reflected(engine)
        with engine.begin() as connection:
            if _note_batch(self.sink, connection, batch):
                _put(self.sink, connection, table, changes, replaces)

    def correct(self, batch: MicroBatch, corrections: Corrections) -> int:
        """Merge late rows into those of the table in one transaction, unless it has them already; how many."""
        from ottla.pipeline.sinks.database_upsert import rows_of

        key, columns = self.sink.key, (*self.sink.key, *corrections.merged_columns)
        late = newest_rows(batch.rows.toArrow().cast(self.schema), key, self.sink.describe())
        if not late.num_rows:
            return 0
        engine = self.sink.engine()
        table = self.sink.reflected(engine)
        types = pa.schema([self.schema.field(name) for name in columns])
        with engine.begin() as connection:
            if _note_batch(self.sink, connection, batch):
                found = [
                    row
                    for keys in python_rows(late.select(key), connection.dialect.name, at_once=_KEYS_AT_ONCE)
                    for row in rows_of(connection, table, key, keys, columns)
                ]
                merged = corrections.merge(arrow_rows(found, types), late)
                _put(self.sink, connection, table, Changes.added(merged, key), replaces=False)
        return len(late)

    def _add_versions(self, batch: MicroBatch) -> None:
        from ottla.pipeline.sinks.database_versions import apply

        changes = VersionedChanges.of(batch.rows.toArrow(), self.schema, self.sink.key, self.sink.describe())
        if changes.is_empty:
            return
        engine = self.sink.engine()
        table = self.sink.reflected(engine)
        with engine.begin() as connection:
            if _note_batch(self.sink, connection, batch):
                apply(connection, table, changes, _note_truncates(self.sink, connection, batch, changes.truncates))


def _note_truncates(
    sink: DatabaseTable, connection: "Connection", batch: MicroBatch, truncates: list[int]
) -> int | None:
    """When the captured table was truncated last before this micro-batch. Kept as the number of a query beside."""
    from sqlalchemy import delete, insert, select

    batches, name = batches_table(sink.schema), f"{batch.query_id}{_TRUNCATED}"
    of_this = (batches.c.query == name, batches.c.target == sink.table)
    before = connection.execute(select(batches.c.batch).where(*of_this)).scalar()
    if truncates:
        newest = max([*truncates, *([] if before is None else [before])])
        connection.execute(delete(batches).where(*of_this))
        connection.execute(insert(batches).values(query=name, target=sink.table, batch=newest))
    return None if before is None else int(before)


def _note_batch(sink: DatabaseTable, connection: "Connection", batch: MicroBatch) -> bool:
    """False if the micro-batch has been written before. Holds what it notes locked until the transaction ends."""
    from sqlalchemy import insert, select, update

    batches = batches_table(sink.schema)
    of_this = (batches.c.query == batch.query_id, batches.c.target == sink.table)
    newer = update(batches).where(*of_this, batches.c.batch < batch.number).values(batch=batch.number)
    if connection.execute(newer).rowcount:
        return True
    if connection.execute(select(batches.c.batch).where(*of_this)).first() is not None:
        return False
    connection.execute(insert(batches).values(query=batch.query_id, target=sink.table, batch=batch.number))
    return True


def _put(sink: DatabaseTable, connection: "Connection", table: "Table", changes: Changes, replaces: bool) -> None:
    from sqlalchemy import delete, insert

    from ottla.pipeline.sinks.database_upsert import remove, upsert

    if replaces:
        connection.execute(delete(table))
    for keys in python_rows(changes.removed, connection.dialect.name):
        remove(connection, table, sink.key, keys)
    for some in python_rows(changes.put, connection.dialect.name):
        if sink.key and not replaces:
            upsert(connection, table, sink.key, some)
        else:
            connection.execute(insert(table), some)
