"""All versions of rows in a table of a database. The table has no primary key, but an index by the rows' key."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.sinks.database_types import python_rows
from ottla.pipeline.sinks.intervals import Key, Last
from ottla.pipeline.sinks.versions import VersionedChanges, keys_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

_KEYS_AT_ONCE: Final = 200
"""Databases limit the parameters of a statement."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)


def apply(connection: "Connection", table: "Table", changes: VersionedChanges, truncated: int | None) -> None:
    """Add versions, and end those before them. `truncated`: when the captured table was truncated before, if ever."""
    from sqlalchemy import bindparam, insert, update

    known = _known(connection, table, changes)
    versions = changes.versions(known, truncated)
    is_open = table.c[VALID_TO].is_(None)
    of_the_key = [table.c[name] == bindparam(f"key_{place}") for place, name in enumerate(changes.key)]
    end = update(table).where(*of_the_key, is_open).values({VALID_TO: bindparam("ended_at")})
    for some in python_rows(versions.ended, connection.dialect.name):
        parameters = [
            {f"key_{place}": row[name] for place, name in enumerate(changes.key)} | {"ended_at": row[VALID_TO]}
            for row in some
        ]
        connection.execute(end, parameters)
    for some in python_rows(versions.added, connection.dialect.name):
        connection.execute(insert(table), some)
    for at in map(_datetime, sorted(changes.truncates)):  # rows of other keys
        connection.execute(update(table).where(is_open, table.c[VALID_FROM] < at).values({VALID_TO: at}))


def _known(connection: "Connection", table: "Table", changes: VersionedChanges) -> dict[Key, Last]:
    from sqlalchemy import and_, case, func, or_, select

    keys, columns = changes.keys, [table.c[name] for name in changes.key]
    dialect = connection.dialect.name
    by_parameters = {
        tuple(map(_comparable, row.values())): key
        for row, key in zip(
            (row for some in python_rows(keys, dialect) for row in some), keys_of(keys, changes.key), strict=True
        )
    }
    newest = func.max(func.coalesce(table.c[VALID_TO], table.c[VALID_FROM]))
    is_open = func.max(case((table.c[VALID_TO].is_(None), 1), else_=0))
    asked = select(*columns, newest, is_open).group_by(*columns)
    found: dict[Key, Last] = {}
    for some in python_rows(keys, dialect, _KEYS_AT_ONCE):
        of_these: Any
        if len(columns) == 1:
            of_these = columns[0].in_([row[changes.key[0]] for row in some])
        else:
            of_these = or_(*(and_(*(table.c[name] == row[name] for name in changes.key)) for row in some))
        for *values, at, open_ in connection.execute(asked.where(of_these)):
            key = by_parameters.get(tuple(map(_comparable, values)))
            if key is not None:
                found[key] = Last((_aware(at) - _EPOCH) // _US, bool(open_))
    return found


def _comparable(value: Any) -> Any:
    return _aware(value) if isinstance(value, datetime) else value


def _aware(at: datetime) -> datetime:
    """Some databases have no zones: what is in them is UTC."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _datetime(us: int) -> datetime:
    return _EPOCH + us * _US
