"""Which records a filter certainly refuses, by a look at their bytes: most need not be decoded then. PURE.

    value.name == "alice"     the bytes have `alice` in them, or a backslash: JSON may write any letter as an escape
    value.amount > 100        ... have `"amount":` and a number above 100 in them, or a backslash
    value.items[0] > 100      ... have `items` in them: a field that is not there is larger than nothing
    "error" in value.tags     ... have `error` in them
    a and b                   both; `a or b` either; anything else implies nothing

Values that a registry's schema describes begin with a zero byte, and are never skipped. Nor is anything skipped where
masks hide fields: filters see the masks, and bytes do not have them.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.console.expressions import parse

Possible = Callable[[bytes | None, bytes | None], bool]
"""Whether a record with this key and value may pass."""

_ORDERED: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_TURNED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.Eq,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_NUMBER: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(-?[0-9][-+.eE0-9]*|-?Infinity|NaN|true|false)")
_MOST_LOOKED_AT: Final = 20
"""Fields of one name; a record with more of them is decoded."""
_TEXTS: Final = ("matches", "lower", "len")


def possible(text: str) -> Possible | None:
    """The test for a filter that compiles; None if its text implies nothing about bytes."""
    return _needed(parse(text))


def _needed(node: ast.expr) -> Possible | None:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return _all([found for each in values if (found := _needed(each)) is not None])
        case ast.BoolOp(op=ast.Or(), values=values):
            every = [_needed(each) for each in values]
            return None if None in every else _any([each for each in every if each is not None])
        case ast.Compare(left=left, ops=[ast.In()], comparators=[right]):
            return _holding(right, left)
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in _ORDERED:
            kind = type(compared)
            if isinstance(left, ast.Constant):
                left, right, kind = right, left, _TURNED[kind]
            return _comparing(left, right, kind) or _holding(left, _within(right, kind))
        case ast.Call(func=ast.Name(id=name), args=[subject, *_]) if name in _TEXTS:
            return _holding(subject, None)
        case ast.Attribute() | ast.Subscript():
            return _holding(node, None)
    return None


def _within(wanted: ast.expr, kind: type[ast.cmpop]) -> ast.expr | None:
    """What is in the bytes if the comparison holds: a text that is equal, and none that is only above or below."""
    match wanted:
        case ast.Constant(value=str()) if kind is not ast.Eq:
            return None
    return wanted


def _holding(subject: ast.expr, wanted: ast.expr | None) -> Possible | None:
    """What holds of the bytes of `subject`'s part where it is, or has in it, what is `wanted`; None: where it is."""
    found = _path(subject)
    if found is None:
        return None
    part, field, _ = found
    match wanted:
        case ast.Constant(value=str() as text) if text:
            return _has(part, text)
        case None | ast.Constant(value=int() | float()) if field:
            return _has(part, field)
    return None


def _comparing(subject: ast.expr, wanted: ast.expr, kind: type[ast.cmpop]) -> Possible | None:
    """What the numbers of a field have to be, wherever in the value the field is."""
    found = _path(subject)
    match wanted:
        case ast.Constant(value=int() | float() as number) if found is not None and found[2]:
            return _has_number(found[0], found[2], _ORDERED[kind], number)
    return None


def _path(node: ast.expr) -> tuple[str, str, str] | None:
    """The part that a path begins with, a field that it goes through, and the field that it ends at, if it does at one;
    None for what is no path."""
    longest = last = ""
    is_end = True
    while True:
        match node:
            case ast.Name(id="key" | "value" as part):
                return part, longest, last
            case (
                ast.Attribute(value=inner, attr=field)
                | ast.Subscript(value=inner, slice=ast.Constant(value=str() as field))
            ):
                longest = max(longest, field, key=len)
                last = field if is_end else last
                node = inner
            case ast.Subscript(value=inner):
                node = inner
            case _:
                return None
        is_end = False


def _has(part: str, text: str) -> Possible:
    needle = text.encode("utf-8", "surrogatepass")

    def holds(data: bytes | None) -> bool:
        return data is not None and (needle in data or b"\\" in data or data[:1] == b"\0")

    return (lambda key, value: holds(key)) if part == "key" else (lambda key, value: holds(value))


def _has_number(part: str, field: str, compare: Callable[[Any, Any], bool], number: float) -> Possible:
    needle = f'"{field}"'.encode("utf-8", "surrogatepass")

    def holds(data: bytes | None) -> bool:
        if data is None:
            return False
        at = -1
        for _ in range(_MOST_LOOKED_AT):
            at = data.find(needle, at + 1)
            if at < 0:
                return b"\\" in data or data[:1] == b"\0"
            token = _NUMBER.match(data, at + len(needle))
            if token is not None and compare(_number(token[1]), number):
                return True
        return True

    return (lambda key, value: holds(key)) if part == "key" else (lambda key, value: holds(value))


def _number(token: bytes) -> float:
    """As JSON's parser reads it."""
    if token in (b"true", b"false"):
        return token == b"true"
    try:
        return int(token)
    except ValueError:
        pass
    try:
        return float(token)
    except ValueError:
        return 0  # no JSON: the record is none either, and the filter refuses it


def _all(tests: list[Possible]) -> Possible | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda key, value: all(test(key, value) for test in tests)


def _any(tests: list[Possible]) -> Possible:
    return lambda key, value: any(test(key, value) for test in tests)
