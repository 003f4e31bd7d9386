"""Records as files: CSV, JSON lines or Parquet, piece by piece, so that memory does not grow with their number.

    time, partition, offset, key, value, headers      without chosen columns
    time, partition, offset, COLUMN, ...              with them

Values are those that pages show: decoded by their schema, and masked.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from ottla.console.collecting import Columns, cell
from ottla.console.sight import Record
from ottla.console.values import Value, plain

PIECE_BYTES: Final = 64 << 10
GROUP_ROWS: Final = 10_000
GROUP_CHARACTERS: Final = 8 << 20
"""A row group of Parquet, which is held until it is written."""
PLACE: Final = ("time", "partition", "offset")
PARTS: Final = ("key", "value", "headers")
_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


class Format(NamedTuple):
    """A format of files."""

    kind: str
    media_type: str
    suffix: str


FORMATS: Final = {
    "csv": Format("csv", "text/csv; charset=utf-8", "csv"),
    "jsonl": Format("jsonl", "application/x-ndjson", "jsonl"),
    "parquet": Format("parquet", "application/vnd.apache.parquet", "parquet"),
}


class NoParquet(Exception):
    """The library that writes Parquet is not installed."""


def writer(kind: str, columns: Columns) -> "Writer":
    """What writes records in a format of `FORMATS`. Raises NoParquet."""
    if kind == "parquet":
        if find_spec("pyarrow") is None:
            raise NoParquet("Parquet needs the library pyarrow: install ottla[console,connect], or choose CSV")
        from ottla.console.parquet import Parquet

        return Parquet(columns)
    return Csv(columns) if kind == "csv" else JsonLines(columns)


class Writer(ABC):
    """Turns records into pieces of a file."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.names: Sequence[str] = (*PLACE, *([name for name, _ in columns] if columns else PARTS))

    @abstractmethod
    def pieces(self, records: Iterator[Record]) -> Iterator[bytes]:
        """The file. Pieces are small, except where one value is large."""

    def texts(self, record: Record) -> list[str | None]:
        """Chosen columns as text, or key, value and headers."""
        if self.columns:
            return [cell(evaluate(record)) for _, evaluate in self.columns]
        headers = [[name, _json_value(each)] for name, each in record.header_parts()]
        return [
            plain(record.part("key")),
            plain(record.part("value")),
            json.dumps(headers, ensure_ascii=False) if headers else None,
        ]


class _Lines(Writer):
    """A file of lines."""

    def pieces(self, records: Iterator[Record]) -> Iterator[bytes]:
        """About as large as `PIECE_BYTES`, whatever the lines are."""
        waiting = [self.head()]
        size = 0
        for record in records:
            waiting.append(self.line(record))
            size += len(waiting[-1])
            if size >= PIECE_BYTES:
                yield from _sliced("".join(waiting).encode("utf-8", "replace"))
                waiting, size = [], 0
        yield from _sliced("".join(waiting).encode("utf-8", "replace"))

    def head(self) -> str:
        """What comes before the first record."""
        return ""

    @abstractmethod
    def line(self, record: Record) -> str:
        """A record."""


def _sliced(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


class Csv(_Lines):
    """RFC 4180, with a head. Cells that a spreadsheet would compute begin with an apostrophe."""

    def head(self) -> str:
        """The names of the columns."""
        return _csv_line(self.names)

    def line(self, record: Record) -> str:
        """Texts; JSON stands on one line."""
        place = [moment(record.timestamp), record.partition, record.offset]
        return _csv_line([*place, *(None if text is None else defused(text) for text in self.texts(record))])


class JsonLines(_Lines):
    """An object for each record; bytes are `{"base64": ...}`, headers are pairs."""

    def line(self, record: Record) -> str:
        """An object, on one line."""
        row: dict[str, Any] = dict(zip(PLACE, (moment(record.timestamp), record.partition, record.offset), strict=True))
        if self.columns:
            row |= {name: evaluate(record) for name, evaluate in self.columns}
        else:
            headers = [[name, _json_value(each)] for name, each in record.header_parts()]
            row |= {"key": _json_value(record.part("key")), "value": _json_value(record.part("value"))}
            row["headers"] = headers
        try:
            try:
                return json.dumps(row, ensure_ascii=False, default=str, allow_nan=False) + "\n"
            except ValueError:  # JSON has no NaN
                return json.dumps(_finite(row), ensure_ascii=False, default=str) + "\n"
        except RecursionError:
            return json.dumps({name: row[name] for name in PLACE} | {"problem": "too deeply nested"}) + "\n"


def _csv_line(cells: Sequence[Any]) -> str:
    """By hand: csv.writer takes seconds for a cell of 50 MB, and holds up all other threads."""
    return ",".join(map(_csv_cell, cells)) + "\r\n"


def _csv_cell(content: Any) -> str:
    text = "" if content is None else str(content)
    return '"' + text.replace('"', '""') + '"' if any(each in text for each in ',"\r\n') else text


def defused(text: str) -> str:
    """The text of a cell, so that no spreadsheet takes it for a formula. Numbers stay as they are.

    Source: OWASP, "CSV Injection".
    """
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def moment(timestamp_ms: int) -> str:
    """A time in ISO 8601, in UTC; what no calendar has is a number."""
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return found.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _finite(content: Any) -> Any:
    """With texts for numbers that JSON does not have."""
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, dict):
        return {name: _finite(each) for name, each in content.items()}
    return [_finite(each) for each in content] if isinstance(content, list) else content


def _json_value(value: Value) -> Any:
    if value.kind == "bytes":
        return {"base64": plain(value)}
    return plain(value) if value.kind == "text" else value.content
