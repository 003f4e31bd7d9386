"""Rows put and removed by statements that any database takes, and upserts as SQLite and MySQL have them.

PostgreSQL has a way of its own (`copying.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from ottla.connect.connectors.relational.steps import Row, Step

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table


def run(connection: "Connection", table: "Table", step: Step, mode: str) -> None:
    """Remove and put the rows of a step; `mode`: insert, upsert or update.

    Rows that have not all columns of their table (`Shape.whole`) are changed before they are added: no column that may
    not be null can be left out of an upsert, even of a row that is there.
    """
    if connection.dialect.name == "sqlite":
        step = replace(step, removed=_plain(step.removed), put=_plain(step.put))
    if step.removed:
        _remove(connection, table, step)
    if step.put:
        if connection.dialect.name in ("mysql", "mariadb"):
            _check_whole(table, step)
        _put(connection, table, step, mode)


def _check_whole(table: "Table", step: Step) -> None:
    """Raises StatementError for a fraction where the column has whole numbers: these databases round it, silently."""
    from sqlalchemy import Integer
    from sqlalchemy.exc import StatementError

    for number, name in enumerate(step.shape.names):
        if not isinstance(table.c[name].type, Integer):
            continue
        for row in step.put:
            value = row[number]
            if value.__class__ is int or value is None or not _has_fraction(value):
                continue
            sentence = (
                f"column {name} has whole numbers, to which {value!r:.100} would be rounded: change its type to DOUBLE "
                "or DECIMAL"
            )
            raise StatementError(sentence, None, None, ValueError(sentence))


def _has_fraction(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value) and not value.is_integer()  # the database refuses the others
    if isinstance(value, Decimal | str):
        try:
            found = Decimal(value)
        except ArithmeticError:
            return False
        return found.is_finite() and found != found.to_integral_value()
    return False


def _remove(connection: "Connection", table: "Table", step: Step) -> None:
    from sqlalchemy import bindparam, delete

    of_key = [table.c[name] == bindparam(f"key_{n}") for n, name in enumerate(step.shape.key)]
    keys = [{f"key_{n}": value for n, value in enumerate(row)} for row in step.removed]
    connection.execute(delete(table).where(*of_key), keys)


def _put(connection: "Connection", table: "Table", step: Step, mode: str) -> None:
    from sqlalchemy import bindparam, insert, update
    from sqlalchemy.dialects import mysql, sqlite

    names, key = step.shape.names, step.shape.key
    others = [name for name in names if name not in key]
    rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in step.put]
    partial = mode == "upsert" and step.shape.whole is not None
    if mode == "update" or partial:
        if others:
            of_key = [table.c[name] == bindparam(f"key_{n}") for n, name in enumerate(key)]
            changed: dict[str, Any] = {name: bindparam(f"new_{n}") for n, name in enumerate(others)}
            parameters = [
                {f"key_{n}": row[name] for n, name in enumerate(key)}
                | {f"new_{n}": row[name] for n, name in enumerate(others)}
                for row in rows
            ]
            connection.execute(update(table).where(*of_key).values(changed), parameters)
        if not partial:
            return
        rows = [row for row in rows if not _is_there(connection, table, key, row)]
        if not rows:
            return
    statement: Any = insert(table)
    if mode == "upsert" and connection.dialect.name == "sqlite":
        statement = sqlite.insert(table)
        changes = {name: statement.excluded[name] for name in others}
        on_key: dict[str, Any] = {"index_elements": list(key)}
        statement = (
            statement.on_conflict_do_update(set_=changes, **on_key)
            if others
            else statement.on_conflict_do_nothing(**on_key)
        )
    elif mode == "upsert":
        statement = mysql.insert(table)
        statement = statement.on_duplicate_key_update({name: statement.inserted[name] for name in others or key})
    connection.execute(statement, rows)


def _is_there(connection: "Connection", table: "Table", key: Sequence[str], row: dict[str, Any]) -> bool:
    from sqlalchemy import select

    of_key = [table.c[name] == row[name] for name in key]
    return connection.execute(select(table.c[key[0]]).where(*of_key)).first() is not None


def _plain(rows: Sequence[Row]) -> list[Row]:
    """SQLite has no decimals: their texts keep every digit."""
    return [tuple([f"{value:f}" if value.__class__ is Decimal else value for value in row]) for row in rows]
