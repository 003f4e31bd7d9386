"""PURE: names of tables and columns, and what databases make of them."""

from collections.abc import Collection, Iterable
from typing import Final

from ottla.connect.api import ConnectError

_MOST_BYTES: Final = {"postgresql": 63}
"""PostgreSQL cuts longer names off without an error: two topics would share a table."""
_MOST_CHARACTERS: Final = {"mysql": 64, "mariadb": 64}
_REGARDLESS_OF_CASE: Final = ("mysql", "mariadb", "sqlite")
"""Databases to which columns whose names differ by case alone are the same."""


def split_name(name: str) -> tuple[str | None, str]:
    """`schema.table` as its two names."""
    schema, _, table = name.rpartition(".")
    return schema or None, table


def check_names(dialect: str, table: str, fields: Iterable[str], columns: Collection[str] = ()) -> None:
    """Raise ConnectError for names that a database cannot hold, or takes for the names of others.

    columns: names of those that the table has.
    """
    for part in filter(None, split_name(table)):
        said = _too_long(dialect, part)
        if said is not None:
            raise ConnectError(
                f"table {table} cannot be made: {said}; give it a shorter name by table.name.format or a transform "
                "(RegexRouter)"
            )
    known = {each.lower(): each for each in columns}
    for field in fields:
        said = _too_long(dialect, field)
        if said is not None:
            raise ConnectError(f"table {table} cannot have column {field}: {said}; rename the field (ReplaceField)")
        if dialect in _REGARDLESS_OF_CASE:
            other = known.setdefault(field.lower(), field)
            if other != field:
                raise ConnectError(
                    f"table {table} cannot have both columns {other} and {field}, which differ in case alone: rename "
                    "the field (ReplaceField), or leave it out by fields.whitelist"
                )


def _too_long(dialect: str, name: str) -> str | None:
    most = _MOST_BYTES.get(dialect)
    if most is not None and (size := len(name.encode("utf-8", "surrogatepass"))) > most:
        return f"names have at most {most} bytes, and this one {size}"
    most = _MOST_CHARACTERS.get(dialect)
    if most is not None and len(name) > most:
        return f"names have at most {most} characters, and this one {len(name)}"
    return None
