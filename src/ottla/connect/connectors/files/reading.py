"""Rows of a file from a position on: bytes of lines that are whole, or rows of Parquet."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.connect import schema as connect
from ottla.connect.api import ConnectError
from ottla.connect.connectors.files.lines import LONGEST, LeftAlone, Lines, carriage_returns
from ottla.connect.connectors.formats.arrow import connect_schema, in_microseconds, row_schema
from ottla.connect.schema import Schema

TYPES: Final[dict[str, tuple[Schema, Callable[[str], Any]]]] = {
    "string": (connect.STRING, str),
    "int64": (connect.INT64, int),
    "float64": (connect.FLOAT64, float),
    "boolean": (connect.BOOLEAN, lambda text: {"true": True, "false": False, "1": True, "0": False}[text.lower()]),
}
"""Types of CSV's columns, and how their texts are read."""
csv.field_size_limit(LONGEST)  # of bytes: `csv` by itself stops at 128 KB, and beyond this one a quote was not closed
_LONG_QUOTE: Final = 1 << 20
"""Bytes of a row without the end of a quote that need no explanation while the file grows."""
_ENDS_AMID: Final = "unexpected end of data"
_CARRIAGE_RETURN: Final = "new-line character seen in unquoted field"
"""What the errors of `csv` have in their texts."""


class Found(NamedTuple):
    """A row; `position` is where the file goes on after it. wrong: why there is no row, in a sentence."""

    value: Any
    schema: Schema | None
    position: dict[str, Any]
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """delimiter: one character. names: of the columns, empty if the first line has them. types: by column."""

    delimiter: str
    names: tuple[str, ...]
    types: dict[str, str]


def json_lines(lines: Lines, name: str) -> Iterator[Found]:
    """Objects of a file of JSON lines. Raises LeftAlone for a last line that is none and has no end yet."""
    for line in lines:
        value, wrong = None, lines.wrong
        if wrong is None:
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                if "\r" in line.rstrip():
                    wrong = carriage_returns(name, lines.at)
                elif lines.is_amid:
                    raise LeftAlone(f"{name} ends amid a line: the rest of it is waited for") from error
                else:
                    wrong = f"{name} has a line that is no JSON before byte {lines.at}: {error}; mend it"
        yield from _settled(Found(value, None, {"bytes": lines.at}, wrong), lines)


def csv_rows(lines: Lines, name: str, position: Mapping[str, Any], form: CsvFormat) -> Iterator[Found]:
    """Rows of a CSV file. Raises LeftAlone for a last one that lacks values or the end of a quote."""
    names = form.names or tuple(position.get("names", ()))
    reader = csv.reader(lines, delimiter=form.delimiter, strict=True)
    row_of: _Row | None = None
    more = {} if form.names else {"names": list(names)}
    while True:
        before = lines.at
        try:
            row = next(reader, None)
        except csv.Error as error:
            if _ENDS_AMID in str(error):
                if not lines.is_complete and lines.at - before < _LONG_QUOTE:
                    return
                raise LeftAlone(
                    f"{name} has a quote in the row at byte {before} that is not closed up to byte {lines.at}: the "
                    "rest of the row is waited for; close the quote if nothing more is to come"
                ) from error
            wrong = f"{name} has a row that is no CSV at byte {before}: {error}; mend it"
            if _CARRIAGE_RETURN in str(error):
                wrong = carriage_returns(name, lines.at)
            yield from _settled(Found(None, None, {"bytes": lines.at} | more, lines.wrong or wrong), lines)
            continue
        if row is None:
            return
        if lines.wrong is not None:
            if not names:
                raise ConnectError(f"{lines.wrong}: the names of its columns are there")
            yield from _settled(Found(None, None, {"bytes": lines.at} | more, lines.wrong), lines)
            continue
        if not row:
            continue
        if not names:
            names = _named(row, name)
            more = {"names": list(names)}
            continue
        row_of = row_of or _Row(name, names, form.types)
        if lines.is_amid and len(row) < len(names):
            raise LeftAlone(f"{name} ends amid a row: the rest of it is waited for")
        value, unfit = row_of.value(row, before)
        position = {"bytes": lines.at, **more}
        if unfit is None:  # as `_settled` does, which would take as long as the rest
            lines.settle()
            yield Found(value, row_of.schema, position)
        else:
            yield from _settled(Found(None, None, position, unfit), lines)


def _settled(found: Found, lines: Lines) -> Iterator[Found]:
    """A row, counted as read before it is handed on; one that is refused, when it has been."""
    if found.wrong is None:
        lines.settle()
    yield found
    if found.wrong is not None:
        lines.settle()


def _named(row: list[str], name: str) -> tuple[str, ...]:
    twice = next((each for each in row if row.count(each) > 1), None)
    if twice is not None:
        raise ConnectError(f"{name} has two columns called {twice!r}: name them by csv.columns, or mend it")
    return tuple(row)


class _Row:
    """Makes values of a CSV file's rows."""

    def __init__(self, file: str, names: tuple[str, ...], types: Mapping[str, str]) -> None:
        self._file = file
        kinds = [TYPES[types.get(each, "string")] for each in names]
        self._names = names
        self._converts = [
            (name, convert) for name, (_, convert) in zip(names, kinds, strict=True) if convert is not str
        ]
        """Converters of the columns that are not text."""
        fields = {name: kind.as_optional() for name, (kind, _) in zip(names, kinds, strict=True)}
        self.schema = connect.struct_of(None, fields)

    def value(self, row: list[str], at: int) -> tuple[dict[str, Any] | None, str | None]:
        """The value of the row that begins at a byte, or why there is none."""
        if len(row) != len(self._names):
            return None, (
                f"{self._file} has a row of {len(row)} values at byte {at}, and {len(self._names)} columns: mend it, "
                "or look at csv.delimiter"
            )
        value: dict[str, Any] = dict(zip(self._names, row, strict=True))
        for column, convert in self._converts:
            text = value[column]
            try:
                value[column] = None if text == "" else convert(text)
            except (ValueError, KeyError):
                return None, f"{self._file}, byte {at}: column {column} has {text!r}; look at csv.types"
        return value, None


def parquet_rows(
    file: Any, name: str, position: dict[str, Any], batch_rows: int, *, is_complete: bool
) -> Iterator[Found]:
    """Rows of a Parquet file. Raises ConnectError for a file that is none, LeftAlone while it may still be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        if not is_complete:
            raise LeftAlone(f"{name} is not whole yet: the rest of it is waited for") from error
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
    batches = parquet.iter_batches(batch_rows, row_groups=groups)
    while True:
        try:
            batch = next(batches, None)
            rows = [] if batch is None else in_microseconds(batch).to_pylist()
        except (pa.ArrowException, ValueError) as error:
            raise ConnectError(f"{name} cannot be read beyond row {number}: {error}; mend it") from error
        if batch is None:
            return
        for row in rows:
            number += 1
            if number > done:
                value = {
                    each: found if found is None or (convert := converts[each]) is None else convert(found)
                    for each, found in row.items()
                }
                yield Found(value, schema, {"rows": number})
