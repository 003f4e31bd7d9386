"""Tables in information_schema, and their records."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors.capture.envelope import Column, TableEvents
from ottla.connect.connectors.capture.selection import Names, Selection
from ottla.connect.connectors.mysql.decoding.changes import SOURCE
from ottla.connect.connectors.mysql.decoding.keys import KeyColumn, quoted
from ottla.connect.connectors.mysql.decoding.table_map import TableMap
from ottla.connect.connectors.mysql.decoding.types import MysqlColumn, character_length, map_column
from ottla.connect.connectors.mysql.defaults import default_value
from ottla.connect.connectors.mysql.session import code_of, rows
from ottla.connect.connectors.mysql.settings import MysqlSettings

_SYSTEM: Final = ("mysql", "information_schema", "performance_schema", "sys")
_TABLES: Final = """
    SELECT table_schema, table_name, coalesce(table_rows, 0) FROM information_schema.tables
    WHERE table_type = 'BASE TABLE' AND table_schema NOT IN %s ORDER BY table_schema, table_name
"""
_COLUMNS: Final = """
    SELECT column_name, data_type, column_type, is_nullable = 'YES',
           coalesce(numeric_precision, 0), coalesce(numeric_scale, 0), coalesce(datetime_precision, 0),
           column_default, extra LIKE '%%DEFAULT_GENERATED%%'
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_UNKNOWN_COLUMN: Final = 1054
_CHARSETS: Final = "SELECT id, character_set_name FROM information_schema.{} WHERE id IS NOT NULL"
_IN_BINARY: Final = {"uuid": "binary(16)", "inet6": "binary(16)", "inet4": "binary(4)"}
_KEY: Final = """
    SELECT column_name FROM information_schema.key_column_usage
    WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position
"""


