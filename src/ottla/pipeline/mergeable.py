"""Can late rows be merged into what a flow has written? Answered by its plan, before anything runs.

    Project, Filter, Join with a table      every column of the output is a key, one aggregate, or follows from the key
      Aggregate by (window, carrier)        the only operator with state: it alone decides which rows are late
        Project, Filter, ...                anything without state

Each column gets its rule (`corrections`), or the flow is refused with advice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.corrections import Closing, Corrections, Mean, Rule
from ottla.pipeline.errors import JobError
from ottla.pipeline.plan_state import state_of, window_length_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RULES: Final = {
    "Sum": Rule.SUM,
    "Count": Rule.SUM,
    "CountIf": Rule.SUM,
    "Min": Rule.LEAST,
    "Max": Rule.GREATEST,
    "BoolAnd": Rule.EVERY,
    "BoolOr": Rule.ANY,
}
_MERGED: Final = "sum, count, count_if, min, max, bool_and, bool_or, and avg beside the sum and the count of the same"
_NUMBERS: Final = ("bigint", "double", "decimal")
_ORDERED: Final = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean", "date"),
    *("timestamp", "timestamp_ntz"),
)
_PASS: Final = ("SubqueryAlias", "ResolvedHint", "CollectMetrics", "View")
_JOINS: Final = ("Inner", "LeftOuter", "RightOuter", "Cross", "LeftSemi", "LeftAnti")
_AGGREGATION: Final = "an aggregation"
_DELAY: Final = "spark.watermarkDelayMs"
_SESSION: Final = "spark.sessionWindow"


@dataclass(frozen=True, slots=True)
class _Group:
    """A column of the key: one of those that rows are grouped by (its id), or the `field` of a window among them."""

    of: int
    field: str | None = None


@dataclass(frozen=True, slots=True)
class _Aggregate:
    rule: Rule
    function: str
    argument: str


@dataclass(frozen=True, slots=True)
class _Average:
    argument: str


@dataclass(frozen=True, slots=True)
class _Follows:
    """Follows from the key, or is looked up by it."""


@dataclass(frozen=True, slots=True)
class _Refused:
    why: str


_Origin = _Group | _Aggregate | _Average | _Follows | _Refused
_Columns = dict[int, _Origin]
"""By the id that Spark gives a column."""


def corrections_of(rows: "DataFrame", key: tuple[str, ...], flow: str) -> Corrections:
    """How late rows are merged into what this flow writes by `key`. Raises JobError if they cannot be."""
    frame: Any = rows
    if not hasattr(frame, "_jdf"):
        raise _refusal(flow, "it needs the plan of Spark, which is out of reach on Spark Connect")
    plan = frame._jdf.queryExecution().analyzed()
    try:
        aggregate = _only_aggregate(rows, plan)
        columns = _columns(plan)
        windows = _windows(aggregate)
    except _NotMergeableError as problem:
        raise _refusal(flow, str(problem)) from None
    output = {each.name(): columns[each.exprId().id()] for each in _each(plan.output())}
    try:
        _check_key(output, key, aggregate, windows)
        rules = {name: _rule(name, origin, output) for name, origin in output.items() if name not in key}
        return Corrections(key, rules, _closing(output, windows, plan))
    except _NotMergeableError as problem:
        raise _refusal(flow, str(problem)) from None


class _NotMergeableError(Exception):
    """The message is half a sentence: why."""


def _refusal(flow: str, why: str) -> JobError:
    return JobError(
        f"flow {flow!r}: late='correct' cannot be: {why}. Otherwise set late rows aside, by late=topic('{flow}-late'), "
        "and compute the output anew from time to time by `ottla pipeline replay`"
    )


# -- the plan --------------------------------------------------------------------------------------


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _kind(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name


def _only_aggregate(rows: "DataFrame", plan: Any) -> Any:
    """The flow's only operator with state. Raises _NotMergeableError."""
    operators = state_of(rows).operators
    others = [each for each in operators if not each.startswith(_AGGREGATION)]
    if others:
        kind = others[0].partition(" by (")[0].partition(" of (")[0].partition(" (")[0]
        raise _NotMergeableError(
            f"it has {kind}, which decides which rows are late, and what was in its state is not known any longer"
        )
    if not operators:
        raise _NotMergeableError("the flow aggregates nothing, so that none of its rows is late")
    if len(operators) > 1:
        raise _NotMergeableError(
            "the flow aggregates twice, and the second aggregation would need all rows of the first: make the second a "
            "flow of its own"
        )
    return next(node for node in _nodes(plan) if _kind(node) == "Aggregate" and node.isStreaming())


