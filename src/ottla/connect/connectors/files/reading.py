"""Rows of a file from a position on: bytes of lines that are whole, or rows of Parquet."""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect import schema as connect
from ottla.connect.api import ConnectError
from ottla.connect.connectors.files.arrow import connect_schema, row_schema
from ottla.connect.schema import Schema

TYPES: Final[dict[str, tuple[Schema, Callable[[str], Any]]]] = {
    "string": (connect.STRING, str),
    "int64": (connect.INT64, int),
    "float64": (connect.FLOAT64, float),
    "boolean": (connect.BOOLEAN, lambda text: {"true": True, "false": False, "1": True, "0": False}[text.lower()]),
}
"""Types of CSV's columns, and how their texts are read."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row; `position` is where the file goes on after it."""

    value: Any
    schema: Schema | None
    position: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """delimiter: one character. names: of the columns, empty if the first line has them. types: by column."""

    delimiter: str
    names: tuple[str, ...]
    types: dict[str, str]


class _Lines:
    """Whole lines of a file, counted in bytes; a last one without an end is not whole yet, unless told so."""

    def __init__(self, file: Any, name: str, at: int, *, is_complete: bool) -> None:
        self._file = file
        self._name = name
        self._is_complete = is_complete
        self.at = at

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline():
            if not line.endswith(b"\n") and not self._is_complete:
                return
            self.at += len(line)
            try:
                yield line.decode("utf-8-sig" if self.at == len(line) else "utf-8")
            except UnicodeDecodeError as error:
                raise ConnectError(f"{self._name} has a line before byte {self.at} that is no UTF-8") from error


def json_lines(file: Any, name: str, position: dict[str, Any], *, is_complete: bool) -> Iterator[Found]:
    """Objects of a file of JSON lines. Raises ConnectError for a line that is none."""
    at = position.get("bytes", 0)
    file.seek(at)
    lines = _Lines(file, name, at, is_complete=is_complete)
    for line in lines:
        if line.strip():
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ConnectError(
                    f"{name} has a line that is no JSON before byte {lines.at}: {error}; mend it"
                ) from error
            yield Found(value, None, {"bytes": lines.at})


def csv_rows(file: Any, name: str, position: dict[str, Any], form: CsvFormat, *, is_complete: bool) -> Iterator[Found]:
    """Rows of a CSV file. Raises ConnectError for a row with more or fewer values, or one that is not of its type."""
    names = form.names or tuple(position.get("names", ()))
    at = position.get("bytes", 0)
    file.seek(at)
    lines = _Lines(file, name, at, is_complete=is_complete)
    reader = csv.reader(lines, delimiter=form.delimiter, strict=True)
    schema: Schema | None = None
    more: dict[str, Any] = {}
    while True:
        before = lines.at
        try:
            row = next(reader, None)
        except csv.Error as error:
            if not is_complete:  # the rest of a quoted value is still to come
                return
            raise ConnectError(f"{name} has a row that is no CSV at byte {before}: {error}; mend it") from error
        if row is None:
            return
        if not row:
            continue
        if not names:
            names = tuple(row)
            continue
        if schema is None:
            more = {} if form.names else {"names": list(names)}
            kinds = [TYPES[form.types.get(each, "string")] for each in names]
            schema = connect.struct_of(None, {n: kind.as_optional() for n, (kind, _) in zip(names, kinds, strict=True)})
        if len(row) != len(names):
            raise ConnectError(
                f"{name} has a row of {len(row)} values at byte {before}, and {len(names)} columns: mend it, "
                "or look at csv.delimiter"
            )
        value = {}
        for column, (_, convert), text in zip(names, kinds, row, strict=True):
            try:
                value[column] = None if text == "" and convert is not str else convert(text)
            except (ValueError, KeyError) as error:
                raise ConnectError(f"{name}, byte {before}: column {column} has {text!r}; look at csv.types") from error
        yield Found(value, schema, {"bytes": lines.at} | more)


def parquet_rows(file: Any, name: str, position: dict[str, Any], batch_rows: int) -> Iterator[Found]:
    """Rows of a Parquet file. Raises ConnectError for a file that is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConnectError(f"{name} is no file of Parquet that is whole: {error}") from error
    schema = row_schema(parquet.schema_arrow)
    converts = {each.name: connect_schema(each.type)[1] for each in parquet.schema_arrow}
    done = position.get("rows", 0)
    number = 0
    groups: list[int] = []
    for group in range(parquet.num_row_groups):  # row groups that are done need not be read
        rows = parquet.metadata.row_group(group).num_rows
        if number + rows <= done and not groups:
            number += rows
        else:
            groups.append(group)
    for batch in parquet.iter_batches(batch_rows, row_groups=groups):
        for row in batch.to_pylist():
            number += 1
            if number > done:
                value = {
                    each: found if found is None or (convert := converts[each]) is None else convert(found)
                    for each, found in row.items()
                }
                yield Found(value, schema, {"rows": number})
