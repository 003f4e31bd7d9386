"""What differs between the outputs of two runs: rows in one alone, and rows of one key that are not the same.

    rows of A ─┬▶ how often each (key, row) stands in A and in B ──▶ those that do not balance, by key
    rows of B ─┘

All of it runs on Spark, so that outputs may be larger than memory; what comes back are counts and a few examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from ottla.pipeline.errors import PipelineError

_KEY: Final = "key"
_ROW: Final = "row"


class DiffError(PipelineError):
    """The outputs cannot be compared; the message names them and the reason."""


@dataclass(frozen=True, slots=True)
class Example:
    """Rows of one key, as JSON, in which the runs differ; without keys, a row that one has more often."""

    key: str
    in_a: list[str]
    in_b: list[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of two runs. `differing` counts keys whose rows are not the same, the others count rows."""

    equal: int
    only_in_a: int
    only_in_b: int
    differing: int
    examples: list[Example]

    @property
    def is_equal(self) -> bool:
        return not (self.only_in_a or self.only_in_b or self.differing)


def records(topic: DataFrame, *, newest: bool) -> DataFrame:
    """The records of a topic as rows to compare: by their keys, and with `newest` only the last of each.

    A key whose last value is null is gone then. Headers and times are left out: they say when and from where.
    """
    chosen = topic
    if newest:
        last = F.max_by(F.struct("value"), F.struct("offset", "timestamp")).alias("last")
        keyed = topic.where(F.col("key").isNotNull()).groupBy("key").agg(last).select("key", "last.value")
        chosen = keyed.unionByName(topic.where(F.col("key").isNull()).select("key", "value"))
        chosen = chosen.where(F.col("value").isNotNull())
    row = _as_json({"key": _text("key"), "value": _text("value")})
    # a record without a key is like no other: it is its own
    return chosen.select(F.coalesce(_text("key"), row).alias(_KEY), row.alias(_ROW))


def rows(table: DataFrame, key: Sequence[str] = ()) -> DataFrame:
    """The rows of a table as rows to compare, by the columns of `key`, or each by all. Raises DiffError."""
    absent = [name for name in key if name not in table.columns]
    if absent:
        raise DiffError(f"there is no column {absent[0]!r}; there are {', '.join(table.columns)}")
    row = _as_json({name: F.col(f"`{name}`") for name in sorted(table.columns)})
    by = _as_json({name: F.col(f"`{name}`") for name in key}) if key else row
    return table.select(by.alias(_KEY), row.alias(_ROW))


def compare(a: DataFrame, b: DataFrame, limit: int) -> Difference:
    """Compare what `records` or `rows` made of two outputs, with at most `limit` examples, the least keys first."""
    sides = a.withColumn("a", F.lit(1)).withColumn("b", F.lit(0))
    sides = sides.unionByName(b.withColumn("a", F.lit(0)).withColumn("b", F.lit(1)))
    counted = sides.groupBy(_KEY, _ROW).agg(F.sum("a").alias("a"), F.sum("b").alias("b"))
    by_key = (
        counted.groupBy(_KEY)
        .agg(
            F.sum(F.least("a", "b")).alias("equal"),
            # a row that stands thrice here and once there is two too many
            F.sort_array(F.flatten(F.collect_list(_excess("a", "b")))).alias("in_a"),
            F.sort_array(F.flatten(F.collect_list(_excess("b", "a")))).alias("in_b"),
        )
        .persist()
    )
    try:
        has_a, has_b = F.size("in_a") > 0, F.size("in_b") > 0
        # where each row is its own key, rows are counted, not keys
        more_a, more_b = (F.when(~has_b, F.size("in_a")), F.when(~has_a, F.size("in_b")))
        (total,) = by_key.agg(
            F.coalesce(F.sum("equal"), F.lit(0)).alias("equal"),
            F.coalesce(F.sum(more_a), F.lit(0)).alias("only_in_a"),
            F.coalesce(F.sum(more_b), F.lit(0)).alias("only_in_b"),
            F.count_if(has_a & has_b).alias("differing"),
        ).collect()
        found = by_key.where(has_a | has_b).orderBy(_KEY).limit(limit).collect() if limit else []
    finally:
        by_key.unpersist()
    examples = [Example(row[_KEY], list(row["in_a"]), list(row["in_b"])) for row in found]
    return Difference(total["equal"], total["only_in_a"], total["only_in_b"], total["differing"], examples)


def _excess(here: str, there: str) -> Column:
    return F.array_repeat(F.col(_ROW), F.greatest(F.col(here) - F.col(there), F.lit(0)).cast("int"))


def _text(column: str) -> Column:
    """Bytes as text where they are, else as 0x and hexadecimal digits."""
    text = F.col(column).cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.hex(column)))


def _as_json(columns: dict[str, Column]) -> Column:
    fields = F.struct(*(column.alias(name) for name, column in columns.items()))
    return F.to_json(fields, {"ignoreNullFields": "false"})
