"""Spark's types as a database's, and back."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.pipeline.sinks.base import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType
    from sqlalchemy import Column, Dialect, Table

_KEY_CHARACTERS: Final = 255
"""Length of a text in a key: some databases cannot have keys of any length."""
_EXACT: Final = Context(prec=80)
_ROWS_AT_ONCE: Final = 1_000
_EXACT_SINCE: Final = (8, 0, 17)
"""MySQL has a collation that keeps blanks at the end since then."""


def as_columns(rows: pa.Schema, key: tuple[str, ...], dialect: "Dialect", what: str) -> "list[Column[Any]]":
    """Columns of a table to be made, the key as its primary key. Raises SinkError for a type that has no like.

    dialect: SQLAlchemy's, of a server that has been reached.
    """
    from sqlalchemy import Column, Text

    columns = []
    for field in rows:
        kind = _sql_type(field.type)
        if kind is None:
            raise SinkError(f"{what} cannot have column '{field.name}', which is {field.type}: cast it")
        in_key = field.name in key
        if in_key and isinstance(kind, Text):
            kind = _key_text(dialect)
        columns.append(Column(field.name, kind, primary_key=in_key, nullable=not in_key, autoincrement=False))
    return columns


def _key_text(dialect: Any) -> Any:
    """A text that is the same as another if every character is: MySQL's and MariaDB's are not by themselves."""
    from sqlalchemy import String
    from sqlalchemy.dialects import mysql

    if dialect.name not in ("mysql", "mariadb"):
        return String(_KEY_CHARACTERS)
    collation = "utf8mb4_nopad_bin"
    if not dialect.is_mariadb:
        collation = "utf8mb4_0900_bin" if dialect.server_version_info >= _EXACT_SINCE else "utf8mb4_bin"
    return mysql.VARCHAR(_KEY_CHARACTERS, charset="utf8mb4", collation=collation)


def python_rows(rows: pa.Table, dialect: str, at_once: int = _ROWS_AT_ONCE) -> Iterator[list[dict[str, Any]]]:
    """Rows as parameters of statements, some at once."""
    decimals = [field.name for field in rows.schema if pa.types.is_decimal(field.type)]
    for batch in rows.to_batches(max_chunksize=at_once):
        parameters: list[dict[str, Any]] = batch.to_pylist()
        if dialect == "sqlite":  # has no decimals: the text keeps every digit
            for row in parameters:
                row.update({name: str(row[name]) for name in decimals if row[name] is not None})
        if parameters:
            yield parameters


def arrow_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of a database in Arrow's types. A time without a zone is in UTC where the column has one."""
    columns = [pa.array([_as_arrow(row[field.name], field.type) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_arrow(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if pa.types.is_boolean(kind):
        return bool(value)
    if pa.types.is_timestamp(kind) and kind.tz is not None and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def as_json(value: object) -> str:
    """Lists, maps and structs for a column of JSON; what JSON does not know becomes text."""
    return json.dumps(value, default=lambda each: each.hex() if isinstance(each, bytes) else str(each))


def as_spark_schema(table: "Table") -> "StructType":
    """The types in which the table's rows come back. Raises SinkError for a type that has no like."""
    from pyspark.sql import types as spark
    from sqlalchemy import types as sql

    likes: tuple[tuple[Any, DataType], ...] = (
        (sql.BigInteger, spark.LongType()),
        (sql.SmallInteger, spark.ShortType()),
        (sql.Integer, spark.LongType()),  # SQLite has longs in them
        (sql.Float, spark.DoubleType()),
        (sql.Boolean, spark.BooleanType()),
        (sql.DateTime, spark.TimestampType()),
        (sql.Date, spark.DateType()),
        (sql.LargeBinary, spark.BinaryType()),
        (sql.String, spark.StringType()),
    )
    fields = []
    for column in table.columns:
        if isinstance(column.type, sql.Numeric) and not isinstance(column.type, sql.Float):
            kind: DataType | None = spark.DecimalType(column.type.precision or 38, column.type.scale or 0)
        else:
            kind = next((like for of, like in likes if isinstance(column.type, of)), None)
        if kind is None:
            raise SinkError(f"column '{column.name}' of table {table.name} is {column.type}, which cannot be read back")
        fields.append(spark.StructField(column.name, kind))
    return spark.StructType(fields)


def _sql_type(kind: Any) -> Any:
    """SQLAlchemy's type for an Arrow type, or None."""
    import sqlalchemy as sql

    if pa.types.is_decimal(kind):
        return sql.Numeric(kind.precision, kind.scale).with_variant(sql.Text(), "sqlite")
    if pa.types.is_timestamp(kind):
        return sql.DateTime(timezone=kind.tz is not None)
    likes: tuple[tuple[Any, Any], ...] = (
        (pa.types.is_string, sql.Text()),
        (pa.types.is_int64, sql.BigInteger()),
        (pa.types.is_int32, sql.Integer()),
        (pa.types.is_integer, sql.SmallInteger()),
        (pa.types.is_float64, sql.Double()),
        (pa.types.is_float32, sql.Float()),
        (pa.types.is_boolean, sql.Boolean()),
        (pa.types.is_date, sql.Date()),
        (pa.types.is_binary, sql.LargeBinary()),
        (pa.types.is_nested, sql.JSON()),
    )
    return next((like for is_kind, like in likes if is_kind(kind)), None)
