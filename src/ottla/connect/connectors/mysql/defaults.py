"""PURE: defaults of columns in information_schema, converted to values of their schemas.

MariaDB writes an SQL expression (`'a b'`, `7`, `current_timestamp()`), MySQL the value itself, with a separate
flag for expressions.
"""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from ottla.connect.connectors.mysql.decoding.types import MysqlColumn

_NOW: Final = re.compile(r"(?:current_timestamp|now|localtime|localtimestamp)\b", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_NUMBER: Final = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_BITS: Final = re.compile(r"b'([01]*)'", re.IGNORECASE)
_TIME: Final = re.compile(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def default_value(column: MysqlColumn, kind: str, convert: Callable[[Any], Any], missing: Any) -> Any:
    """What a column's schema has as its default; None: none, or one that no schema can have.

    kind: mysql or mariadb. convert: of the column's values. missing: what stands for the time of now.
    """
    text = column.default
    if text is None or (kind == "mariadb" and text.upper() == "NULL"):
        return None
    if _NOW.match(text) and (kind == "mariadb" or column.has_expression):
        return missing
    if column.has_expression:
        return None
    plain = _plain(text) if kind == "mariadb" else text
    if plain is None:
        return None
    try:
        return convert(_value(column, plain))
    except (ValueError, ArithmeticError, TypeError):
        return None


def _plain(expression: str) -> str | None:
    """The value of a literal; None for what is none."""
    if _NUMBER.fullmatch(expression) or _BITS.fullmatch(expression):
        return expression
    quoted = _QUOTED.fullmatch(expression)
    if quoted is None:
        return None
    return re.sub(r"''|\\(.)", lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else "'", quoted[1])


def _value(column: MysqlColumn, text: str) -> Any:
    """A text as the driver would return a value of the column."""
    kind = column.kind
    if kind in ("tinyint", "smallint", "mediumint", "int", "bigint", "year"):
        return int(Decimal(text))
    if kind in ("decimal", "numeric"):
        return Decimal(text).quantize(Decimal(1).scaleb(-column.scale))
    if kind in ("float", "double"):
        return float(text)
    if kind == "bit":
        found = _BITS.fullmatch(text)
        return found[1] if found is not None else text
    if kind in ("datetime", "timestamp"):
        return dt.datetime.fromisoformat(text)
    if kind == "date":
        return dt.date.fromisoformat(text)
    return _duration(text) if kind == "time" else text


def _duration(text: str) -> dt.timedelta:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    sign, hours, minutes, seconds, fraction = found.groups()
    length = dt.timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=int((fraction or "0").ljust(6, "0"))
    )
    return -length if sign else length
