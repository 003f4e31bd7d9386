"""Which rows refer to a row of a table that is there: a join that neither adds nor loses rows.

This is the only place that knows how a reference is looked up: in the table as it is in the micro-batch, or in its
history, as it was at the time of the row. Both give a column that is true or false.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType, StringType

from ottla.pipeline import names
from ottla.pipeline.errors import JobError

if TYPE_CHECKING:
    from ottla.pipeline.rows.history import Versions

References = str | Sequence[str] | Mapping[str, str]
"""Columns of the rows that refer to the table's of the same names, or to those that a mapping names."""

_KEY: Final = "__ottla_reference_"
_THERE: Final = "__ottla_is_there"


def with_reference(rows: DataFrame, columns: References, table: DataFrame, *, into: str, what: str) -> DataFrame:
    """`rows` with a boolean column `into`: whether the table has a row with these values, or a value is null.

    A reference of which a part is null refers to nothing, as with foreign keys in SQL. `what` names the expectation in
    errors. Raises JobError for columns that are missing or cannot be compared, and for a table that is a stream.
    """
    pairs = _pairs(columns)
    if not pairs:
        raise JobError(f"{what} names no column: say which one refers to the table")
    if table.isStreaming:
        raise JobError(
            f"{what} refers to a stream, which never has all of its rows: give it a table(...), or join the two streams"
        )
    for column, key in pairs.items():
        _check_comparable(
            _type(rows, column, f"{what}: the rows have"), _type(table, key, f"{what}: the table has"), what
        )
    keys = {f"{_KEY}{number}": F.col(_quoted(key)) for number, key in enumerate(pairs.values())}
    there = table.select(*(key.alias(name) for name, key in keys.items())).distinct().withColumn(_THERE, F.lit(True))
    own = [F.col(_quoted(column)) for column in pairs]
    is_same = reduce(and_, (mine == F.col(name) for mine, name in zip(own, keys, strict=True)))
    refers = reduce(and_, (mine.isNotNull() for mine in own))
    joined = rows.join(there, is_same, "left")
    return joined.withColumn(into, ~refers | F.col(_THERE).isNotNull()).drop(*keys, _THERE)


def with_reference_as_of(
    rows: DataFrame,
    columns: References,
    versions: "Versions",
    *,
    at: str,
    where: Column,
    is_strict: bool,
    into: str,
    what: str,
) -> DataFrame:
    """As `with_reference`, by the table as it was at the time `at` of each row, for rows that are `where`: others have
    true. A time that the history does not know gives false, or is an error if `is_strict`. Raises JobError."""
    from ottla.pipeline.rows.history import with_existence

    by_key = {key: column for column, key in _pairs(columns).items()}
    if by_key.keys() != set(versions.key):
        raise JobError(
            f"{what} refers to {', '.join(by_key) or 'no column'} of {versions}, which is looked up by its key: "
            f"{', '.join(versions.key)}"
        )
    own = tuple(by_key[key] for key in versions.key)
    found = with_existence(rows, versions, on=own, at=at, where=where, is_strict=is_strict, into=into, what=what)
    return found.withColumn(into, F.coalesce(F.col(into), F.lit(True)))


def _pairs(columns: References) -> dict[str, str]:
    if isinstance(columns, str):
        return {columns: columns}
    return dict(columns) if isinstance(columns, Mapping) else {each: each for each in columns}


def _type(rows: DataFrame, column: str, who: str) -> DataType:
    found = {field.name.lower(): field.dataType for field in rows.schema.fields if not field.name.startswith("__ottla")}
    if column.lower() not in found:
        hint = names.did_you_mean(column, list(found), otherwise=f"; there are {', '.join(found)}")
        raise JobError(f"{who} no column {column!r}{hint}")
    return found[column.lower()]


def _check_comparable(mine: DataType, key: DataType, what: str) -> None:
    """Spark would compare a text with a number by casting it, and fail at the first that is none."""
    alike = (NumericType, StringType)
    if mine != key and not any(isinstance(mine, kind) and isinstance(key, kind) for kind in alike):
        raise JobError(
            f"{what} compares {mine.simpleString().upper()} with the table's {key.simpleString().upper()}: cast one of "
            "them first"
        )


def _quoted(column: str) -> str:
    return f"`{column}`"
