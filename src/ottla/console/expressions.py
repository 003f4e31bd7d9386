"""Filters over records: small expressions that can neither loop, nor reach anything but the record.

    value.amount > 100 and key == "alice"
    "error" in value and header("source") != "test"
    matches(value.name, "^A") or value.items[0].sku in ["a", "b"]
    timestamp >= time("2026-01-01T00:00:00Z")

The syntax is Python's. A field that is not there is None. A comparison of what cannot be compared is false, so that one
odd record ends no search. Regular expressions are those of RE2, whose time grows with the text alone.
"""

import ast
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Protocol

import re2

LONGEST: Final = 1000
"""Characters of an expression."""
DEEPEST: Final = 30
MOST_COLUMNS: Final = 20
NAMES: Final = ("key", "value", "headers", "timestamp", "offset", "partition", "size")


class ExpressionProblem(ValueError):
    """The text is no expression; the message has the reason."""


class Row(Protocol):
    """What an expression sees of a record. Each part may be computed when it is asked for."""

    @property
    def key(self) -> Any:
        """A value of JSON where it could be decoded, else text; None for bytes."""

    @property
    def value(self) -> Any:
        """As the key."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """By name, the last one of each."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since the Unix epoch."""

    @property
    def offset(self) -> int:
        """The offset."""

    @property
    def partition(self) -> int:
        """The number of the partition."""

    @property
    def size(self) -> int | None:
        """Bytes of key and value; None where some of them are masked."""


Evaluate = Callable[[Row], Any]
Test = Callable[[Row], bool]


def compile_filter(text: str) -> Test:
    """The filter that the text describes. Raises ExpressionProblem."""
    evaluate = _whole(parse(text))
    return lambda row: bool(evaluate(row))


def compile_columns(text: str) -> list[tuple[str, Evaluate]]:
    """Columns, as `value.a.b, key, headers.x` names them: what each is called, and its value of a record.

    Raises ExpressionProblem.
    """
    tree = parse(text.strip().strip(","))
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if len(parts) > MOST_COLUMNS:
        raise ExpressionProblem(f"there are at most {MOST_COLUMNS} columns")
    return [(ast.unparse(part), _whole(part)) for part in parts]


def parse(text: str) -> ast.expr:
    """The syntax tree of an expression, not yet looked at. Raises ExpressionProblem."""
    if len(text) > LONGEST:
        raise ExpressionProblem(f"an expression has at most {LONGEST} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as problem:
        reason = problem.msg if isinstance(problem, SyntaxError) else "it is too deeply nested"
        raise ExpressionProblem(f"not an expression: {reason}") from None


def _whole(tree: ast.expr) -> Evaluate:
    try:
        return _compiled(tree, 0)
    except RecursionError:  # from what quotes a part that is not allowed
        raise ExpressionProblem("the expression is too deeply nested") from None


def _compiled(node: ast.expr, depth: int) -> Evaluate:
    if depth > DEEPEST:
        raise ExpressionProblem("the expression is too deeply nested")
    below = depth + 1
    match node:
        case ast.Constant(value=str() | int() | float() | None as constant):
            return lambda row: constant
        case ast.Name(id=name) if name in NAMES:
            return attrgetter(name)
        case ast.Name(id="true" | "false" | "null" as word):
            meaning = {"true": True, "false": False, "null": None}[word]
            return lambda row: meaning
        case ast.Name(id=name):
            raise ExpressionProblem(f"there is no {name!r}: a record has {', '.join(NAMES)}")
        case ast.Attribute(value=inner, attr=field):
            return _field(_compiled(inner, below), field)
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as field)):
            return _field(_compiled(inner, below), field)
        case ast.Subscript(value=inner, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as index))):
            return _field(_compiled(inner, below), -index)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = [_compiled(element, below) for element in elements]
            return lambda row: [part(row) for part in parts]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            negated = _compiled(inner, below)
            return lambda row: not negated(row)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda row: -number
        case ast.BoolOp(op=operator, values=values):
            operands = [_compiled(each, below) for each in values]
            if isinstance(operator, ast.And):
                return lambda row: all(operand(row) for operand in operands)
            return lambda row: any(operand(row) for operand in operands)
        case ast.Compare(left=left, ops=operators, comparators=rights):
            return _comparison(_compiled(left, below), operators, [_compiled(right, below) for right in rights])
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, arguments, below)
    raise ExpressionProblem(f"{ast.unparse(node)!r} is not allowed in a filter")


def _field(inner: Evaluate, field: str | int) -> Evaluate:
    def get(row: Row) -> Any:
        found = inner(row)
        try:
            if isinstance(found, dict):
                return found[field]
            if isinstance(found, list) and isinstance(field, int):
                return found[field]
        except (KeyError, IndexError):
            pass
        return None

    return get


_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
}


def _comparison(first: Evaluate, operators: list[ast.cmpop], rights: list[Evaluate]) -> Evaluate:
    compare = [_COMPARISONS[type(operator)] for operator in operators]

    def test(row: Row) -> bool:
        left = first(row)
        for holds, right in zip(compare, rights, strict=True):
            following = right(row)
            try:
                if not holds(left, following):
                    return False
            except (TypeError, RecursionError):  # JSON may be nested more deeply than it can be compared
                return False
            left = following
        return True

    return test


def _call(name: str, arguments: list[ast.expr], depth: int) -> Evaluate:
    match name, arguments:
        case "header", [ast.Constant(value=str() as header)]:
            return lambda row: row.headers.get(header)
        case "time", [ast.Constant(value=str() as text)]:
            at_ms = _milliseconds(text)
            return lambda row: at_ms
        case "matches", [subject, ast.Constant(value=str() as pattern)]:
            inner = _compiled(subject, depth)
            try:
                expression = re2.compile(pattern)
            except re2.error as problem:
                raise ExpressionProblem(f"not a regular expression: {pattern!r}: {problem}") from None
            return lambda row: isinstance(text := inner(row), str) and expression.search(text) is not None
        case "lower", [subject]:
            lowered = _compiled(subject, depth)
            return lambda row: text.lower() if isinstance(text := lowered(row), str) else None
        case "len", [subject]:
            counted = _compiled(subject, depth)
            return lambda row: len(found) if isinstance(found := counted(row), (str, list, dict)) else None
    raise ExpressionProblem(
        f"{name}(...) cannot be used so: there are header('name'), time('2026-01-01T00:00:00Z'), "
        "matches(text, 'pattern'), lower(text) and len(value)"
    )


def _milliseconds(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ExpressionProblem(f"{text!r} is no time, as 2026-01-01T00:00:00Z is") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
