"""Decoders in Python, run over Arrow: bytes of a column in, a struct of the row or the reason why not out.

For formats whose functions in Spark need jars that its package lacks. Only the column of bytes goes to Python.
"""

import os
import time
from collections.abc import Callable, Hashable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipeline.rows.checked import Checked, decoded, source_of
from ottla.registry.client import RegistryAwayError
from ottla.registry.undecodable import Undecodable, UndecodableYet

Decode = Callable[[bytes], dict[str, Any]]
"""One record to the fields of a row. Raises Undecodable."""

_NEW_FOR_S: Final = 60.0
"""For so long a record's schema may be on its way to the registry."""
_ROW: Final = "__ottla_row"
_WHY: Final = "__ottla_why"
_FROM: Final = "__ottla_decoded_from"


class Format(Hashable, Protocol):
    """What the records are written in: a value that goes to the workers, where it is opened once per process."""

    def open(self) -> Decode: ...


def decode_column(
    records: DataFrame, schema: StructType, written_in: Format, *, column: str, keep: tuple[str, ...]
) -> Checked:
    """The bytes in `column` as columns of `schema`, and those named in `keep` beside.

    Raises ValueError for a schema that names a column of `keep`.
    """
    twice = sorted(set(schema.names) & set(keep))
    if twice:
        raise ValueError(f"columns of the record cannot be kept, the schema has them too: {', '.join(twice)}")
    decode = _function(schema, written_in)
    has_time = dict(records.dtypes).get("timestamp") == "timestamp"
    written_at = F.col("timestamp") if has_time else F.lit(None).cast("timestamp")
    # `inline` keeps what follows above it: Spark would decode once for each place that a mere projection is named in.
    frame = records.select(*keep, source_of(records).alias(_FROM), F.inline(F.array(decode(F.col(column), written_at))))
    return decoded(
        frame,
        *keep,
        *(F.col(f"{_ROW}.`{name}`") for name in schema.names),
        source=F.col(_FROM),
        is_well=F.col(_WHY).isNull(),
        reason=F.col(_WHY),
    )


def _function(schema: StructType, written_in: Format) -> Callable[[Column, Column], Column]:
    returned = StructType([StructField(_ROW, schema), StructField(_WHY, StringType())])
    row_type: Any = to_arrow_type(schema, timezone="UTC")

    def decode(values: pa.Array, written_at: pa.Array) -> pa.Array:
        return decode_array(values, _opened(written_in, os.getpid()), row_type, written_at)

    function: Callable[[Column, Column], Column] = arrow_udf(  # type: ignore[call-overload]  # its stub requires a kind
        decode, returnType=returned
    )
    return function


@lru_cache(maxsize=16)
def _opened(written_in: Format, process_id: int) -> Decode:
    return written_in.open()


def decode_array(
    values: pa.Array, decode: Decode, row_type: pa.DataType, written_at: pa.Array | None = None
) -> pa.Array:
    """An array of structs: the row, and null, or null and why it could not be decoded.

    `written_at` are the times of the records. Raises RegistryAwayError for one whose schema may yet come.
    """
    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for number, value in enumerate(values.to_pylist()):
        row, reason = None, None
        if value is None:
            reason = "no value (a tombstone)"
        else:
            try:
                row = decode(value)
            except UndecodableYet as error:
                if written_at is not None and _is_new(written_at[number].as_py()):
                    # rejected now, it could pass in the other query, which comes a moment later: it would be written
                    # twice, or in the other order not at all
                    raise RegistryAwayError(f"the registry does not know a record's schema yet: {error}") from error
                reason = str(error)
            except Undecodable as error:
                reason = str(error)
        rows.append(row)
        reasons.append(reason)
    try:
        column = pa.array(rows, row_type)
    except (pa.ArrowException, OverflowError, ValueError):  # one of them: find out which
        column = _one_by_one(rows, reasons, row_type)
    return pa.StructArray.from_arrays([column, pa.array(reasons, pa.string())], names=[_ROW, _WHY])


def _is_new(written_at: datetime | None) -> bool:
    return written_at is not None and time.time() - written_at.timestamp() < _NEW_FOR_S


def _one_by_one(rows: list[dict[str, Any] | None], reasons: list[str | None], row_type: pa.DataType) -> pa.Array:
    for number, row in enumerate(rows):
        try:
            pa.array([row], row_type)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            rows[number] = None
            reasons[number] = f"wrong type: {error}"
    return pa.array(rows, row_type)
