"""What information_schema says about tables, and their records."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.connect.connectors.capture.envelope import Column, TableEvents, context_headers
from ottla.connect.connectors.capture.selection import Names, Selection
from ottla.connect.connectors.mysql.changes import source_of
from ottla.connect.connectors.mysql.defaults import default_value
from ottla.connect.connectors.mysql.keys import KeyColumn, quoted
from ottla.connect.connectors.mysql.session import rows
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.types import MysqlColumn, character_length, map_column

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
        self._selection = Selection(settings)
        self._databases = Names(settings.database_include_list, ())
        self._kind = kind
        self._source = source_of(kind)
        self._headers = context_headers(settings.topic_prefix, kind) if settings.extended_headers_enabled else ()

    def has(self, database: str, table: str) -> bool:
        """Whether a table is captured."""
        if database in _SYSTEM or not self._databases.has(database):
            return False
        if f"{database}.{table}" == self._settings.signal_data_collection:
            return False
        return self._selection.has_table(database, table)

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

    def describe(self, database: str, table: str, names: Sequence[str], key: Sequence[str] = ()) -> TableEvents:
        """Records of rows with columns of these names; `key`: what the binlog says it is, in any order.

        A column that is no longer there is read as a text.
        """
        known = {row[0]: MysqlColumn(*row) for row in self._columns(database, table)}
        chosen = self._selection.key_columns(database, table)
        in_order = [name for (name,) in rows(self._connection, _KEY, database, table)]
        keys = chosen or (in_order if not key or set(key) == set(in_order) else list(key))
        columns = []
        for number, name in enumerate(names):
            in_rows = self._selection.has_column(database, table, name)
            if in_rows or name in keys:
                found = known.get(name) or MysqlColumn(name, "text", "text", True, 0, 0, 0)
                column = self._column(number, found)
                mask = self._selection.mask(database, table, name, column.schema, character_length(found))
                columns.append(replace(column, mask=mask, in_rows=in_rows))
        topic = self._selection.topic(database, table)
        return TableEvents(
            topic,
            columns,
            keys,
            self._source,
            unchanged=_NEVER,
            tombstones=self._settings.tombstones_on_delete,
            headers=self._headers,
        )

    def _columns(self, database: str, table: str) -> list[tuple[Any, ...]]:
        return rows(self._connection, _COLUMNS, database, table)

    def _column(self, number: int, column: MysqlColumn) -> Column:
        schema, convert, missing = map_column(column, self._settings)
        if column.nullable:
            schema = schema.as_optional()
        default = default_value(column, self._kind, convert, missing)
        if default is not None:
            schema = replace(schema, default=default, has_default=True)
        return Column(column.name, number, schema, convert, None, missing)


_NEVER: Final = object()
"""The binlog has every value (binlog_row_image=FULL)."""
