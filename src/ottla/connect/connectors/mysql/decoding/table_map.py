"""PURE: binlog events that describe a table and carry rows of it, decoded from their bytes.

A table map describes the table at the time of a change; with binlog_row_metadata=FULL completely, but for defaults.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.connectors.mysql.decoding.binlog_types import (
    BLOB,
    BLOB_COMPRESSED,
    ENUM,
    GEOMETRY,
    META_BYTES,
    NUMERIC,
    SET,
    STRING,
    VAR_STRING,
    VARCHAR,
    VARCHAR_COMPRESSED,
    YEAR,
    Described,
    Read,
    UnreadableError,
    column,
    real_code,
)
from ottla.connect.connectors.mysql.decoding.types import MysqlColumn

Values = list[Any]
RowPair = tuple[Values | None, Values | None]

(_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _SHAPES, _KEY, _PREFIX_KEY) = range(1, 10)
_LABELS_DEFAULT_CHARSET, _LABELS_CHARSETS = 10, 11
_CHARACTERS: Final = frozenset({STRING, VAR_STRING, VARCHAR, BLOB, VARCHAR_COMPRESSED, BLOB_COMPRESSED})
Version = tuple[int, ...]
"""A server's version: from 10 on it is MariaDB's."""
_COUNTS_NO_YEARS: Final = (8, 0, 15)
_COUNTS_YEARS: Final = (8, 0, 29)
"""The last version of which it is known that it has no sign for YEAR, and the first of which it is that it has."""
WRITES: Final = frozenset({20, 23, 30})
DELETES: Final = frozenset({22, 25, 32})
UPDATES: Final = frozenset({21, 24, 31})
_SECOND_VERSION: Final = frozenset({30, 31, 32})
ABSENT: Final = object()
"""Stands for a value that the binlog does not have: binlog_row_image was not FULL."""


@dataclass(frozen=True, slots=True, eq=False)
class TableMap:
    """A table at one time. key: columns of its primary key, in the key's order.

    unreadable: why its rows cannot be read; it has no columns then.
    """

    database: str
    table: str
    columns: tuple[MysqlColumn, ...] = ()
    key: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    unreadable: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(each.name for each in self.columns)


class _Bytes:
    """Reads bytes from left to right."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        begin, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise UnreadableError("an event ends before what it describes")
        return self.data[begin : self.at]

    def number(self) -> int:
        """Read a number of 1 to 9 bytes; the first byte gives the length."""
        first = self.take(1)[0]
        return first if first < 251 else int.from_bytes(self.take({252: 2, 253: 3, 254: 8}[first]), "little")

    def text(self) -> bytes:
        return self.take(self.number())

    @property
    def has_more(self) -> bool:
        return self.at < len(self.data)

    def numbers(self) -> Iterator[int]:
        while self.has_more:
            yield self.number()


def table_id(body: bytes) -> int:
    """By which rows name the table map before them."""
    return int.from_bytes(body[:6], "little")


def table_map(body: bytes, charsets: Mapping[int, str], version: Version) -> TableMap:
    """The table that the body of an event describes. `charsets`: by the numbers of collations; `version`: of the server
    that wrote it. A table whose rows cannot be read keeps the reason, for it may not be captured. Raises
    UnreadableError.
    """
    data = _Bytes(body[8:])
    database = data.take(data.take(1)[0] + 1)[:-1].decode()
    table = data.take(data.take(1)[0] + 1)[:-1].decode()
    try:
        columns, key, reads = _described(data, charsets, version)
    except (UnreadableError, LookupError, ValueError) as error:
        return TableMap(database, table, unreadable=str(error))
    return TableMap(database, table, columns, key, reads)


