"""The source: rows of tables, again and again, or those that are new since the last look."""

import datetime as dt
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.connect import schema as connect
from ottla.connect.api import (
    ConfigError,
    ConnectError,
    Context,
    Part,
    Position,
    Schema,
    Source,
    SourceContext,
    SourceLag,
    SourceRecord,
    Yielded,
)
from ottla.connect.connectors.relational.database import (
    close_broken,
    connected,
    describe,
    engine,
    explained,
    leave_unread,
)
from ottla.connect.connectors.relational.local_files import local_paths
from ottla.connect.connectors.relational.mapping.columns import Convert, source_schema
from ottla.connect.connectors.relational.mapping.names import split_name
from ottla.connect.connectors.relational.settings import SourceSettings

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, CursorResult, Engine, FromClause, Select

_SLEEP_S: Final = 0.5
_MYSQLS_CLOCK: Final = "SELECT COALESCE(CONVERT_TZ(NOW(6), '+00:00', @@global.time_zone), NOW(6))"
_WALL_CLOCKS: Final = {
    "postgresql": "SELECT current_timestamp AT TIME ZONE reset_val FROM pg_settings WHERE name = 'TimeZone'",
    "mysql": _MYSQLS_CLOCK,
    "mariadb": _MYSQLS_CLOCK,
}
"""What the time is where the server is: the sessions here are in UTC."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The part to read of one table, or of the query (`name` None), and how rows become records."""

    name: str | None
    topic: str
    rows: "FromClause"
    value_schema: Schema
    key_schema: Schema | None
    converts: Mapping[str, Convert | None]

    @property
    def part(self) -> Part:
        return {"table": self.name} if self.name is not None else {"query": "query"}


