"""What differs between the outputs of two runs: rows in one alone, and rows of one key that are not the same.

    rows of A ─┬▶ how often each (key, row) stands in A and in B ──▶ those that do not balance, by key, in pairs
    rows of B ─┘                                                                    │
                                       the columns in which the rows of a pair differ, beyond the tolerance

All of it runs on Spark, so that outputs may be larger than memory; what comes back are counts and a few examples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ottla.pipeline.errors import PipelineError

_KEY: Final = "key"
_ROW: Final = "row"
_TEXTS: Final = "map<string,string>"
_VARIANTS: Final = "map<string,variant>"
_LOOKED_AT: Final = 1000
"""Records in which a column has to be found that the user names."""


class DiffError(PipelineError):
    """The outputs cannot be compared; the message names them and the reason."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What of the rows is compared. `key`: the columns that make rows the same (none: all, or the record's key);
    `only` these columns (none: all), without those `ignored`. A record's columns are the fields of its JSON object."""

    key: Sequence[str] = ()
    only: Sequence[str] = ()
    ignored: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """All columns that it names."""
        return [*self.key, *self.only, *self.ignored]

    def compares(self, column: str) -> bool:
        """Whether the column counts, as one of the key's or by itself."""
        return column in self.key or (column not in self.ignored and (not self.only or column in self.only))


EVERYTHING: Final = Selection()


@dataclass(frozen=True, slots=True)
class Example:
    """Rows of one key, as JSON, in which the runs differ; without keys, a row that one has more often. `columns` are
    those in which rows of both differ."""

    key: str
    in_a: list[str]
    in_b: list[str]
    columns: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys by what the runs have of them."""

    equal: int
    only_in_a: int
    only_in_b: int
    differing: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of two runs. `differing` counts keys whose rows are not the same; `equal`, `only_in_a` and `only_in_b`
    count rows, the last two of keys that the other run does not have or has less often. `columns` counts, for
    each column, the pairs of rows that differ in it."""

    equal: int
    only_in_a: int
    only_in_b: int
    differing: int
    keys: Keys
    columns: dict[str, int]
    examples: list[Example]

    @property
    def is_equal(self) -> bool:
        return not (self.only_in_a or self.only_in_b or self.differing)


def records(topic: DataFrame, *, newest: bool, selection: Selection = EVERYTHING) -> DataFrame:
    """The records of a topic as rows to compare: by their keys, and with `newest` only the last of each.

    A key whose last value is null is gone then. Headers and times are left out: they say when and from where. With a
    selection, the values have to be JSON objects; others have one field, `value`. Raises DiffError for a field that is
    in none of the first thousand records.
    """
    chosen = topic
    if newest:
        last = F.max_by(F.struct("value"), F.struct("offset", "timestamp")).alias("last")
        keyed = topic.where(F.col("key").isNotNull()).groupBy("key").agg(last).select("key", "last.value")
        chosen = keyed.unionByName(topic.where(F.col("key").isNull()).select("key", "value"))
        chosen = chosen.where(F.col("value").isNotNull())
    if not selection.names:
        row = _as_json({"key": _text("key"), "value": _text("value")})
        # a record without a key is like no other: it is its own
        return chosen.select(F.coalesce(_text("key"), row).alias(_KEY), row.alias(_ROW))
    text = _text("value")
    fields = F.coalesce(_fields(text), F.create_map(F.lit("value"), _quoted(text)))
    parsed = chosen.select(_text("key").alias("record"), fields.alias("fields"))
    _check_fields(parsed, selection.names)
    kept = F.map_filter("fields", lambda name, _: _is_compared(name, selection))
    row = _object(F.transform(F.array_sort(F.map_entries(kept)), lambda each: _member(each["key"], each["value"])))
    by = F.coalesce("record", row)
    if selection.key:
        of_key = [_member(F.lit(name), F.coalesce(F.col("fields")[name], F.lit("null"))) for name in selection.key]
        by = _object(F.array(*of_key))
    return parsed.select(by.alias(_KEY), row.alias(_ROW))


