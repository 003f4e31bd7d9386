"""How late rows are merged into aggregates that have been written: a rule for each column of the output. PURE.

written   start 08:00, carrier UA, flights 10, longest 40
late      start 08:00, carrier UA, flights  1, longest 55     the same aggregation, over the late rows alone
merged    start 08:00, carrier UA, flights 11, longest 55
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum
from functools import partial
from typing import Any, Final

import pyarrow as pa

from ottla.pipeline.errors import PipelineError

_EXACT: Final = Context(prec=80)
"""Decimals of Spark have 38 digits."""


class Rule(Enum):
    """What becomes of a column. A null is no value: it changes neither a sum nor a limit."""

    LATE = "that of the late rows"
    """The same for all rows of a key, or looked up anew."""
    SUM = "sum"
    LEAST = "min"
    GREATEST = "max"
    EVERY = "bool_and"
    ANY = "bool_or"


@dataclass(frozen=True, slots=True)
class Mean:
    """An average: the column `total` divided by the column `count`, both merged."""

    total: str
    count: str


@dataclass(frozen=True, slots=True)
class Closing:
    """When the window of a row ends: `column`, or `field` of it, and `after_us` microseconds later."""

    column: str
    field: str | None = None
    after_us: int = 0


@dataclass(frozen=True, slots=True)
class Corrections:
    """How to merge rows of one key. `key` are the columns that identify a row; all others have a rule."""

    key: tuple[str, ...]
    rules: Mapping[str, Rule | Mean]
    closes: Closing

    @property
    def merged_columns(self) -> tuple[str, ...]:
        """The columns whose written values count."""
        return tuple(name for name, rule in self.rules.items() if isinstance(rule, Rule) and rule is not Rule.LATE)

    def merge(self, written: pa.Table, late: pa.Table) -> pa.Table:
        """The late rows, each merged with the written row of its key if there is one.

        `written` has at least the key and `merged_columns`, and may have rows of other keys; the result has the columns
        of `late`. Raises PipelineError for a sum that its type cannot hold.
        """
        before = {tuple(row[name] for name in self.key): row for row in written.to_pylist()}
        rows = [self._merged(before.get(tuple(row[name] for name in self.key)), row) for row in late.to_pylist()]
        try:
            return pa.Table.from_pylist(rows, late.schema)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise PipelineError(
                f"late rows cannot be merged: a sum is larger than its column can hold: {error}"
            ) from None

    def _merged(self, before: Mapping[str, Any] | None, late: dict[str, Any]) -> dict[str, Any]:
        if before is None:
            return late
        merged = dict(late)
        for name in self.merged_columns:
            merged[name] = _combined(self.rules[name], before[name], late[name])
        for name, rule in self.rules.items():
            if isinstance(rule, Mean):
                total, count = merged[rule.total], merged[rule.count]
                merged[name] = float(total) / count if count and total is not None else None
        return merged


def _combined(rule: Rule | Mean, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    assert isinstance(rule, Rule)
    return _COMBINE[rule](one, other)


def _sum(one: Any, other: Any) -> Any:
    return _EXACT.add(one, other) if isinstance(one, Decimal) else one + other


def _as_spark_orders(value: Any) -> tuple[bool, Any]:
    """NaN is greater than all other numbers."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, None if is_nan else value


_COMBINE: Final[Mapping[Rule, Callable[[Any, Any], Any]]] = {
    Rule.SUM: _sum,
    Rule.LEAST: partial(min, key=_as_spark_orders),
    Rule.GREATEST: partial(max, key=_as_spark_orders),
    Rule.EVERY: lambda one, other: one and other,
    Rule.ANY: lambda one, other: one or other,
}
