"""PURE: rows in the text format of PostgreSQL's COPY: in C (`_copy.c`) where that has been compiled, else in Python.

In Python a column is made at a time. What it holds is mostly of one type, and few texts have anything to escape: both
are found out once for a column, not for each value.
"""

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.relational.steps import Row

_NULL: Final = "\\N"
_SPECIAL: Final = "\\\t\n\r"
_ESCAPES: Final = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def copy_text_twin(rows: list[Row]) -> bytes:
    """The same in Python. Raises UnicodeEncodeError for half a character."""
    columns = [_column(values) for values in zip(*rows, strict=True)]
    return "".join([f"{line}\n" for line in map("\t".join, zip(*columns, strict=True))]).encode()


def _column(values: tuple[Any, ...]) -> Iterable[str]:
    kinds = set(map(type, values))
    nulls = type(None) in kinds
    kinds.discard(type(None))
    if len(kinds) > 1:
        return [_NULL if each is None else _TEXTS.get(each.__class__, _other)(each) for each in values]
    if not kinds:
        return [_NULL] * len(values)
    (kind,) = kinds
    if kind is str and not _has_special(values, nulls=nulls):
        return [_NULL if each is None else each for each in values] if nulls else values
    text = _TEXTS.get(kind, _other)
    return [_NULL if each is None else text(each) for each in values] if nulls else map(text, values)


def _has_special(texts: tuple[str | None, ...], *, nulls: bool) -> bool:
    everything = "".join(filter(None, texts) if nulls else texts)  # type: ignore[arg-type] # None only with nulls
    return any(each in everything for each in _SPECIAL)


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES)


def _other(value: Any) -> str:
    return str(value).translate(_ESCAPES)


_TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    bool: lambda value: "t" if value else "f",
    int: str,
    float: repr,
    str: _escaped,
    **dict.fromkeys((bytes, bytearray, memoryview), lambda value: "\\\\x" + value.hex()),
    Decimal: str,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
}

if TYPE_CHECKING:
    from ottla.connect.connectors.relational import _copy
else:
    try:
        from ottla.connect.connectors.relational import _copy
    except ImportError:
        _copy = None

_INTERFACE: Final = 1
IS_NATIVE: Final[bool] = getattr(_copy, "INTERFACE", None) == _INTERFACE


def copy_text(rows: list[Row]) -> bytes:
    """All rows, which are of one length, a line each. Raises UnicodeEncodeError for half a character."""
    return _copy.copy_bytes(rows, _TEXTS, _other) if IS_NATIVE else copy_text_twin(rows)
