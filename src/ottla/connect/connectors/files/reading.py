"""Rows of a file from a position on: bytes of lines that are whole, or rows of Parquet."""

import csv
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect import schema as connect
from ottla.connect.api import ConnectError
from ottla.connect.connectors.files.arrow import connect_schema, in_microseconds, row_schema
from ottla.connect.schema import Schema

TYPES: Final[dict[str, tuple[Schema, Callable[[str], Any]]]] = {
    "string": (connect.STRING, str),
    "int64": (connect.INT64, int),
    "float64": (connect.FLOAT64, float),
    "boolean": (connect.BOOLEAN, lambda text: {"true": True, "false": False, "1": True, "0": False}[text.lower()]),
}
"""Types of CSV's columns, and how their texts are read."""
_LONGEST_FIELD: Final = 64 << 20
"""Bytes of a value in a CSV file: `csv` by itself stops at 128 KB. Beyond it a quote was not closed."""
csv.field_size_limit(_LONGEST_FIELD)
_ENDS_AMID: Final = "unexpected end of data"


@dataclass(frozen=True, slots=True)
class Found:
    """A row; `position` is where the file goes on after it. wrong: why there is no row, in a sentence."""

    value: Any
    schema: Schema | None
    position: dict[str, Any]
    wrong: str | None = None


class LeftAlone(Exception):
    """A file that cannot be read on now, for what may pass or for what somebody has to look at: a sentence."""


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
        self._is_amid = False
        self.at = at
        if at:
            self._go_on()

    def _go_on(self) -> None:
        """Be where a line was read to. Raises LeftAlone if the file is not the one of which it was read."""
        self._file.seek(self.at - 1)
        before = self._file.read(1)
        if not before:
            raise LeftAlone(
                f"{self._name} is shorter than the {self.at} bytes that were read of it, so it was replaced: "
                "give the new file another name, or delete the connector's offset of this one to read it again"
            )
        if before != b"\n":  # the end of a last line without an end: nothing may follow but that
            more = self._next()
            if more.strip(b"\r\n"):
                raise LeftAlone(
                    f"{self._name} has no end of a line at byte {self.at}, to which it was read: it was replaced, or "
                    "its writer pauses amid lines; delete the connector's offset of this file to read it again"
                )
            self.at += len(more)

    def _next(self) -> bytes:
        """The next line, or nothing. A compressed file whose end lacks ends here as long as it may be written."""
        try:
            line: bytes = self._file.readline()
        except (EOFError, zlib.error) as error:
            if not self._is_complete:
                return b""
            raise ConnectError(f"{self._name} is cut off, or no compressed file: {error}; mend it") from error
        return line

    @property
    def is_amid(self) -> bool:
        """Whether the last line that came has no end."""
        return self._is_amid

    def __iter__(self) -> Iterator[str]:
        while line := self._next():
            if not line.endswith(b"\n"):
                if not self._is_complete:
                    return
                self._is_amid = True
            self.at += len(line)
            try:
                yield line.decode("utf-8-sig" if self.at == len(line) else "utf-8")
            except UnicodeDecodeError as error:
                raise ConnectError(f"{self._name} has a line before byte {self.at} that is no UTF-8") from error


def json_lines(file: Any, name: str, position: dict[str, Any], *, is_complete: bool) -> Iterator[Found]:
    """Objects of a file of JSON lines. Raises LeftAlone for a last line that is none and has no end yet."""
    lines = _Lines(file, name, position.get("bytes", 0), is_complete=is_complete)
    for line in lines:
        if line.strip():
            value, wrong = None, None
            try:
                value = json.loads(line)
            except ValueError as error:
                if lines.is_amid:
                    raise LeftAlone(f"{name} ends amid a line: the rest of it is waited for") from error
                wrong = f"{name} has a line that is no JSON before byte {lines.at}: {error}; mend it"
            yield Found(value, None, {"bytes": lines.at}, wrong)


def csv_rows(file: Any, name: str, position: dict[str, Any], form: CsvFormat, *, is_complete: bool) -> Iterator[Found]:
    """Rows of a CSV file. Raises LeftAlone for a last one that lacks values and has no end yet."""
    names = form.names or tuple(position.get("names", ()))
    lines = _Lines(file, name, position.get("bytes", 0), is_complete=is_complete)
    reader = csv.reader(lines, delimiter=form.delimiter, strict=True)
    schema: Schema | None = None
    more: dict[str, Any] = {}
    while True:
        before = lines.at
        try:
            row = next(reader, None)
        except csv.Error as error:
            if not is_complete and _ENDS_AMID in str(error):  # the rest of a quoted value is still to come
                return
            wrong = f"{name} has a row that is no CSV at byte {before}: {error}; mend it"
            yield Found(None, None, {"bytes": lines.at} | ({} if form.names else {"names": list(names)}), wrong)
            continue
        if row is None:
            return
        if not row:
            continue
        if not names:
            names = tuple(row)
            twice = next((each for each in names if names.count(each) > 1), None)
            if twice is not None:
                raise ConnectError(f"{name} has two columns called {twice!r}: name them by csv.columns, or mend it")
            continue
        if schema is None:
            more = {} if form.names else {"names": list(names)}
            kinds = [TYPES[form.types.get(each, "string")] for each in names]
            schema = connect.struct_of(None, {n: kind.as_optional() for n, (kind, _) in zip(names, kinds, strict=True)})
        position = {"bytes": lines.at} | more
        if len(row) != len(names):
            if lines.is_amid and len(row) < len(names):
                raise LeftAlone(f"{name} ends amid a row: the rest of it is waited for")
            wrong = (
                f"{name} has a row of {len(row)} values at byte {before}, and {len(names)} columns: mend it, "
                "or look at csv.delimiter"
            )
            yield Found(None, None, position, wrong)
            continue
        value: dict[str, Any] = {}
        unfit: str | None = None
        for column, (_, convert), text in zip(names, kinds, row, strict=True):
            try:
                value[column] = None if text == "" and convert is not str else convert(text)
            except (ValueError, KeyError):
                unfit = f"{name}, byte {before}: column {column} has {text!r}; look at csv.types"
        yield Found(value, schema, position, unfit)


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