def _windows(aggregate: Any) -> dict[int, bool]:
    """The columns with a watermark by which rows are grouped; whether each is a window. Raises _NotMergeableError."""
    found = {}
    for each in _each(aggregate.groupingExpressions()):
        for attribute in _each(each.references().toSeq()):
            if attribute.metadata().contains(_SESSION):
                raise _NotMergeableError("a late row can join two sessions that have been written")
        if _kind(each) == "AttributeReference" and each.metadata().contains(_DELAY):
            found[int(each.exprId().id())] = each.dataType().simpleString().startswith("struct")
    if not found:
        raise _NotMergeableError(
            "rows are grouped neither by a window of the column with the watermark nor by that column, so that none is "
            "ever late"
        )
    return found


def _columns(plan: Any) -> _Columns:
    """What the columns of a plan's output are. Raises _NotMergeableError."""
    kind = _kind(plan)
    if kind == "Aggregate":
        grouping = _each(plan.groupingExpressions())
        groups = {int(each.exprId().id()) for each in grouping if _kind(each) == "AttributeReference"}
        known: _Columns = {number: _Group(number) for number in groups}
        known |= {
            int(each.exprId().id()): _Group(int(each.exprId().id()))
            for each in _each(plan.aggregateExpressions())
            if _is_a_group(each, plan)
        }
        return known | {int(each.exprId().id()): _origin(each, known) for each in _each(plan.aggregateExpressions())}
    children = list(_each(plan.children()))
    if not plan.isStreaming():
        return {int(each.exprId().id()): _Follows() for each in _each(plan.output())}
    if kind in _PASS:
        return _renamed(plan, _columns(children[0]))
    if kind == "Project":
        known = _columns(children[0])
        return {int(each.exprId().id()): _origin(each, known) for each in _each(plan.projectList())}
    if kind == "Filter":
        known = _columns(children[0])
        if not isinstance(_of_expression(plan.condition(), known), _Follows | _Group):
            raise _NotMergeableError(
                f"rows are left out by their aggregates ({plan.condition().sql()}), and what has been left out is not "
                "known any longer: leave them out where the output is read"
            )
        return known
    if kind == "Join":
        return _joined(plan, children)
    raise _NotMergeableError(f"{kind} after the aggregation changes its rows in a way that cannot be followed")


def _renamed(plan: Any, known: _Columns) -> _Columns:
    ids = [int(each.exprId().id()) for each in _each(plan.output())]
    if all(number in known for number in ids):
        return known
    before = [int(each.exprId().id()) for each in _each(plan.children().apply(0).output())]
    return {new: known[old] for new, old in zip(ids, before, strict=True)}


def _joined(plan: Any, children: list[Any]) -> _Columns:
    if plan.joinType().toString() not in _JOINS:
        raise _NotMergeableError(f"a join ({plan.joinType().sql().lower()}) after the aggregation adds rows of its own")
    known = _columns(children[0]) | _columns(children[1])
    condition = plan.condition()
    if condition.isDefined() and not isinstance(_of_expression(condition.get(), known), _Follows | _Group):
        raise _NotMergeableError(
            f"aggregates decide which rows of a table they are joined with ({condition.get().sql()}), and they change"
        )
    return known


def _is_a_group(expression: Any, aggregate: Any) -> bool:
    """Whether an output of the aggregation is one of what it groups by, which need not be a column."""
    inner = expression.child() if _kind(expression) == "Alias" else expression
    return any(inner.semanticEquals(each) for each in _each(aggregate.groupingExpressions()))


def _origin(expression: Any, known: _Columns) -> _Origin:
    number = int(expression.exprId().id())
    if number in known:
        return known[number]
    return _of_expression(expression.child(), known)


def _of_expression(expression: Any, known: _Columns) -> _Origin:
    kind = _kind(expression)
    if kind == "AttributeReference":
        return known.get(int(expression.exprId().id()), _Refused("is not part of the aggregation"))
    if kind == "AggregateExpression":
        return _aggregated(expression)
    inner = [_of_expression(each, known) for each in _each(expression.children())]
    if kind == "GetStructField" and isinstance(inner[0], _Group) and inner[0].field is None:
        return _Group(inner[0].of, expression.extractFieldName())
    if kind == "Alias" or (kind == "Cast" and isinstance(inner[0], _Aggregate) and _keeps_digits(expression)):
        return inner[0]
    if all(isinstance(each, _Group | _Follows) for each in inner) and expression.deterministic():
        return _Follows()
    return _Refused(f"is computed from aggregates ({expression.sql()}): write those, and compute it where it is read")


