"""Avro to columns and back: by a schema, or by the ids of a registry.

Decoded in Python by fastavro: Spark's `from_avro` needs a jar that its package lacks, and knows no registry.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from ottla.pipeline.rows.avro_types import KEPT_AS_STORED, spark_schema
from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.python_decoding import Decode, decode_column
from ottla.registry.avro import reader_in
from ottla.registry.client import Registry, frame, framed
from ottla.registry.undecodable import Undecodable

AVRO: Final = "AVRO"


def from_avro(
    records: DataFrame,
    schema: str | Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    version: int | None = None,
    column: str = "value",
    keep: tuple[str, ...] = (),
) -> Checked:
    """The Avro record in `column` as columns, beside the columns named in `keep`.

    Without a registry, `schema` (JSON or its parsed form) is the schema the records were written with. With one, each
    record carries the id of its schema, and `schema` is the one it is read as; left out, that is the subject's latest
    schema when the query starts, or its `version`. Records of older and newer schemas are resolved by Avro's rules; a
    record that cannot be is rejected, as is one whose id the registry does not know. A registry that is away fails the
    task.

    Raises ValueError for a schema without columns in Spark, SubjectError, RegistryError.
    """
    references: tuple[tuple[str, str], ...] = ()
    if schema is None:
        if registry is None or subject is None:
            raise ValueError("from_avro needs a schema, or a registry and the subject whose schema rows are read as")
        found = registry.by_subject(subject, AVRO, version)
        text, references = found.text, found.references
    else:
        text = schema if isinstance(schema, str) else json.dumps(schema)
    parsed, named = _parsed(text, references)
    return decode_column(
        records, spark_schema(parsed, named), _Avro(text, references, registry), column=column, keep=keep
    )


def to_avro(
    rows: DataFrame,
    *,
    registry: Registry,
    subject: str,
    schema: str | Mapping[str, Any] | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """Rows as records: `value` in the registry's wire format, by the subject's latest schema, or by `schema`, which is
    registered for the subject. Beside it, the columns named in `keep`: those that `topic(..., key=...)` names.

    A row that does not fit the schema fails its task: what a job writes is its own doing.
    Raises SubjectError, RegistryError, ValueError for fields that the rows lack.
    """
    references: tuple[tuple[str, str], ...] = ()
    if schema is None:
        found = registry.by_subject(subject, AVRO)
        schema_id, text, references = found.schema_id, found.text, found.references
    else:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_id = registry.register(subject, text)
    parsed, _ = _parsed(text, references)
    names = [field["name"] for field in parsed["fields"]]
    missing = [
        field["name"] for field in parsed["fields"] if "default" not in field and field["name"] not in rows.columns
    ]
    if missing:
        raise ValueError(f"the rows lack fields of the Avro schema {parsed['name']}: {', '.join(missing)}")
    struct = F.struct(*(F.col(f"`{name}`") for name in names if name in rows.columns))
    value = _writer(schema_id, text, references)(struct).alias("value")
    return rows.select(*keep, value)


@dataclass(frozen=True, slots=True)
class _Avro:
    """Records written in `text`, or in what their ids say if there is a registry; read as `text`."""

    text: str
    references: tuple[tuple[str, str], ...]
    registry: Registry | None

    def open(self) -> Decode:
        reader, _ = _parsed(self.text, self.references)
        registry = self.registry
        if registry is None:
            return lambda value: _read(value, 0, reader, None)

        readers: dict[int, Callable[[Any, Any, Any], Any]] = {}

        def decode(value: bytes) -> dict[str, Any]:
            head = framed(value)
            found = registry.by_id(head.schema_id, AVRO)
            writer, named = _parsed(found.text, found.references)
            if head.schema_id not in readers:
                readers[head.schema_id] = _reader_in(writer, named)
            return _read(value, head.start, writer, reader, readers[head.schema_id])

        return decode


def _reader_in(writer: Any, named: dict[str, Any]) -> Callable[[Any, Any, Any], Any]:
    try:
        return reader_in(writer, named)
    except ValueError as error:
        raise Undecodable(f"no record can be read by its schema: {error}") from error


def _read(
    value: bytes, start: int, writer: Any, reader: Any, read: Callable[[Any, Any, Any], Any] = schemaless_reader
) -> dict[str, Any]:
    data = BytesIO(value)
    data.seek(start)
    try:
        row: Any = read(data, writer, reader)
    except Exception as error:  # fastavro raises what the bytes happen to lead to
        raise Undecodable(f"malformed Avro: {type(error).__name__}: {error}") from error
    left = len(value) - data.tell()
    if left:
        raise Undecodable(f"malformed Avro: {left} bytes more than the schema describes")
    fields: dict[str, Any] = row
    return fields


@lru_cache(maxsize=256)
def _parsed(text: str, references: tuple[tuple[str, str], ...]) -> tuple[Any, dict[str, Any]]:
    """The schema, and all types that it names. Raises ValueError for what is no schema."""
    named: dict[str, Any] = {}
    try:
        for _, referenced in references:
            parse_schema(_plain(json.loads(referenced)), named_schemas=named)
        parsed = parse_schema(_plain(json.loads(text)), named_schemas=named)
    except Exception as error:  # several libraries' errors
        raise ValueError(f"this is no Avro schema: {type(error).__name__}: {error}") from error
    return parsed, named


def _plain(schema: Any) -> Any:
    """Without the logical types that Spark has no type for."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            name: value if name == "default" else _plain(value)
            for name, value in schema.items()
            if not (name == "logicalType" and value in KEPT_AS_STORED)
        }
    return schema


def _writer(schema_id: int, text: str, references: tuple[tuple[str, str], ...]) -> Any:
    def encode(rows: pa.Array) -> pa.Array:
        schema, _ = _parsed(text, references)
        head = frame(schema_id)
        values = []
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            out = BytesIO()
            out.write(head)
            try:
                schemaless_writer(out, schema, row, strict_allow_default=True)
            except Exception as error:  # fastavro raises what the row happens to lead to
                said = f"{type(error).__name__}: {error}"
                raise ValueError(f"a row does not fit the Avro schema {schema['name']}: {said}; it is {row}") from error
            values.append(out.getvalue())
        return pa.array(values, pa.binary())

    return arrow_udf(encode, returnType="binary")  # type: ignore[call-overload]  # its stub requires the kind
