"""Rows put and removed as PostgreSQL is fastest at: by COPY, and for all but inserts into a temporary table first, from
which one statement moves them.
"""

import hashlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.relational.copy_text import copy_text
from ottla.connect.connectors.relational.steps import Row, Step

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_CHUNK: Final = 1 << 18
"""Bytes handed to the driver at once."""
_NUMBER: Final = "__ottla_number"
_KEPT: Final = 16
"""Temporary tables that stay though they were not used lately: each commit empties all there are, a file each."""


class Copying:
    """Runs steps in one transaction.

    The temporary tables stay with the connection, for the same columns of the same types of the same table, and are
    empty after each transaction: made anew each time they would fill the system's catalogs with the dead. Those that
    neither this transaction nor the one before it has used go when there are many.
    """

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._quote = connection.dialect.identifier_preparer.quote
        self._used: set[str] = set()
        self._kept: dict[str, int] = connection.info.setdefault("ottla_rows", {})
        """Temporary tables of the connection, and which of its transactions was the last to use them; in this order."""
        self._number = next(reversed(self._kept.values()), 0) + 1
        self._types: dict[str, dict[str, tuple[int, int]]] = {}

    def run(self, table: "Table", step: Step, mode: str) -> None:
        """Remove and put the rows of a step; `mode`: insert, upsert or update.

        Rows that have not all columns of their table (`Shape.whole`) are changed before they are added: no column that
        may not be null can be left out of an upsert, even of a row that is there.
        """
        if step.removed:
            self._remove(table, step)
        if not step.put:
            return
        if mode == "insert":
            self._copy(f"{self._target(table)} ({self._list(step.shape.names)})", step.put)
        else:
            self._move(table, step, mode)

    def _remove(self, table: "Table", step: Step) -> None:
        key = step.shape.key
        rows = self._staged(table, key, step.removed)
        self._execute(f"DELETE FROM {self._target(table)} t USING {rows} r WHERE {self._same(key)}")

    def _move(self, table: "Table", step: Step, mode: str) -> None:
        names, key, target, quote = step.shape.names, step.shape.key, self._target(table), self._quote
        columns, same = self._list(names), self._same(key)
        rows = self._staged(table, names, step.put, numbered=step.repeating)
        if step.repeating:
            keys = self._list(key)
            rows = f"(SELECT DISTINCT ON ({keys}) {columns} FROM {rows} ORDER BY {keys}, {_NUMBER} DESC)"
        others = [name for name in names if name not in key]
        partial = mode == "upsert" and step.shape.whole is not None
        if mode == "update" or partial:
            changes = ", ".join(f"{quote(name)} = r.{quote(name)}" for name in others)
            if changes:
                self._execute(f"UPDATE {target} t SET {changes} FROM {rows} r WHERE {same}")
            if mode == "update":
                return
        changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
        then = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        fresh = f" WHERE NOT EXISTS (SELECT FROM {target} t WHERE {same})" if partial else ""
        on_key = f"ON CONFLICT ({self._list(key)}) {then}"
        self._execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {rows} r{fresh} {on_key}")

    def _staged(self, table: "Table", names: Sequence[str], rows: list[Row], *, numbered: bool = False) -> str:
        """Rows in a temporary table with the target's types, and with their numbers if asked for; its name."""
        columns, target = self._list(names), self._target(table)
        if numbered:
            columns += f", 0 AS {_NUMBER}"
            rows = [(*row, number) for number, row in enumerate(rows)]
        types = self._types_in(target)
        kinds = [types.get(name) for name in names]
        known_by = hashlib.sha256(repr((target, columns, kinds)).encode()).hexdigest()[:24]
        name = f"ottla_rows_{known_by}"
        staged = f"pg_temp.{name}"
        if name in self._used:
            self._execute(f"DELETE FROM {staged}")
        else:
            if not self._used:
                self._drop_old_tables()
            self._used.add(name)
            self._kept.pop(name, None)
            self._kept[name] = self._number
            self._execute(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS "
                f"AS SELECT {columns} FROM {target} WITH NO DATA"
            )
        self._copy(staged, rows)
        return staged

    def _drop_old_tables(self) -> None:
        """Drop old temporary tables. They are forgotten when they are seen to be gone, for this may be rolled back."""
        if len(self._kept) <= _KEPT:
            return
        there = {
            name
            for (name,) in self._connection.exec_driver_sql(
                "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = pg_my_temp_schema()"
            )
        }
        for name in self._kept.keys() - there:
            del self._kept[name]
        old = [name for name, used in self._kept.items() if used < self._number - 1]
        old = old[: max(0, len(self._kept) - _KEPT)]
        if old:
            self._execute(f"DROP TABLE IF EXISTS {', '.join(f'pg_temp.{name}' for name in old)}")

    def _types_in(self, target: str) -> dict[str, tuple[int, int]]:
        """The types of a table's columns, with their modifiers (digits, say): of this moment, and of the rest of the
        transaction, for the table cannot be altered after it has been named in it.
        """
        found = self._types.get(target)
        if found is None:
            quoted = target.replace("'", "''")
            rows = self._connection.exec_driver_sql(
                "SELECT attname, atttypid, atttypmod FROM pg_catalog.pg_attribute WHERE attnum > 0 "
                f"AND attrelid = '{quoted}'::regclass AND NOT EXISTS (SELECT FROM {target} WHERE false)"
            )
            found = self._types[target] = {name: (kind, modifier) for name, kind, modifier in rows}
        return found

    def _copy(self, into: str, rows: list[Row]) -> None:
        from sqlalchemy.exc import DataError, DBAPIError

        statement = f"COPY {into} FROM STDIN (ENCODING 'UTF8')"
        cursor: Any = self._connection.connection.cursor()
        dialect = self._connection.dialect
        errors: Any = dialect.loaded_dbapi.Error
        try:
            data = copy_text(rows)
            if dialect.driver == "psycopg":
                with cursor.copy(statement) as copy:
                    copy.write(data)
            else:
                cursor.copy_expert(statement, io.BytesIO(data), _CHUNK)
        except UnicodeEncodeError as error:  # a half of a character
            raise DataError(statement, None, error) from error
        except errors as error:  # as SQLAlchemy would raise it, which knows nothing of COPY
            raise DBAPIError.instance(statement, None, error, errors, dialect=dialect) from error
        finally:
            cursor.close()

    def _execute(self, statement: str) -> None:
        self._connection.exec_driver_sql(statement)

    def _target(self, table: "Table") -> str:
        return str(self._connection.dialect.identifier_preparer.format_table(table))

    def _list(self, names: Sequence[str]) -> str:
        return ", ".join(map(self._quote, names))

    def _same(self, key: Sequence[str]) -> str:
        return " AND ".join(f"t.{self._quote(name)} = r.{self._quote(name)}" for name in key)
