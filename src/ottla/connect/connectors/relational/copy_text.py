"""PURE: rows in the text format of PostgreSQL's COPY, a column at a time.

What a column holds is mostly of one type, and few texts have anything to escape: both are found out once for a column,
not for each value.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from ottla.connect.connectors.relational.steps import Row

_NULL: Final = "\\N"
_SPECIAL: Final = "\\\t\n\r"
_ESCAPES: Final = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def copy_text(rows: Sequence[Row]) -> str:
    """All rows, which are of one length, a line each."""
    columns = [_column(values) for values in zip(*rows, strict=True)]
    return "".join([f"{line}\n" for line in map("\t".join, zip(*columns, strict=True))])


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
    bytes: lambda value: "\\\\x" + value.hex(),
    Decimal: str,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
}
