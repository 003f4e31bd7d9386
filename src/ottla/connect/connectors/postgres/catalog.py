"""Tables in PostgreSQL's catalog: their types, keys and columns, and the published ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.connect.connectors.capture.envelope import Column, TableEvents
from ottla.connect.connectors.capture.selection import Names, Selection
from ottla.connect.connectors.postgres.decoding.changes import CONNECTOR, SOURCE
from ottla.connect.connectors.postgres.decoding.keys import ColumnFacts, check_named_key, record_key, row_key
from ottla.connect.connectors.postgres.decoding.pgoutput import UNCHANGED, Relation, RelationColumn
from ottla.connect.connectors.postgres.decoding.types import PostgresType, character_length, default_value, map_type
from ottla.connect.connectors.postgres.session import PostgresConnection, rows
from ottla.connect.connectors.postgres.settings import PostgresSettings

_TYPES: Final = """
    SELECT t.oid, t.typname, t.typtype::text, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,
           t.typbasetype, t.typtypmod,
           ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
    FROM pg_type t WHERE t.oid = ANY(%s)
"""
# the first indnkeyatts columns of an index are its key: the others it only carries along (INCLUDE); a default names no
# column, and with 0 for the table the server does not lock it, which would wait for whatever alters it at the moment
_COLUMNS: Final = """
    SELECT a.attname, a.attnotnull, a.atttypid, a.atttypmod,
           array_position((i.indkey::int2[])[0:i.indnkeyatts - 1], a.attnum),
           CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, 0) END,
           a.attgenerated <> '',
           c.relreplident = 'f' OR EXISTS (
               SELECT FROM pg_index r
               WHERE r.indrelid = a.attrelid AND a.attnum = ANY((r.indkey::int2[])[0:r.indnkeyatts - 1])
               AND CASE c.relreplident WHEN 'd' THEN r.indisprimary WHEN 'i' THEN r.indisreplident ELSE false END)
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND (
        i.indisprimary OR i.indisreplident AND NOT EXISTS (
            SELECT 1 FROM pg_index p WHERE p.indrelid = a.attrelid AND p.indisprimary))
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_TABLES: Final = """
    SELECT c.oid, n.nspname, c.relname, greatest(c.reltuples, 0)::bigint, c.relreplident::text,
           c.relkind = 'p'
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname !~ '^pg_(toast|temp)' ORDER BY n.nspname, c.relname
"""
_Facts = Mapping[str, ColumnFacts]
"""By the names of columns."""
_UNKNOWN: Final = ColumnFacts()
"""The facts about a column that no longer exists."""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the database. rows_about: the planner's estimate. partitioned: it has the rows of its partitions."""

    oid: int
    schema: str
    name: str
    rows_about: int
    identity: str
    partitioned: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


class Catalog:
    """Describes tables as records have them. Types are asked for once; columns anew each time a table has changed."""

    def __init__(self, connection: PostgresConnection, settings: PostgresSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._selection = Selection(settings, CONNECTOR)
        self._schemas = Names(settings.schema_include_list, settings.schema_exclude_list)
        self._types: dict[int, PostgresType] = {}

    def tables(self, *, and_signals: bool = False) -> list[FoundTable]:
        """All ordinary and partitioned tables that settings select; the signal table too, if asked for."""
        found = (FoundTable(*row) for row in rows(self._connection, _TABLES))
        signals = self._settings.signal_data_collection if and_signals else ""
        return [each for each in found if each.full_name == signals or self._captures(each.schema, each.name)]

    def _captures(self, schema: str, table: str) -> bool:
        return self._schemas.has(schema) and self._selection.has_table(schema, table)

    def all_names(self) -> list[str]:
        """schema.table of every table, selected or not."""
        return [FoundTable(*row).full_name for row in rows(self._connection, _TABLES)]

    def published(self, *, and_signals: bool = False) -> list[FoundTable]:
        """The tables of `tables` that are in the publication."""
        names = set(
            rows(
                self._connection,
                "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s",
                self._settings.publication_name,
            )
        )
        return [each for each in self.tables(and_signals=and_signals) if (each.schema, each.name) in names]

    def relation(self, table: FoundTable) -> Relation:
        """A table as the replication stream would describe it."""
        columns = tuple(
            RelationColumn(name, type_oid, modifier, in_identity)
            for name, _, type_oid, modifier, _, _, generated, in_identity in rows(self._connection, _COLUMNS, table.oid)
            if not generated
        )
        return Relation(table.oid, table.schema, table.name, table.identity, columns)

    def describe(self, relation: Relation) -> TableEvents | None:
        """The table's records, or None if it is not captured.

        The stream does not say which columns may be null, nor what the primary key is if another replica identity was
        chosen: the catalog does, as of now, for columns that are still there.
        """
        is_signals = f"{relation.schema}.{relation.table}" == self._settings.signal_data_collection
        if not is_signals and not self._captures(relation.schema, relation.table):
            return None
        self._learn({column.type_oid for column in relation.columns})
        facts = self._facts(relation)
        names = [column.name for column in relation.columns]
        identity = {column.name for column in relation.columns if column.in_identity}
        key = self._selection.key_columns(relation.schema, relation.table)
        if key is None:
            key = record_key(relation, facts)
        else:
            check_named_key(relation, key)
        return self._selection.events(
            (relation.schema, relation.table),
            names,
            lambda number: self._column(relation, number, facts.get(names[number], _UNKNOWN)),
            key,
            SOURCE,
            unchanged=UNCHANGED,
            key_in_identity=set(key) <= identity,
            takes_nulls=True,
        )

    def row_key(self, relation: Relation) -> list[str]:
        """The columns that identify a table's rows, independent of the records' key; empty if there are none."""
        return row_key(relation, self._facts(relation))

    def _facts(self, relation: Relation) -> _Facts:
        return {
            name: ColumnFacts(not_null, place, default, generated, in_identity)
            for name, not_null, _, _, place, default, generated, in_identity in rows(
                self._connection, _COLUMNS, relation.oid
            )
        }

    def _column(self, relation: Relation, number: int, fact: ColumnFacts) -> tuple[Column, int | None]:
        column, expression = relation.columns[number], fact.default
        mapped = map_type(column.type_oid, column.type_modifier, self._types, self._settings)
        schema = mapped.schema if fact.not_null else mapped.schema.as_optional()
        default = default_value(expression, mapped) if expression is not None else None
        if default is not None:
            schema = replace(schema, default=default, has_default=True)
        length = character_length(column.type_oid, column.type_modifier, self._types)
        return Column(column.name, number, schema, mapped.convert, mapped.when_unchanged, mapped.when_missing), length

    def _learn(self, oids: set[int]) -> None:
        """Ask for types that are not known yet, with those that they are made of."""
        wanted = oids - self._types.keys()
        while wanted:
            found: list[tuple[Any, ...]] = rows(self._connection, _TYPES, list(wanted))
            for oid, name, kind, element, base, modifier, labels in found:
                self._types[oid] = PostgresType(oid, name, kind, element, base, modifier, tuple(labels))
            made_of = {oid for row in found for oid in (row[3], row[4]) if oid}
            wanted = made_of - self._types.keys()
