"""PURE: primary keys, by which tables are read in chunks: in statements, in positions, and as the binlog has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ottla.connect.connectors.capture.incremental import Key

_BY_NUMBER: Final = frozenset({"enum", "set", "bit"})
"""Ordered by numbers, and compared with texts as texts."""
_TEMPORAL: Final = frozenset({"date", "time", "datetime", "timestamp"})
_INEXACT: Final = frozenset({"float", "double"})


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a primary key. index: among the table's columns. kind: data_type. convert: to what records have."""

    name: str
    index: int
    kind: str
    convert: Callable[[Any], Any]

    @property
    def is_exact(self) -> bool:
        """Whether a value that was read finds its row again."""
        return self.kind not in _INEXACT

    @property
    def expression(self) -> str:
        """What orders rows, and is compared with what `selected` gave."""
        name = quoted(self.name)
        return f"({name} + 0)" if self.kind in _BY_NUMBER else name

    @property
    def selected(self) -> str:
        """What a position keeps."""
        return f"CAST({quoted(self.name)} AS CHAR)" if self.kind in _TEMPORAL else self.expression


def quoted(name: str) -> str:
    """A name quoted for statements."""
    return "`" + name.replace("`", "``") + "`"


def key_of(columns: Sequence[KeyColumn], names: Sequence[str], values: Sequence[Any]) -> Key:
    """What stands for a row's key, whether it comes from a query or from the binlog.

    names: of all columns that `values` are of. A date that no calendar has is None. Raises ValueError if the key is not
    among them.
    """
    found = [(column, values[names.index(column.name)]) for column in columns]
    return tuple([None if value is None else column.convert(value) for column, value in found])


def first_after(columns: Sequence[KeyColumn], after: Key | None, until: Key) -> tuple[str, list[Any]]:
    """The condition for rows beyond a key and up to another, and its parameters.

    Not `(a, b) > (x, y)`, for which neither server uses the index.
    """
    condition, parameters = _beyond(columns, until, "<", "<=")
    if after is not None:
        beyond, more = _beyond(columns, after, ">", ">")
        condition, parameters = f"{beyond} AND {condition}", more + parameters
    return condition, parameters


def _beyond(columns: Sequence[KeyColumn], key: Key, sign: str, last_sign: str) -> tuple[str, list[Any]]:
    column = columns[0].expression.replace("%", "%%")
    if len(columns) == 1:
        return f"{column} {last_sign} %s", [key[0]]
    rest, parameters = _beyond(columns[1:], key[1:], sign, last_sign)
    return f"{column} {sign}= %s AND ({column} {sign} %s OR ({rest}))", [key[0], key[0], *parameters]


def in_json(key: Sequence[Any]) -> Key:
    """A key as a position keeps it: bytes and decimals, which JSON does not have, as objects."""
    return tuple(
        {"hex": each.hex()}
        if isinstance(each, bytes)
        else {"decimal": str(each)}
        if isinstance(each, Decimal)
        else each
        for each in key
    )


def from_json(key: Key) -> Key:
    """The opposite of `in_json`."""
    return tuple(_value(each) for each in key)


def _value(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return kept
    return bytes.fromhex(kept["hex"]) if "hex" in kept else Decimal(kept["decimal"])
