"""Does a flow still fit its checkpoint? What must not change is kept beside it, and compared at each start.

Spark's checkpoint knows the sources by their place, and state by operator, key and the partitions of a shuffle. Some
changes it refuses with words of its own, late; others it takes and goes wrong. Filters, projections, triggers, static
tables and options of sources may change freely.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.pipeline.errors import CheckpointMismatchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.queries import Planned

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
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


_COMPUTES_WINDOW: Final = "named_struct('start', "
_GAP: Final = re.compile(r"\+ cast\((.*?) as interval\)")
_LENGTH: Final = re.compile(r"[%+] (\d+)l\)")
_EVERY: Final = re.compile(r"% (\d+)l\)")
_FIRST: Final = re.compile(r"- (\d+)l\) % ")
"""In Spark's SQL for a window: microseconds."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a checkpoint depends on. `stateful` has a line for each operator with state: its kind, keys and values.

    `values` are those of its aggregations in the order in which Spark keeps them, `windows` the lengths of its windows;
    None: an older checkpoint, of which only `stateful` is known, where values are sorted.
    """

    inputs: list[str]
    output: str
    mode: str
    stateful: list[str]
    shuffle_partitions: str
    values: list[list[str]] | None = None
    windows: list[str] | None = None

    def changes_to(self, now: "Fit", *, asks_for_partitions: bool) -> Iterator[str]:
        """What of the checkpoint does not go with the flow as it is `now`, each as a phrase.

        A number of shuffle partitions matters only if it is asked for: Spark keeps to the one in the checkpoint.
        """
        if self.inputs != now.inputs:
            yield f"it read {_listed(self.inputs)} and now reads {_listed(now.inputs)}"
        if self.output != now.output:
            yield f"it wrote {self.output} and now writes {now.output}"
        if self.mode != now.mode:
            yield f"its output mode was {self.mode} and is {now.mode}"
        if len(self.stateful) != len(now.stateful):
            yield f"it kept state for {_listed(self.stateful)}, and now for {_listed(now.stateful)}"
        else:
            for before, after in zip(self.stateful, now.stateful, strict=True):
                if before != after:
                    yield f"its state was that of {before}, and is that of {after}"
            if self.stateful == now.stateful and self.values is not None and self.values != now.values:
                yield (
                    f"it kept the values {_in_order(self.values)}, and now {_in_order(now.values or [])}: Spark finds "
                    "them in the state by their place"
                )
        if self.windows is not None and self.windows != now.windows:
            yield f"it kept {_listed(self.windows)}, and now {_listed(now.windows or [])}"
        if asks_for_partitions and now.stateful and self.shuffle_partitions != now.shuffle_partitions:
            yield (
                f"its state is in {self.shuffle_partitions} partitions, and {_SHUFFLE_PARTITIONS} asks for "
                f"{now.shuffle_partitions}"
            )


def has_unfinished_batch(checkpoint: Path) -> bool:
    """Whether a micro-batch was begun and not finished: it is done again at the next start."""
    begun, done = (
        max((int(each.name) for each in (checkpoint / kind).glob("[0-9]*")), default=-1)
        for kind in ("offsets", "commits")
    )
    return begun > done


def check_fit(query: "Planned", checkpoint: Path, settings: Mapping[str, str]) -> None:
    """Compare a query with what its checkpoint holds, and write down what it depends on if it holds nothing yet.

    `settings` are those that the job or the command line sets. Raises CheckpointMismatchError with all that has
    changed, or OSError.
    """
    now = _fit(query)
    kept = checkpoint.with_name(checkpoint.name + ".json")
    if not any((checkpoint / "offsets").glob("[0-9]*")):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(now), indent=1) + "\n", encoding="utf-8")
        return
    try:
        before = Fit(**json.loads(kept.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return  # Spark's own checks remain
    changes = list(before.changes_to(now, asks_for_partitions=_SHUFFLE_PARTITIONS in settings))
    if changes:
        raise CheckpointMismatchError(
            f"{query.name!r} no longer fits its checkpoint: {'; '.join(changes)}. Undo that; leave the flow out "
            "(--except); or compute its output anew from its inputs: `ottla pipeline replay`, then promote"
        )


def _fit(query: "Planned") -> Fit:
    inputs = [each.describe() for each in query.sources]
    partitions = str(query.rows.sparkSession.conf.get(_SHUFFLE_PARTITIONS))
    kept = state_of(query.rows)
    return Fit(inputs, query.sink.describe(), query.mode, kept.operators, partitions, kept.values, kept.windows)


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
    return State(operators, values, list(dict.fromkeys(_windows(plan))) if operators else [])


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


def _windows(plan: Any) -> Iterator[str]:
    """The windows that a plan computes. Spark knows their lengths only as numbers in what computes their beginning and
    end: the type of the column is the same for all, and so is the state."""
    for child in _each(plan.children()):
        yield from _windows(child)
    if plan.getClass().getSimpleName() in ("Project", "Expand"):
        texts = [text for each in _each(plan.expressions()) if _COMPUTES_WINDOW in (text := each.sql().lower())]
        gaps = {gap for text in texts for gap in _GAP.findall(text)}
        lengths, every, first = (
            {int(number) for text in texts for number in pattern.findall(text)} - {0}
            for pattern in (_LENGTH, _EVERY, _FIRST)
        )
        if gaps:
            yield f"sessions with a gap of {', '.join(sorted(gaps))}"
        elif lengths:
            slides = f" every {_seconds(every)}" if every != {max(lengths)} else ""
            yield f"windows of {_seconds({max(lengths)})}{slides}" + (f" from {_seconds(first)} on" if first else "")


def window_length_us(plan: Any) -> int | None:
    """How long the windows of an analyzed plan are, in microseconds; None if it computes none, or of two lengths."""
    found = {window_length_us(child) for child in _each(plan.children())}
    if plan.getClass().getSimpleName() in ("Project", "Expand"):
        texts = [text for each in _each(plan.expressions()) if _COMPUTES_WINDOW in (text := each.sql().lower())]
        found.add(max((int(number) for text in texts for number in _LENGTH.findall(text)), default=None))
    lengths = found - {None}
    return lengths.pop() if len(lengths) == 1 else None


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


def _in_order(values: list[list[str]]) -> str:
    return " and ".join(f"({', '.join(each)})" for each in values)


def _listed(phrases: list[str]) -> str:
    return " and ".join(phrases) or "nothing"
