"""JSON to columns, by Spark's own functions. What does not fit the schema is rejected, never nulled.

Spark's `from_json` reads the first document of a text and ignores what follows, takes the first object of an array, and
gives nulls for what it cannot read. So the text is read as the one element of an array, `{"row": [<text>]}`, whose end
has to be met, and a row is well if the array has one element and nothing in it was corrupt. Only for the others is it
found out what is wrong.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from ottla.pipeline.rows.checked import Checked, decoded, source_of

_TEXT: Final = "__ottla_text"
_ROW: Final = "__ottla_row"
_SOURCE: Final = "__ottla_decoded_from"
_CORRUPT: Final = "__ottla_corrupt"


def from_json(
    records: DataFrame,
    schema: StructType | str,
    *,
    column: str = "value",
    keep: tuple[str, ...] = (),
    options: Mapping[str, str] | None = None,
) -> Checked:
    """The JSON object in `column` (text, or bytes in UTF-8) as columns of `schema`, beside the columns named in `keep`.

    A field that is NOT NULL in the schema is required. A row is rejected for one of these reasons:

        no value (a tombstone)           not UTF-8           malformed JSON           not one JSON object
        missing required field 'x'       wrong type: 'x' is STRING, not INT

    Fields that are not in the schema are ignored, as by Spark; `options` are those of Spark's `from_json`.
    Raises ValueError for a schema that names a column of `keep`.
    """
    wanted = parse_schema(schema)
    twice = sorted(set(wanted.names) & set(keep))
    if twice:
        raise ValueError(f"columns of the record cannot be kept, the schema has them too: {', '.join(twice)}")
    text = F.col(column).cast("string")
    row_type = _nullable(wanted)
    whole = StructType([StructField(_ROW, ArrayType(row_type)), StructField(_CORRUPT, StringType())])
    given = {**(options or {}), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(F.coalesce(_wrapped(text), F.lit("")), whole, given)
    # `inline` keeps what follows above it: Spark would parse once for each place that a mere projection is named in.
    frame = records.select(*keep, text.alias(_TEXT), source_of(records).alias(_SOURCE), F.inline(F.array(parsed)))
    row = F.get(F.col(_ROW), F.lit(0))
    is_whole = F.col(_CORRUPT).isNull() & F.coalesce(F.size(_ROW) == 1, F.lit(False)) & row.isNotNull()
    is_utf8 = F.coalesce(F.is_valid_utf8(_TEXT), F.lit(False))
    missing = list(_required(wanted, row, ()))
    return decoded(
        frame,
        *keep,
        *(row.getField(name).alias(name) for name in wanted.names),
        source=F.col(_SOURCE),
        is_well=reduce(and_, (~gone for _, gone in missing), is_utf8 & is_whole),
        reason=F.when(F.col(_TEXT).isNull(), F.lit("no value (a tombstone)"))
        .when(~is_utf8, F.lit("not UTF-8"))
        .when(~is_whole, _why_corrupt(F.col(_TEXT), row_type, row, given))
        .otherwise(F.coalesce(*(_missing(name, gone) for name, gone in missing), F.lit(None).cast("string"))),
    )


def _wrapped(text: Column) -> Column:
    return F.concat(F.lit(f'{{"{_ROW}":['), text, F.lit("]}"))


def parse_schema(schema: StructType | str) -> StructType:
    """A schema as Spark has it. Raises ValueError for one without columns."""
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ValueError(f"a schema names columns, such as 'carrier STRING NOT NULL, delay INT'; this is {schema!r}")
    return parsed


def _nullable(schema: StructType) -> StructType:
    """The schema as it is read: what is required is looked at afterwards."""
    return StructType([StructField(field.name, _relaxed(field.dataType)) for field in schema.fields])


def _relaxed(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return _nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_relaxed(kind.elementType))
    return kind


def _why_corrupt(text: Column, row_type: StructType, row: Column, options: dict[str, str]) -> Column:
    """As text anything can be read that is JSON at all, so what then is corrupt is malformed."""
    as_text = StructType([StructField(_ROW, ArrayType(StringType())), StructField(_CORRUPT, StringType())])
    loose = F.from_json(_wrapped(text), as_text, options)
    is_malformed = loose.getField(_CORRUPT).isNotNull() | (F.size(loose.getField(_ROW)) == 0)
    document = F.try_parse_json(text)
    is_object = F.trim(text).startswith("{") & (F.size(loose.getField(_ROW)) == 1)
    return (
        F.when(F.coalesce(is_malformed, F.lit(True)), F.lit("malformed JSON"))
        .when(~is_object, F.lit("not one JSON object"))
        .otherwise(F.coalesce(*_wrong_types(row_type, row, document, ()), F.lit("wrong type")))
    )


def _wrong_types(schema: StructType, row: Column, document: Column, path: tuple[str, ...]) -> Iterator[Column]:
    for field in schema.fields:
        here = (*path, field.name)
        value = row.getField(field.name)
        found = F.try_variant_get(document, _variant_path(here), "variant")
        is_wrong = value.isNull() & found.isNotNull() & ~F.is_variant_null(found)
        wanted = field.dataType.simpleString().upper()
        said = F.concat(
            F.lit(f"wrong type: '{'.'.join(here)}' is "), F.schema_of_variant(found), F.lit(f", not {wanted}")
        )
        yield F.when(is_wrong, said)
        if isinstance(field.dataType, StructType):
            yield from _wrong_types(field.dataType, value, document, here)


def _variant_path(path: tuple[str, ...]) -> str:
    return "$" + "".join(f"['{name}']" for name in path)


def _missing(name: str, gone: Column) -> Column:
    return F.when(gone, F.lit(f"missing required field '{name}'"))


def _required(schema: StructType, row: Column, path: tuple[str, ...]) -> Iterator[tuple[str, Column]]:
    """Names of the required fields, and whether they are absent; inside a struct only where the struct is there."""
    for field in schema.fields:
        value = row.getField(field.name)
        here = (*path, field.name)
        if not field.nullable:
            yield ".".join(here), value.isNull()
        if isinstance(field.dataType, StructType):
            for name, gone in _required(field.dataType, value, here):
                yield name, value.isNotNull() & gone
