"""PURE: values of columns hidden or cut off, by Debezium's settings, each with a list of columns:

    column.mask.with.N.chars                         N asterisks, for nulls too
    column.mask.hash.ALGORITHM.with.salt.SALT        a hash of the salt and of Java's serialized form of the text
    column.mask.hash.v2.ALGORITHM.with.salt.SALT     a hash of the salt and of the text in UTF-8
    column.truncate.to.N.chars                       the first N characters, or bytes

The first that fits a column counts, in the order cut off, asterisks, hashes. Keys are as they are. What would be masked
and is no text is left out of masking, but for its mark in the schema: so does Debezium. Texts are all that come as
strings but times, also those (JSON, UUID) that Debezium 3.2 lets through.
Source: Debezium 3.2, `io.debezium.relational.mapping`; Java's object serialization protocol for the older hash.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.patterns import compiled
from ottla.connect.schema import Schema, Type

PREFIXES: Final = ("column.mask.", "column.truncate.")
"""With which the names of these settings begin."""

_TRUNCATE: Final = re.compile(r"column\.truncate\.to\.(\d+)\.chars")
_ASTERISKS: Final = re.compile(r"column\.mask\.with\.(\d+)\.chars")
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")
_TIMES: Final = "io.debezium.time."
_LONG_TEXT: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Mask:
    """What becomes of a column. `parameters`: in its schema; `change`: of a converted value, or None."""

    parameters: Mapping[str, str]
    change: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Rule:
    columns: tuple[Any, ...]
    make: Callable[[Schema, int | None], Mask | None]


class Masks:
    """The rules of a configuration. Raises ValueError for a setting of these that cannot be read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        cut, hidden, hashed = [], [], []
        for name, columns in config.items():
            if not name.startswith(PREFIXES):
                continue
            if found := _TRUNCATE.fullmatch(name):
                cut.append(_rule(name, columns, _cutting(int(found[1]))))
            elif found := _ASTERISKS.fullmatch(name):
                hidden.append(_rule(name, columns, _hiding("*" * int(found[1]))))
            elif found := _HASH.fullmatch(name):
                hashed.append(_rule(name, columns, _hashing(name, found[2], found[3], serialized=found[1] is None)))
            else:
                raise ValueError(
                    f"{name} is none of column.mask.with.N.chars, column.mask.hash.v2.ALGORITHM.with.salt.SALT and "
                    "column.truncate.to.N.chars: no column would be masked"
                )
        self._rules = (*cut, *hidden, *hashed)

    def of(self, column: str, schema: Schema, length: int | None) -> Mask | None:
        """For a column by its full name. `length`: how many characters it can have, if that is limited."""
        for rule in self._rules:
            if any(each.fullmatch(column) for each in rule.columns):
                return rule.make(schema, length)
        return None


def _rule(name: str, columns: Any, make: Callable[[Schema, int | None], Mask | None]) -> _Rule:
    try:
        patterns = [compiled(each, any_case=True) for each in map(str.strip, str(columns).split(",")) if each]
    except re.error as error:
        raise ValueError(f"{name}: {columns!r} has no regular expressions for columns: {error}") from error
    return _Rule(tuple(patterns), make)


def _cutting(most: int) -> Callable[[Schema, int | None], Mask | None]:
    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return _first(value, most)
        return value[:most] if isinstance(value, bytes) else value

    def make(_schema: Schema, length: int | None) -> Mask | None:
        return None if length is not None and length <= most else Mask({"truncateLength": str(most)}, cut)

    return make


def _hiding(mask: str) -> Callable[[Schema, int | None], Mask | None]:
    return lambda schema, _length: _masked(schema, lambda _value: mask)


def _hashing(name: str, algorithm: str, salt: str, *, serialized: bool) -> Callable[[Schema, int | None], Mask | None]:
    called = algorithm.lower()
    called = {"sha": "sha1"}.get(called, called.replace("sha-", "sha").replace("/", "_").replace("sha3-", "sha3_"))
    try:
        hashlib.new(called, usedforsecurity=False).hexdigest()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {algorithm} is no known hash; name one such as SHA-256") from error

    def make(schema: Schema, length: int | None) -> Mask:
        def hashed(value: Any) -> Any:
            if value is None:
                return None
            data = _java_serialized(value) if serialized else value.encode()
            found = hashlib.new(called, salt.encode() + data, usedforsecurity=False).hexdigest()
            return found if length is None else found[:length]

        return _masked(schema, hashed)

    return make


def _masked(schema: Schema, change: Callable[[Any], Any]) -> Mask:
    is_text = schema.type == Type.STRING and not (schema.name or "").startswith(_TIMES)
    return Mask({"masked": "true"}, change if is_text else lambda value: value)


def _first(text: str, most: int) -> str:
    """Characters as Java counts them, in UTF-16, without the half of one."""
    if text.isascii():
        return text[:most]
    return text.encode("utf-16-le", "surrogatepass")[: 2 * most].decode("utf-16-le", "ignore")


def _java_serialized(text: str) -> bytes:
    """What ObjectOutputStream writes: a head, the kind (short or long text), the size and modified UTF-8."""
    units = text.encode("utf-16-be", "surrogatepass")
    data = b"".join(
        chr(unit).encode("utf-8", "surrogatepass") if unit else b"\xc0\x80"
        for unit in (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    )
    is_short = len(data) <= _LONG_TEXT
    return b"\xac\xed\x00\x05" + (b"\x74" if is_short else b"\x7c") + len(data).to_bytes(2 if is_short else 8) + data