class Catalog:
    """Describes tables as records have them. Columns are asked for anew each time a table has changed."""

    def __init__(self, connection: Any, settings: MysqlSettings, kind: str) -> None:
        """`kind`: mysql or mariadb."""
        self._connection = connection
        self._settings = settings
        self._selection = Selection(settings, kind)
        self._databases = Names(settings.database_include_list, ())
        self.kind = kind

    def has(self, database: str, table: str) -> bool:
        """Whether a table is captured."""
        if database in _SYSTEM or not self._databases.has(database):
            return False
        if self.has_signals(database, table):
            return False
        return self._selection.has_table(database, table)

    def has_signals(self, database: str, table: str) -> bool:
        """Whether a table is that of signals."""
        return f"{database}.{table}" == self._settings.signal_data_collection

    def charsets(self) -> dict[int, str]:
        """The character sets of all collations, by the numbers that the binlog has."""
        try:  # MariaDB has those here that it has added since 10.10
            found = rows(self._connection, _CHARSETS.format("collation_character_set_applicability"))
        except ConnectError as error:
            if code_of(error) != _UNKNOWN_COLUMN:
                raise
            found = rows(self._connection, _CHARSETS.format("collations"))
        return {int(number): str(name) for number, name in found}

    def tables(self) -> list[tuple[str, str, int]]:
        """Database, name and about how many rows of every table that is captured."""
        return [
            (db, name, int(about)) for db, name, about in rows(self._connection, _TABLES, _SYSTEM) if self.has(db, name)
        ]

    def all_names(self) -> list[str]:
        """database.table of every table."""
        return [f"{database}.{name}" for database, name, _ in rows(self._connection, _TABLES, _SYSTEM)]

    def selected(self, database: str, table: str) -> tuple[list[str], str]:
        """Names of a table's columns, in order, and what a query has to select for their values to be whole."""
        kinds = {row[0]: row[1] for row in self._columns(database, table)}
        # a FLOAT as such comes with six figures, not with all that it has
        texts = [f"({quoted(name)} + 0e0)" if kind == "float" else quoted(name) for name, kind in kinds.items()]
        return list(kinds), ", ".join(texts)

    def primary_key(self, database: str, table: str) -> list[KeyColumn]:
        """Its columns, in the order of the index; [] if there is none."""
        known = {row[0]: (number, MysqlColumn(*row)) for number, row in enumerate(self._columns(database, table))}
        key = [known[name] for (name,) in rows(self._connection, _KEY, database, table) if name in known]
        return [KeyColumn(c.name, number, c.kind, self._column(number, c).convert) for number, c in key]

    def describe(self, database: str, table: str, names: Sequence[str]) -> TableEvents:
        """Records of rows that a query has with columns of these names. Raises Retriable if one is gone meanwhile."""
        known = {row[0]: MysqlColumn(*row) for row in self._columns(database, table)}
        gone = next((name for name in names if name not in known), None)
        if gone is not None:
            raise Retriable(f"column {gone} of {database}.{table} was dropped while its rows were about to be read")
        indexes = rows(self._connection, f"SHOW INDEX FROM {quoted(database)}.{quoted(table)}")
        return self._events(database, table, [known[name] for name in names], first_key(indexes))

    def describe_then(self, table: TableMap, warn: Callable[[str], None]) -> TableEvents:
        """Records of rows in the binlog, of a table as it was then. warn: takes a sentence for the status.

        Today's table of that name adds what the binlog does not have, for columns that still have the same type.
        """
        today = {row[0]: MysqlColumn(*row) for row in self._columns(table.database, table.table)}
        gone = [each for each in table.columns if each.name not in today and each.full in _IN_BINARY.values()]
        if gone and self.kind == "mariadb":
            names = ", ".join(each.name for each in gone)
            warn(
                f"{table.database}.{table.table} no longer has {names}, which the binlog has as BINARY: a UUID, INET6 "
                "or INET4 looks the same there, and comes as bytes"
            )
        columns = [self._completed(each, today.get(each.name)) for each in table.columns]
        return self._events(table.database, table.table, columns, table.key)

    def _completed(self, then: MysqlColumn, today: MysqlColumn | None) -> MysqlColumn:
        """Defaults, and the kinds that the binlog has as BINARY: UUID, INET4 and INET6."""
        if today is None:
            return then
        if _IN_BINARY.get(today.kind) == then.full:
            return replace(today, nullable=then.nullable)
        if map_column(then, self._settings)[0] != map_column(today, self._settings)[0]:
            return then
        return replace(then, default=today.default, has_expression=today.has_expression)

    def _events(self, database: str, table: str, described: Sequence[MysqlColumn], key: Sequence[str]) -> TableEvents:
        return self._selection.events(
            (database, table),
            [each.name for each in described],
            lambda number: (self._column(number, described[number]), character_length(described[number])),
            self._selection.key_columns(database, table) or list(key),
            SOURCE[self.kind],
            unchanged=_NEVER,
        )

    def _columns(self, database: str, table: str) -> list[tuple[Any, ...]]:
        return rows(self._connection, _COLUMNS, database, table)

    def _column(self, number: int, column: MysqlColumn) -> Column:
        schema, convert, missing = map_column(column, self._settings)
        if column.nullable:
            schema = schema.as_optional()
        default = default_value(column, self.kind, convert, missing)
        if default is not None:
            schema = replace(schema, default=default, has_default=True)
        return Column(column.name, number, schema, convert, None, missing)


def first_key(indexes: Sequence[tuple[Any, ...]]) -> list[str]:
    """The columns of the primary key or, as in the binlog of a table without one, of the first unique key of
    whole, not null columns; [] for a table without either. `indexes`: of SHOW INDEX.
    """
    columns: dict[str, list[str]] = {}
    unfit = set()
    for _, non_unique, name, _, column, _, _, part, _, nullable, *_ in indexes:
        columns.setdefault(name, []).append(column)
        if int(non_unique) or nullable == "YES" or part is not None or column is None:
            unfit.add(name)
    if "PRIMARY" in columns:
        return columns["PRIMARY"]
    return next((each for name, each in columns.items() if name not in unfit), [])


_NEVER: Final = object()
"""The binlog has every value (binlog_row_image=FULL)."""
