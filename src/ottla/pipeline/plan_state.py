"""What a query keeps as state, and for how long it holds rows back, by Spark's analyzed plan."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPERATORS: Final = {
    "Aggregate": "an aggregation",
    "Deduplicate": "a deduplication",
    "DeduplicateWithinWatermark": "a deduplication within the watermark",
    "Distinct": "a distinct",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "GlobalLimit": "a limit",
    "Join": "a join of two streams",
    "TransformWithStateInPySpark": "transformWithState",
}
"""Nodes of Spark's logical plan that keep state when they are streaming, and how a person calls them."""
_AT_ONCE: Final = ("an aggregation", "a deduplication", "a distinct", "a limit")
"""Those that hold rows for as long as their windows last, or not at all."""


_COMPUTES_WINDOW: Final = "named_struct('start', "
_GAP: Final = re.compile(r"\+ cast\((.*?) as interval\)")
_LENGTH: Final = re.compile(r"[%+] (\d+)l\)")
_EVERY: Final = re.compile(r"% (\d+)l\)")
_FIRST: Final = re.compile(r"- (\d+)l\) % ")
"""In Spark's SQL for a window: microseconds."""


class State(NamedTuple):
    """What a plan keeps as state: a line for each operator; for each aggregation its values, in Spark's order; for each
    kind of window its lengths."""

    operators: list[str]
    values: list[list[str]]
    windows: list[str]


def state_of(rows: "DataFrame") -> State:
    """By the analyzed plan. Nothing on Spark Connect, where the plan is out of reach."""
    frame: Any = rows
    if not hasattr(frame, "_jdf"):
        return State([], [], [])
    plan = frame._jdf.queryExecution().analyzed()
    values: list[list[str]] = []
    operators = list(_operators(plan, values))
    return State(operators, values, list(dict.fromkeys(map(_in_words, _windows(plan)))) if operators else [])


def _operators(plan: Any, kept: list[list[str]]) -> Iterator[str]:
    """A line for each operator with state. The values of aggregations are added to `kept`."""
    children = list(_each(plan.children()))
    for child in children:
        yield from _operators(child, kept)
    kind = plan.getClass().getSimpleName()
    if kind not in _OPERATORS or not plan.isStreaming():
        return
    if kind == "Join":
        if all(child.isStreaming() for child in children):
            sides = " with ".join(f"({_columns(child.output())})" for child in children)
            yield f"{_OPERATORS[kind]} ({plan.joinType().sql().lower()}) {sides}"
    elif kind == "Aggregate":
        keys = ", ".join(_typed(each) for each in _each(plan.groupingExpressions()))
        values = list(dict.fromkeys(_aggregates(plan.aggregateExpressions())))
        kept.append(values)
        yield f"{_OPERATORS[kind]} by ({keys}) of ({', '.join(sorted(values))})"
    elif kind.startswith("Deduplicate"):
        yield f"{_OPERATORS[kind]} by ({_columns(plan.keys())})"
    elif kind in ("Distinct", "GlobalLimit"):
        yield f"{_OPERATORS[kind]} of ({_columns(plan.output())})"
    elif kind == "TransformWithStateInPySpark":  # of rows and of pandas alike; on the right would be the initial state
        yield f"{_OPERATORS[kind]} by ({_columns(plan.leftAttributes())})"
    else:
        yield f"{_OPERATORS[kind]} by ({_columns(plan.groupingAttributes())})"


class _Windows(NamedTuple):
    """The windows that a node of a plan computes, in microseconds; `gaps` are those of sessions, as intervals."""

    gaps: set[str]
    lengths: set[int]
    every: set[int]
    first: set[int]


def _windows(plan: Any) -> Iterator[_Windows]:
    """The windows that a plan computes. Spark knows their lengths only as numbers in what computes their beginning and
    end: the type of the column is the same for all, and so is the state."""
    for child in _each(plan.children()):
        yield from _windows(child)
    if plan.getClass().getSimpleName() in ("Project", "Expand"):
        texts = [text for each in _each(plan.expressions()) if _COMPUTES_WINDOW in (text := each.sql().lower())]
        numbers = (
            {int(number) for text in texts for number in pattern.findall(text)} - {0}
            for pattern in (_LENGTH, _EVERY, _FIRST)
        )
        found = _Windows({gap for text in texts for gap in _GAP.findall(text)}, *numbers)
        if found.gaps or found.lengths:
            yield found


def _in_words(windows: _Windows) -> str:
    if windows.gaps:
        return f"sessions with a gap of {', '.join(sorted(windows.gaps))}"
    slides = f" every {_seconds(windows.every)}" if windows.every != {max(windows.lengths)} else ""
    first = f" from {_seconds(windows.first)} on" if windows.first else ""
    return f"windows of {_seconds({max(windows.lengths)})}{slides}{first}"


def window_length_us(plan: Any) -> int | None:
    """How long the windows of an analyzed plan are, in microseconds; None if it computes none, or of two lengths."""
    lengths = {max(each.lengths) for each in _windows(plan) if each.lengths}
    return lengths.pop() if len(lengths) == 1 else None


class Hold(NamedTuple):
    """By how much the time of a row that a query writes may be before its watermark, in milliseconds; None if the plan
    does not show that: `because` then names the part of it that holds rows."""

    ms: int | None
    because: str = ""


def hold_of(rows: "DataFrame") -> Hold | None:
    """None for rows without a watermark."""
    frame: Any = rows
    plan = frame._jdf.queryExecution().analyzed()
    if not _has_watermark(plan):
        return None
    for operator in _operators(plan, []):
        if not operator.startswith(_AT_ONCE):
            return Hold(None, operator)
    windows = list(_windows(plan))
    sessions = [each for each in windows if each.gaps]
    if sessions:
        return Hold(None, _in_words(sessions[0]))
    return Hold(-(-sum(max(each.lengths) for each in windows) // 1000))


def _has_watermark(plan: Any) -> bool:
    return plan.getClass().getSimpleName() == "EventTimeWatermark" or any(map(_has_watermark, _each(plan.children())))


def _seconds(microseconds: set[int]) -> str:
    return ", ".join(f"{Decimal(each) / 1_000_000:f} s" for each in sorted(microseconds))


def _aggregates(expressions: Any) -> Iterator[str]:
    for each in _each(expressions):
        if each.getClass().getSimpleName() == "AggregateExpression":
            yield each.sql()
        else:
            yield from _aggregates(each.children())


def _columns(attributes: Any) -> str:
    return ", ".join(_typed(each) for each in _each(attributes))


def _typed(expression: Any) -> str:
    return f"{expression.sql().replace('`', '')} {expression.dataType().simpleString()}"


def _each(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)
