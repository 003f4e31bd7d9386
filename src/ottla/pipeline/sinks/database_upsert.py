"""Rows by key, in each database's own way."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table


def upsert(connection: "Connection", table: "Table", key: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Put rows in the place of those with the same key; no key comes twice in `rows`.

    One statement where the database has one and the key is unique to it; otherwise rows are deleted and inserted.
    """
    from sqlalchemy import insert
    from sqlalchemy.dialects import mysql, postgresql, sqlite

    others = [name for name in rows[0] if name not in key]
    dialect = connection.dialect.name
    if _is_unique(connection, table, key):
        if dialect in ("postgresql", "sqlite"):
            statement: Any = (postgresql if dialect == "postgresql" else sqlite).insert(table)
            if others:
                changes = {name: statement.excluded[name] for name in others}
                statement = statement.on_conflict_do_update(index_elements=list(key), set_=changes)
            else:
                statement = statement.on_conflict_do_nothing(index_elements=list(key))
            connection.execute(statement, rows)
            return
        if dialect in ("mysql", "mariadb"):
            into: Any = mysql.insert(table)
            changes = {name: into.inserted[name] for name in others or key}
            connection.execute(into.on_duplicate_key_update(changes), rows)
            return
    remove(connection, table, key, rows)
    connection.execute(insert(table), rows)


def rows_of(
    connection: "Connection",
    table: "Table",
    key: tuple[str, ...],
    keys: list[dict[str, Any]],
    columns: tuple[str, ...],
) -> list[dict[str, Any]]:
    """These columns of the rows with one of the keys."""
    from sqlalchemy import and_, or_, select

    is_one = or_(*(and_(*(table.c[name] == each[name] for name in key)) for each in keys))
    found = connection.execute(select(*(table.c[name] for name in columns)).where(is_one))
    return [dict(row) for row in found.mappings()]


def remove(connection: "Connection", table: "Table", key: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Delete the rows that have the keys of `rows`."""
    from sqlalchemy import bindparam, delete

    of_the_key = [table.c[name] == bindparam(f"key_{number}") for number, name in enumerate(key)]
    keys = [{f"key_{number}": row[name] for number, name in enumerate(key)} for row in rows]
    connection.execute(delete(table).where(*of_the_key), keys)


def _is_unique(connection: "Connection", table: "Table", key: tuple[str, ...]) -> bool:
    """Does the database itself hold the key unique?"""
    from sqlalchemy import inspect

    wanted = set(key)
    if {column.name for column in table.primary_key} == wanted:
        return True
    inspector = inspect(connection)
    constraints = inspector.get_unique_constraints(table.name, schema=table.schema)
    if any(set(each["column_names"]) == wanted for each in constraints):
        return True
    indexes = inspector.get_indexes(table.name, schema=table.schema)
    return any(
        each["unique"] and set(each["column_names"]) == wanted and not each.get("dialect_options", {})
        for each in indexes
    )