class RelationalSource(Source[SourceSettings]):
    """Rows of tables of any database that SQLAlchemy reaches, by polling.

    By a number that grows or a time of change new rows are found; deletes are not, nor rows whose transaction commits
    after rows with later numbers were read (`timestamp.delay.interval.ms` waits for those). Change capture misses none.
    """

    aliases: ClassVar[tuple[str, ...]] = (
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "io.aiven.connect.jdbc.JdbcSourceConnector",
    )

    def __init__(self, settings: SourceSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._engine: Engine | None = None

    @classmethod
    def local_paths(cls, settings: SourceSettings) -> Mapping[str, Sequence[str]]:
        """The database, if it is a file, and files that parameters of its URL name."""
        return local_paths(settings)

    @classmethod
    def check(cls, settings: SourceSettings, context: Context) -> None:
        """The database, and the tables' and columns' names."""
        with connected(settings) as connection:
            for name in _tables(settings, connection):
                _reading(settings, connection, name)

    @classmethod
    def tasks(cls, settings: SourceSettings, max_tasks: int, context: Context) -> Sequence[Mapping[str, str]]:
        """Tables in turn to tasks."""
        if settings.query:
            return [{}]
        with connected(settings) as connection:
            names = _tables(settings, connection)
        shares = [names[number::max_tasks] for number in range(min(max_tasks, len(names)))]
        return [{"table.whitelist": ",".join(share), "table.blacklist": ""} for share in shares]

    @classmethod
    def lag(cls, settings: SourceSettings, part: Part, position: Position, context: Context) -> SourceLag | None:
        """The last row that was read; tables have no log whose end it could be behind."""
        if ("query" in part) != bool(settings.query):
            return None
        if settings.table_whitelist and "table" in part and part["table"] not in settings.table_whitelist:
            return None
        return SourceLag(", ".join(f"{name} {value}" for name, value in position.items()))

    def read(self, position: Position | None) -> Iterator[Yielded]:
        self._engine = engine(self.settings)
        looks_at: float = 0
        with explained(f"reading {describe(self.settings)}"):
            with self._engine.connect() as connection:
                names = [None] if self.settings.query else _tables(self.settings, connection)
                readings = [_reading(self.settings, connection, name) for name in names]
            positions = {str(each.part): self.context.position(each.part) or {} for each in readings}
            while True:
                if time.monotonic() < looks_at:
                    self.context.sleep(min(_SLEEP_S, max(0.0, looks_at - time.monotonic())))
                    yield None
                    continue
                looks_at = time.monotonic() + self.settings.poll_interval_ms / 1000
                for reading in readings:
                    new = self._new(reading, positions[str(reading.part)])
                    with _readable(reading), closing(new):
                        for batch in new:
                            moved = [each.position for each in batch if each.position is not None]
                            if moved:
                                positions[str(reading.part)] = moved[-1]
                            yield batch
                yield None

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _new(self, reading: _Reading, position: Position) -> Generator[list[SourceRecord], None, None]:
        """Batches of what is new after `position`. The last row of a moment alone has that moment for its position."""
        if self._engine is None:
            raise ConnectError("the source was closed")
        with self._engine.connect() as connection:
            query = self._select(connection, reading, position)
            streaming = connection.execution_options(stream_results=True, max_row_buffer=self.settings.batch_max_rows)
            waiting: SourceRecord | None = None
            with _rows(streaming.execute(query)) as rows:  # closed also when the task ends in their midst
                while some := list(islice(rows, self.settings.batch_max_rows)):
                    batch = [waiting] if waiting is not None else []
                    for row in some:
                        record = self._record(reading, row)
                        if batch and self.settings.mode == "timestamp" and batch[-1].position == record.position:
                            batch[-1].position = None
                        batch.append(record)
                    waiting = batch.pop()
                    if batch:
                        yield batch
            if waiting is not None:
                yield [waiting]

    def _record(self, reading: _Reading, row: Mapping[Any, Any]) -> SourceRecord:
        value = {
            name: found if convert is None or found is None else convert(found)
            for name, convert in reading.converts.items()
            for found in (row[name],)
        }
        key = {each.name: value[each.name] for each in reading.key_schema.fields} if reading.key_schema else None
        return SourceRecord(
            topic=reading.topic,
            key=key,
            key_schema=reading.key_schema,
            value=value,
            value_schema=reading.value_schema,
            part=reading.part,
            position=self._position(row),
        )

    def _position(self, row: Mapping[Any, Any]) -> Position | None:
        settings = self.settings
        position: dict[str, Any] = {}
        if "timestamp" in settings.mode:
            found = (row[name] for name in settings.timestamp_column_name)
            at = next((each for each in found if each is not None), None)
            if not isinstance(at, dt.datetime):
                names = ", ".join(settings.timestamp_column_name)
                raise ConnectError(
                    f"column {names} is to have the time of a row's change, and one has {at!r}: look at it"
                )
            position["timestamp"] = at.isoformat()
        if "incrementing" in settings.mode:
            number = row[settings.incrementing_column_name]
            if number is None:
                raise ConnectError(
                    f"column {settings.incrementing_column_name} is to number the rows, and one has null"
                )
            position["incrementing"] = int(number)
        return position or None

    def _select(self, connection: "Connection", reading: _Reading, position: Position) -> "Select[Any]":
        from sqlalchemy import String, and_, func, or_, select, type_coerce

        settings = self.settings
        query = select(reading.rows)
        columns = reading.rows.c
        number: ColumnElement[Any] | None = None
        if "incrementing" in settings.mode:
            number = columns[settings.incrementing_column_name]
        if "timestamp" not in settings.mode:
            if number is None:
                return query
            query = query.order_by(number)
            return query.where(number > position["incrementing"]) if "incrementing" in position else query
        stamps = [columns[name] for name in settings.timestamp_column_name]
        stamp: ColumnElement[Any] = stamps[0] if len(stamps) == 1 else func.coalesce(*stamps)
        until: Any = self._until(connection, stamps[0].type)
        last: Any = dt.datetime.fromisoformat(position["timestamp"]) if "timestamp" in position else None
        if connection.dialect.name == "sqlite":  # whose times are texts, with a fraction or without
            stamp = type_coerce(stamp, String)
            stamp = func.substr(func.iif(func.instr(stamp, "."), stamp, stamp.concat(".")).concat("000000"), 1, 26)
            until, last = (each and each.isoformat(" ", "microseconds") for each in (until, last))
        query = query.where(stamp < until)
        if last is not None:
            later = stamp > last
            if number is not None:
                later = or_(later, and_(stamp == last, number > position.get("incrementing", -1)))
            query = query.where(later)
        return query.order_by(stamp, number) if number is not None else query.order_by(stamp)

    def _until(self, connection: "Connection", kind: Any) -> dt.datetime:
        """The database's clock, for columns without a zone in its own zone, less what late commits are waited for."""
        from sqlalchemy import TIMESTAMP, func, select, text

        of_mysql = connection.dialect.name in ("mysql", "mariadb")
        has_zone = getattr(kind, "timezone", False) or (of_mysql and isinstance(kind, TIMESTAMP))
        own = None if has_zone else _WALL_CLOCKS.get(connection.dialect.name)
        now: dt.datetime = connection.execute(
            select(func.current_timestamp()) if own is None else text(own)
        ).scalar_one()
        if not getattr(kind, "timezone", False):
            now = now.replace(tzinfo=None)
        return now - dt.timedelta(milliseconds=self.settings.timestamp_delay_interval_ms)


@contextmanager
def _rows(result: "CursorResult[Any]") -> Iterator[Iterator[Mapping[Any, Any]]]:
    """The rows of a result, which is closed at the end, and its cursor also when the connection breaks meanwhile."""
    cursor = result.cursor
    try:
        yield iter(result.mappings())
    finally:
        leave_unread(result, cursor)
        result.close()
        if cursor is not None:
            close_broken(cursor)


@contextmanager
def _readable(reading: _Reading) -> Iterator[None]:
    """Say of which table a value is that a driver makes no object of Python of, such as a year before Christ."""
    try:
        yield
    except (ValueError, ArithmeticError, TypeError) as error:
        where = f"table {reading.name}" if reading.name is not None else "the query"
        raise ConnectError(
            f"{where} has a value that cannot be read: {error}; mend it, or leave its column out by query"
        ) from error


def _tables(settings: SourceSettings, connection: "Connection") -> list[str]:
    """The tables to read. Raises ConfigError if one is not there."""
    from sqlalchemy import inspect

    inspector = inspect(connection)
    if settings.table_whitelist:
        for name in settings.table_whitelist:
            schema, table = _named(settings, name)
            if not inspector.has_table(table, schema=schema):
                raise ConfigError(f"there is no table {name} in {describe(settings)}", "table.whitelist")
        return list(settings.table_whitelist)
    found = inspector.get_table_names(schema=settings.catalog_schema or None)
    names = [name for name in found if name not in settings.table_blacklist]
    if not names and not settings.query:
        raise ConfigError(
            f"there is no table to read in {describe(settings)}: look at table.blacklist", "table.blacklist"
        )
    return names


def _named(settings: SourceSettings, name: str) -> tuple[str | None, str]:
    schema, table = split_name(name)
    return schema or settings.catalog_schema or None, table


def _reading(settings: SourceSettings, connection: "Connection", name: str | None) -> _Reading:
    """Raises ConfigError if a column that settings name is not there."""
    from sqlalchemy import MetaData, Table

    if name is None:
        return _query_reading(settings, connection)
    schema, table_name = _named(settings, name)
    table = Table(table_name, MetaData(), schema=schema, autoload_with=connection)
    _check_columns(settings, list(table.columns.keys()), f"table {name}")
    schemas = {}
    converts = {}
    for column in table.columns:
        schemas[column.name], converts[column.name] = source_schema(column.type, nullable=bool(column.nullable))
    keys = settings.key_columns or [column.name for column in table.primary_key]
    topic = f"{settings.topic_prefix}{table_name}"
    return _Reading(
        name, topic, table, connect.struct_of(table_name, schemas), _key_schema(topic, keys, schemas), converts
    )


def _query_reading(settings: SourceSettings, connection: "Connection") -> _Reading:
    """Types of a query's columns are asked of the database by a look at no rows of it."""
    from sqlalchemy import Column, MetaData, Table, inspect, text

    view = "ottla_query"
    connection.execute(text(f"CREATE TEMPORARY TABLE {view} AS SELECT * FROM ({settings.query}) AS q WHERE 1 = 0"))
    try:
        found = inspect(connection).get_columns(view)
    finally:
        connection.execute(text(f"DROP TABLE {view}"))
    _check_columns(settings, [each["name"] for each in found], "the query")
    schemas = {}
    converts = {}
    for each in found:
        schemas[each["name"]], converts[each["name"]] = source_schema(each["type"], nullable=True)
    shape = Table(view, MetaData(), *(Column(each["name"], each["type"]) for each in found))
    rows = text(settings.query).columns(*shape.columns).subquery("q")
    topic = settings.topic_prefix
    return _Reading(
        None,
        topic,
        rows,
        connect.struct_of(topic, schemas),
        _key_schema(topic, settings.key_columns, schemas),
        converts,
    )


def _key_schema(topic: str, keys: Sequence[str], schemas: Mapping[str, Schema]) -> Schema | None:
    return connect.struct_of(f"{topic}.Key", {name: schemas[name] for name in keys}) if keys else None


def _check_columns(settings: SourceSettings, names: Sequence[str], what: str) -> None:
    wanted = {
        "incrementing.column.name": [settings.incrementing_column_name] if "incrementing" in settings.mode else [],
        "timestamp.column.name": settings.timestamp_column_name if "timestamp" in settings.mode else [],
        "key.columns": settings.key_columns,
    }
    for setting, columns in wanted.items():
        for column in columns:
            if column not in names:
                raise ConfigError(f"{what} has no column {column}; it has {', '.join(names)}", setting)