def rows(table: DataFrame, selection: Selection = EVERYTHING) -> DataFrame:
    """The rows of a table as rows to compare, by the columns of the key, or each by all. Raises DiffError."""
    absent = [name for name in selection.names if name not in table.columns]
    if absent:
        raise DiffError(f"there is no column {absent[0]!r}; there are {', '.join(table.columns)}")
    row = _as_json({name: F.col(f"`{name}`") for name in sorted(table.columns) if selection.compares(name)})
    by = _as_json({name: F.col(f"`{name}`") for name in selection.key}) if selection.key else row
    return table.select(by.alias(_KEY), row.alias(_ROW))


def compare(a: DataFrame, b: DataFrame, limit: int, *, tolerance: float = 0.0) -> Difference:
    """Compare what `records` or `rows` made of two outputs, with at most `limit` examples, the least keys first.

    Numbers of a pair of rows are the same if they differ by no more than `tolerance`.
    """
    outcome = _by_key(a, b, tolerance).persist()
    try:
        total = _totals(outcome)
        names = outcome.select(F.explode(F.flatten("differ")).alias("name")).groupBy("name").count().collect()
        differ = outcome.where(F.col("differs") | (F.col("more_a") > 0) | (F.col("more_b") > 0))
        shown = differ.orderBy(_KEY).limit(limit).collect() if limit else []
    finally:
        outcome.unpersist()
    return Difference(
        total["equal"],
        total["more_a"],
        total["more_b"],
        total["differing"],
        Keys(total["keys_equal"], total["keys_a"], total["keys_b"], total["keys_differing"]),
        {row["name"]: row["count"] for row in sorted(names, key=lambda row: (-row["count"], row["name"]))},
        [Example(row[_KEY], list(row["in_a"]), list(row["in_b"]), _names(row["differ"])) for row in shown],
    )


def _by_key(a: DataFrame, b: DataFrame, tolerance: float) -> DataFrame:
    """A row for each key: how many rows are `equal`, those of each run that are not (`in_a`, `in_b`), the columns in
    which pairs of these differ, and how many are without one of the other run (`more_a`, `more_b`)."""
    sides = a.withColumn("a", F.lit(1)).withColumn("b", F.lit(0))
    sides = sides.unionByName(b.withColumn("a", F.lit(0)).withColumn("b", F.lit(1)))
    counted = sides.groupBy(_KEY, _ROW).agg(F.sum("a").alias("a"), F.sum("b").alias("b"))
    keyed = counted.groupBy(_KEY).agg(
        F.sum(F.least("a", "b")).alias("equal"),
        # a row that stands thrice here and once there is two too many
        F.sort_array(F.flatten(F.collect_list(_excess("a", "b")))).alias("in_a"),
        F.sort_array(F.flatten(F.collect_list(_excess("b", "a")))).alias("in_b"),
    )
    shorter = F.least(F.size("in_a"), F.size("in_b"))
    paired = keyed.withColumn("pairs", F.slice(F.arrays_zip("in_a", "in_b"), 1, shorter))
    differ = F.transform("pairs", lambda pair: _differing(pair["in_a"], pair["in_b"], tolerance))
    judged = paired.withColumn("differ", differ)
    within = F.size(F.filter("differ", lambda columns: F.size(columns) == 0))
    pairs, has_a, has_b = F.size("pairs"), F.size("in_a") > 0, F.size("in_b") > 0
    return judged.select(
        _KEY,
        "in_a",
        "in_b",
        (F.col("equal") + within).alias("equal"),
        F.filter("differ", lambda columns: F.size(columns) > 0).alias("differ"),
        # where each row is its own key, rows are counted, not keys
        F.when(~has_b | (pairs == within), F.size("in_a") - pairs).otherwise(0).alias("more_a"),
        F.when(~has_a | (pairs == within), F.size("in_b") - pairs).otherwise(0).alias("more_b"),
        (has_a & has_b & (pairs > within)).alias("differs"),
    )