def _keeps_digits(cast: Any) -> bool:
    """Whether sums of cast values are cast sums."""
    before, after = (each.dataType().simpleString() for each in (cast.child(), cast))
    if before.startswith("decimal") and after.startswith("decimal"):
        return bool(cast.dataType().scale() >= cast.child().dataType().scale())
    return (before, after) in (("bigint", "decimal(20,0)"), ("bigint", "decimal(38,0)"))


def _aggregated(expression: Any) -> _Origin:
    function, text = expression.aggregateFunction(), expression.sql()
    name, kind = _kind(function), function.dataType().simpleString()
    argument = text.partition("(")[2]
    if expression.isDistinct():
        return _Refused(f"is {text}: which values have been counted is not known any longer")
    if name == "Average" and kind == "double":
        return _Average(argument)
    rule = _RULES.get(name)
    if name == "Average":
        return _Refused(f"is {text}, an average of decimals: write its sum and its count, and divide where it is read")
    if rule is None:
        return _Refused(f"is {text}, which late rows cannot be merged into; those that can be are {_MERGED}")
    allowed = _NUMBERS if rule is Rule.SUM else _ORDERED
    if kind.partition("(")[0] not in allowed or "try_" in text:
        return _Refused(f"is {text} of the type {kind}, of which two cannot be merged")
    return _Aggregate(rule, "count" if name == "Count" else name.lower(), argument)


# -- the output ------------------------------------------------------------------------------------


def _check_key(output: dict[str, _Origin], key: tuple[str, ...], aggregate: Any, windows: dict[int, bool]) -> None:
    """The sink's key has to tell groups apart: else a late row of one would be merged into another."""
    for name in key:
        if name not in output:
            raise _NotMergeableError(f"the key has the column {name!r}, and the rows have only: {', '.join(output)}")
        if not isinstance(output[name], _Group):
            raise _NotMergeableError(
                f"the key has the column {name!r}, which is not one of those that rows are grouped by, so that a late "
                "row might not find the row of its group"
            )
    in_key = [origin for name in key if isinstance(origin := output[name], _Group)]
    named = {each.name(): each for each in _each(aggregate.aggregateExpressions()) if _is_a_group(each, aggregate)}
    for each in _each(aggregate.groupingExpressions()):
        ids = {int(it.exprId().id()) for it in named.values() if _is_of(it, each)}
        if _kind(each) == "AttributeReference":
            ids.add(int(each.exprId().id()))
        whole = [origin for origin in in_key if origin.of in ids]
        if not any(origin.field is None or windows.get(origin.of) for origin in whole):
            raise _NotMergeableError(
                f"the key ({', '.join(key)}) lacks {each.sql().replace('`', '')}, by which rows are grouped: rows of "
                "several groups would take each other's place"
            )


def _is_of(expression: Any, group: Any) -> bool:
    inner = expression.child() if _kind(expression) == "Alias" else expression
    return bool(inner.semanticEquals(group))


def _rule(name: str, origin: _Origin, output: dict[str, _Origin]) -> Rule | Mean:
    if isinstance(origin, _Refused):
        raise _NotMergeableError(f"the column {name!r} {origin.why}")
    if isinstance(origin, _Aggregate):
        return origin.rule
    if isinstance(origin, _Average):
        beside = {
            each.function: at
            for at, each in output.items()
            if isinstance(each, _Aggregate) and each.argument == origin.argument
        }
        if beside.keys() >= {"sum", "count"}:
            return Mean(beside["sum"], beside["count"])
        raise _NotMergeableError(
            f"the column {name!r} is an average, and averages alone cannot be merged: write the sum and the count of "
            "the same values beside it"
        )
    return Rule.LATE


def _closing(output: dict[str, _Origin], windows: dict[int, bool], plan: Any) -> Closing:
    """The column by which the late groups of a micro-batch are known. Raises _NotMergeableError."""
    found = {(each.of, each.field): name for name, each in output.items() if isinstance(each, _Group)}
    for number, is_window in windows.items():
        if not is_window and (number, None) in found:
            return Closing(found[number, None])
        if (number, None) in found:
            return Closing(found[number, None], "end")
        if (number, "end") in found:
            return Closing(found[number, "end"])
        length_us = window_length_us(plan)
        if (number, "start") in found and length_us is not None:
            return Closing(found[number, "start"], after_us=length_us)
    raise _NotMergeableError("the output does not have the window, or its start or end, by which late rows are known")


def _each(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)