def _described(
    data: _Bytes, charsets: Mapping[int, str], version: Version
) -> tuple[tuple[MysqlColumn, ...], tuple[str, ...], tuple[Read, ...]]:
    codes = list(data.take(data.number()))
    metas = _metas(codes, _Bytes(data.text()))
    nulls = data.take((len(codes) + 7) // 8)
    codes = [real_code(code, meta) for code, meta in zip(codes, metas, strict=True)]
    more = _metadata(data)
    if _NAMES not in more:
        raise UnreadableError("the binlog lacks its columns' names, because binlog_row_metadata was not FULL then")
    names = [each.decode() for each in _texts(more[_NAMES])]
    of_characters = _CHARACTERS | {GEOMETRY} if _is_mariadb(version) else _CHARACTERS
    signs = _signs(codes, more.get(_SIGNS, b""), version)
    collations = _spread(
        codes, of_characters.__contains__, _collations(more, _DEFAULT_CHARSET, _CHARSETS, len(codes)), 0
    )
    of_labels = _spread(
        codes, {ENUM, SET}.__contains__, _collations(more, _LABELS_DEFAULT_CHARSET, _LABELS_CHARSETS, len(codes)), 0
    )
    enums = _spread(codes, ENUM.__eq__, _labels(more.get(_ENUMS, b"")), [])
    sets = _spread(codes, SET.__eq__, _labels(more.get(_SETS, b"")), [])
    shapes = _spread(codes, GEOMETRY.__eq__, _Bytes(more.get(_SHAPES, b"")).numbers(), 0)
    found = [
        column(
            Described(
                names[n],
                code,
                metas[n],
                bool(nulls[n // 8] >> n % 8 & 1),
                bool(signs[n]),
                _charset(charsets, collations[n] or of_labels[n], names[n]),
                enums[n] or sets[n],
                shapes[n],
            )
        )
        for n, code in enumerate(codes)
    ]
    key = list(_Bytes(more.get(_KEY, b"")).numbers()) or list(_Bytes(more.get(_PREFIX_KEY, b"")).numbers())[::2]
    return tuple(each for each, _ in found), tuple(names[n] for n in key), tuple(read for _, read in found)


def _is_mariadb(version: Version) -> bool:
    return version >= (10,)


def _signs(codes: list[int], raw: bytes, version: Version) -> list[int]:
    """Whether columns are unsigned. MariaDB, and MySQL since some version after 8.0.15, have a bit for YEAR too."""
    with_years, without = (_spread(codes, each.__contains__, _bits(raw), 0) for each in (NUMERIC | {YEAR}, NUMERIC))
    if _is_mariadb(version) or version >= _COUNTS_YEARS:
        return with_years
    if version <= _COUNTS_NO_YEARS or not raw:
        return without
    numeric, years = sum(code in NUMERIC for code in codes), codes.count(YEAR)
    fits = [signs for signs, count in ((with_years, numeric + years), (without, numeric)) if len(raw) == -(-count // 8)]
    different = [[sign and code != YEAR for sign, code in zip(signs, codes, strict=True)] for signs in fits]
    if not fits or different.count(different[0]) != len(different):
        number = ".".join(map(str, version))
        raise UnreadableError(f"MySQL {number} does not report for certain which columns after a YEAR are unsigned")
    return fits[0]


def _charset(charsets: Mapping[int, str], collation: int, name: str) -> str | None:
    if not collation:
        return None
    if collation not in charsets:
        raise UnreadableError(f"column {name} has the collation {collation}, which the server no longer knows")
    return charsets[collation]


def _metas(codes: list[int], data: _Bytes) -> list[bytes]:
    return [data.take(META_BYTES.get(code, 0)) for code in codes]


def _metadata(data: _Bytes) -> dict[int, bytes]:
    """What follows, by its kind."""
    found: dict[int, bytes] = {}
    while data.has_more:
        kind = data.take(1)[0]
        found[kind] = data.text()
    return found


def _spread(codes: list[int], fits: Callable[[int], bool], values: Any, other: Any) -> list[Any]:
    """Values that come for the columns of some types alone, one for each column."""
    given = iter(values)
    return [next(given, other) if fits(code) else other for code in codes]


def _bits(raw: bytes) -> Iterator[int]:
    return (each >> bit & 1 for each in raw for bit in range(7, -1, -1))


def _texts(raw: bytes) -> Iterator[bytes]:
    data = _Bytes(raw)
    while data.has_more:
        yield data.text()


def _labels(raw: bytes) -> Iterator[list[bytes]]:
    data = _Bytes(raw)
    while data.has_more:
        yield [data.text() for _ in range(data.number())]


def _collations(more: Mapping[int, bytes], default: int, each: int, most: int) -> list[int]:
    """One for each column that has any: all of them, or one for all but some."""
    if each in more:
        return list(_Bytes(more[each]).numbers())
    numbers = list(_Bytes(more.get(default, b"")).numbers())
    if not numbers:
        return []
    others = dict(zip(numbers[1::2], numbers[2::2], strict=True))
    return [others.get(number, numbers[0]) for number in range(most)]


def rows(event_type: int, body: bytes, table: TableMap) -> list[RowPair]:
    """Before and after of each row of an event. Raises UnreadableError."""
    begin = 8
    if event_type in _SECOND_VERSION:
        begin += int.from_bytes(body[8:10], "little")
    data = _Bytes(body)
    data.at = begin
    count = data.number()
    if count != len(table.reads):
        raise UnreadableError(f"rows of {count} columns follow a description of {len(table.reads)}")
    present = [_present(data, count)]
    if event_type in UPDATES:
        present.append(_present(data, count))
    found: list[RowPair] = []
    at = data.at
    while at < len(body):
        values, at = _image(body, at, table.reads, present[0])
        if event_type in UPDATES:
            after, at = _image(body, at, table.reads, present[1])
            found.append((values, after))
        else:
            found.append((None, values) if event_type in WRITES else (values, None))
    if at != len(body):
        raise UnreadableError("the rows of an event do not end where it ends")
    return found


def _present(data: _Bytes, count: int) -> list[bool]:
    raw = data.take((count + 7) // 8)
    return [bool(raw[n // 8] >> n % 8 & 1) for n in range(count)]


def _image(body: bytes, at: int, reads: tuple[Read, ...], present: list[bool]) -> tuple[Values, int]:
    """A row: a bit for each column that it has, whether it is null, then what is not."""
    nulls = int.from_bytes(body[at : at + (sum(present) + 7) // 8], "little")
    at += (sum(present) + 7) // 8
    values: Values = []
    for read, is_there in zip(reads, present, strict=True):
        if not is_there:
            values.append(ABSENT)
            continue
        if nulls & 1:
            values.append(None)
        else:
            value, at = read(body, at)
            values.append(value)
        nulls >>= 1
    return values, at