def _totals(outcome: DataFrame) -> Row:
    differs, only_a, only_b = F.col("differs"), F.col("more_a") > 0, F.col("more_b") > 0
    in_one = F.col("equal") == 0
    (total,) = outcome.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("equal", "more_a", "more_b")),
        F.count_if(differs).alias("differing"),
        F.count_if(~differs & ~only_a & ~only_b).alias("keys_equal"),
        F.count_if(~differs & only_a & in_one).alias("keys_a"),
        F.count_if(~differs & only_b & in_one).alias("keys_b"),
        F.count_if(differs | ((only_a | only_b) & ~in_one)).alias("keys_differing"),
    ).collect()
    return total


def _names(differ: Iterable[Iterable[str]]) -> list[str]:
    return sorted({name for each in differ for name in each})


def _check_fields(parsed: DataFrame, wanted: Sequence[str]) -> None:
    looked_at = parsed.limit(_LOOKED_AT).select(F.map_keys("fields").alias("names"))
    found = looked_at.select(F.explode("names").alias("name")).distinct().collect()
    names = sorted(row["name"] for row in found)
    absent = [name for name in wanted if names and name not in names]
    if absent:
        raise DiffError(f"no record has a field {absent[0]!r}; there are {', '.join(names)}")


def _is_compared(name: Column, selection: Selection) -> Column:
    counts = F.lit(True) if not selection.only else name.isin(list(selection.only))
    counts &= ~name.isin(list(selection.ignored))
    return counts | name.isin(list(selection.key)) if selection.key else counts


def _differing(a: Column, b: Column, tolerance: float) -> Column:
    """The names of the columns in which two rows differ, given as JSON."""
    left, right = (_columns(each) for each in (a, b))

    def differs(name: Column) -> Column:
        same = left[name].eqNullSafe(right[name])
        if tolerance:
            distance = F.abs(_number(left[name]) - _number(right[name]))
            are_alike = left[name].startswith('"') == right[name].startswith('"')
            same |= F.coalesce(are_alike & (distance <= tolerance), F.lit(False))
        return ~same

    return F.filter(F.array_sort(F.array_union(F.map_keys(left), F.map_keys(right))), differs)


def _columns(row: Column) -> Column:
    """The columns of a row as JSON; the fields of a record's value, where that is a JSON object, in place of it."""
    columns = _fields(row)
    value = _fields(F.from_json(row, _TEXTS)["value"])
    is_record = F.map_contains_key(columns, F.lit("key")) & (F.size(columns) == 2) & value.isNotNull()
    return F.when(is_record, value).otherwise(columns)


def _number(value: Column) -> Column:
    """A number, also where its digits are a text."""
    return F.btrim(value, F.lit('"')).try_cast("double")


# -- JSON ----------------------------------------------------------------------------------------------------------


def _fields(text: Column) -> Column:
    """The fields of a JSON object, each as JSON itself, so that 1 is not "1"; null for any other text.

    Spark's texts keep a number as it is written, but not what is a text: that is known by the variants.
    """
    return F.map_zip_with(
        F.from_json(text, _TEXTS),
        F.from_json(text, _VARIANTS),
        lambda _, said, variant: F.when(F.schema_of_variant(variant) == "STRING", F.to_json(variant)).otherwise(
            F.coalesce(said, F.lit("null"))
        ),
    )


def _quoted(text: Column) -> Column:
    """A text, or null, as JSON."""
    return F.regexp_replace(F.to_json(F.array(text)), r"^\[|\]$", "")


def _member(name: Column, value: Column) -> Column:
    return F.concat(_quoted(name), F.lit(":"), value)


def _object(members: Column) -> Column:
    return F.concat(F.lit("{"), F.array_join(members, ","), F.lit("}"))


def _excess(here: str, there: str) -> Column:
    return F.array_repeat(F.col(_ROW), F.greatest(F.col(here) - F.col(there), F.lit(0)).cast("int"))


def _text(column: str) -> Column:
    """Bytes as text where they are, else as 0x and hexadecimal digits."""
    text = F.col(column).cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.hex(column)))


def _as_json(columns: dict[str, Column]) -> Column:
    fields = F.struct(*(column.alias(name) for name, column in columns.items()))
    return F.to_json(fields, {"ignoreNullFields": "false"})
