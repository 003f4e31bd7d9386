"""Rows that passed and rows that were rejected, with what is needed to find the record they came from.

    records ──▶ decode ──▶ check ──▶ check ──┬──▶ rows        the columns of the data
                                             └──▶ rejected    key, value and headers of the record, and why

Both come from one DataFrame with three more columns: the record, whether the row is well, and if not, why. A row that
is not is judged no further, so that a condition may rely on those before it. Whether and why are kept apart because
Spark computes a filter's condition below it and once more above: the first is cheap, the second asked of few.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline import names
from ottla.pipeline.errors import JobError
from ottla.pipeline.progress import EXPECTATIONS, expectation_label
from ottla.pipeline.rows import dead_letters, references

if TYPE_CHECKING:
    from ottla.pipeline.rows.history import Versions

WARN: Final = "warn"
DROP: Final = "drop"
QUARANTINE: Final = "quarantine"
FAIL: Final = "fail"
LEVELS: Final = (WARN, DROP, QUARANTINE, FAIL)
"""What becomes of rows that do not come up to an expectation; see `Checked.expect`."""

SOURCE: Final = "source"
"""The column that `keep_source` adds: a struct of key, value, headers, topic, partition, offset and timestamp."""

_SOURCE: Final = "__ottla_source"
_IS_WELL: Final = "__ottla_is_well"
_REASON: Final = "__ottla_reason"
_BREAKS: Final = "__ottla_breaks_"
"""Begins the name of a column: does the row break the expectation whose number follows?"""

_IS_THERE: Final = "__ottla_is_referred_to"

_HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"
_SOURCE_FIELDS: Final = {
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS_TYPE,
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}
_OF_RECORDS: Final = frozenset({"value", "topic", "partition", "offset"})
"""A DataFrame with these columns is one of records."""


@dataclass(frozen=True, slots=True)
class _Expectation:
    """One of `Checked.expect`; `breaks` is the column that is true for rows that break it."""

    name: str
    otherwise: str
    breaks: str

    def label(self) -> str:
        return expectation_label(self.name, self.otherwise)


@dataclass(frozen=True, slots=True)
class Checked:
    """Rows, some of which have been rejected. Made by `checked` or by a decoder such as `from_json`."""

    _all: DataFrame
    _expectations: tuple[_Expectation, ...] = ()
    _view: str = ""
    _judged_alone: DataFrame | None = None
    """The same rows for verdicts, without lookups in tables, once they differ from `_all`: the query for dead letters
    looks at another time, and what it writes has to depend on the row alone."""
    may_reject: bool = True
    """False: no decoder, check or expectation rejects a row of these."""
    _checks: tuple[str, ...] = ()

    def counts_of_rejected(self) -> list[Column]:
        """Aggregates over `rejected`: how many rows each check has rejected, by its name; a decoder rejects the others.

        Reasons of decoders cannot be columns: there may be any number of them.
        """
        said = F.filter("headers", lambda header: header["key"] == dead_letters.REASON)
        reason = F.element_at(said, -1)["value"].cast("string")
        return [F.count_if(reason == _failed(name)).alias(name) for name in dict.fromkeys(self._checks)]

    @property
    def rows(self) -> DataFrame:
        """The rows that passed, without the columns that only rejected rows need. The query that reads them counts
        those that break an expectation."""
        frame, passes = self._all, F.col(_IS_WELL)
        if self._expectations:
            counts = [F.count_if(F.col(each.breaks)).alias(each.label()) for each in self._expectations]
            frame = frame.observe(f"{EXPECTATIONS}{self._view}", *counts)
        for each in self._expectations:
            if each.otherwise == DROP:
                passes &= ~F.col(each.breaks)
            elif each.otherwise == FAIL:
                said = F.raise_error(F.lit(f"a row breaks the expectation {each.name!r}")).cast("boolean")
                passes &= F.when(F.col(each.breaks), said).otherwise(F.lit(True))
        return frame.where(passes).drop(*self._internal())

    @property
    def rejected(self) -> DataFrame:
        """The rows that were rejected: `key`, `value`, `headers`, as a topic takes them.

        `labelled` adds job and view.
        """
        said = F.filter(
            F.array(
                _header(dead_letters.REASON, F.col(_REASON)),
                _header(dead_letters.SOURCE_TOPIC, F.col(f"{_SOURCE}.topic")),
                _header(dead_letters.SOURCE_PARTITION, F.col(f"{_SOURCE}.partition")),
                _header(dead_letters.SOURCE_OFFSET, F.col(f"{_SOURCE}.offset")),
                _header(dead_letters.SOURCE_TIMESTAMP, F.unix_millis(f"{_SOURCE}.timestamp")),
            ),
            lambda header: header["value"].isNotNull(),
        )
        before = F.coalesce(F.col(f"{_SOURCE}.headers"), F.array().cast(_HEADERS_TYPE))
        return self._for_verdicts.where(~F.col(_IS_WELL)).select(
            F.col(f"{_SOURCE}.key").alias("key"),
            F.col(f"{_SOURCE}.value").alias("value"),
            F.concat(before, said).alias("headers"),
        )

    @property
    def verdict(self) -> DataFrame:
        """Only a verdict on each row."""
        return self._for_verdicts.select(_IS_WELL)

    def passed_or_fail(self, what: str) -> DataFrame:
        """All rows; a rejected one fails the query, with the reason. For outputs without dead letters."""
        said = F.concat(
            F.lit(f"{what} cannot be read: the record at offset "),
            F.coalesce(F.col(f"{_SOURCE}.offset").cast("string"), F.lit("?")),
            F.lit(" of partition "),
            F.coalesce(F.col(f"{_SOURCE}.partition").cast("string"), F.lit("?")),
            F.lit(" is rejected: "),
            F.col(_REASON),
        )
        is_well = F.when(F.col(_IS_WELL), F.lit(True)).otherwise(F.raise_error(said).cast("boolean"))
        return self._all.where(is_well).drop(*self._internal())

    def check(self, name: str, condition: Column) -> "Checked":
        """Reject the rows for which the condition is false or null, for the reason `check failed: <name>`."""
        holds = F.coalesce(condition, F.lit(False))
        columns = {
            _REASON: F.when(F.col(_IS_WELL), F.lit(_failed(name))).otherwise(F.col(_REASON)),
            _IS_WELL: F.col(_IS_WELL) & holds,
        }
        changed = self._with(lambda rows: rows.withColumns(columns))
        return replace(changed, may_reject=True, _checks=(*self._checks, name))

    def expect(self, name: str, condition: Column, otherwise: str = WARN) -> "Checked":
        """Count the rows for which the condition is false or null, per flow that reads them. `otherwise`: such a row
        stays (`WARN`), is left out (`DROP`), is rejected as by `check` (`QUARANTINE`), or fails the flow (`FAIL`). A
        row that was rejected or left out before is not counted.

        Raises JobError for another `otherwise`, and for a name that was given before.
        """
        expectation = self._expectation(name, otherwise)
        breaks = self._still_judged() & ~F.coalesce(condition, F.lit(False))
        alone = None if self._judged_alone is None else self._judged_alone.withColumn(expectation.breaks, breaks)
        return self._expecting(expectation, self._all.withColumn(expectation.breaks, breaks), alone)

    def expect_in(
        self,
        name: str,
        columns: references.References,
        table: "DataFrame | Versions",
        otherwise: str = WARN,
        *,
        at: str | None = None,
    ) -> "Checked":
        """Count the rows that refer to a row which the table does not have, and treat them as `expect` does.

        `columns` refer to the table's of the same names, together; a mapping names others: `{"customer": "id"}`. A
        reference of which a part is null refers to nothing and breaks nothing; use `expect` for those. The table may
        have several rows with the same values. Each micro-batch looks at a `table(...)` as it is then.

        With what `history(...)` gives and `at`, a column of the rows, the table counts as it was at the time of each
        row. `columns` refer to its key then. Where the history does not know that time, the row breaks an expectation
        that warns, and fails the flow otherwise.

        `otherwise="quarantine"` is for tables that do not change: a job is refused where one that follows its topic
        decides about dead letters. Raises JobError as `expect`, for columns that are missing or cannot be compared, and
        for a table that is a stream.
        """
        expectation = self._expectation(name, otherwise)
        still_judged, what = self._still_judged(), f"the expectation {name!r}"
        breaks = still_judged & ~F.col(_IS_THERE)
        if (at is None) != isinstance(table, DataFrame):
            raise JobError(
                f"{what}: at= names the time of the rows for history(...), and is needed there; a table(...) is looked "
                "up as it is"
            )
        if otherwise == QUARANTINE and at is not None:
            raise JobError(
                f"{what}: dead letters are decided by another query at another time, when a history may know more or "
                "less: give otherwise='drop', or as_of(..., status=...) and a flow of its own for the rows to keep"
            )

        def looked_up(rows: DataFrame) -> DataFrame:
            if isinstance(table, DataFrame):
                found = references.with_reference(rows, columns, table, into=_IS_THERE, what=what)
            else:
                assert at is not None
                found = references.with_reference_as_of(
                    rows,
                    columns,
                    table,
                    at=at,
                    where=still_judged,
                    is_strict=otherwise != WARN,
                    into=_IS_THERE,
                    what=what,
                )
            return found.withColumn(expectation.breaks, breaks).drop(_IS_THERE)

        if otherwise == QUARANTINE:
            alone = None if self._judged_alone is None else looked_up(self._judged_alone)
        else:
            alone = self._for_verdicts.withColumn(expectation.breaks, F.lit(False))
        return self._expecting(expectation, looked_up(self._all), alone)

    def _expectation(self, name: str, otherwise: str) -> _Expectation:
        """The next one. Raises JobError."""
        if otherwise not in LEVELS:
            hint = names.did_you_mean(otherwise, LEVELS, otherwise=f"; there are {', '.join(LEVELS)}")
            raise JobError(f"the expectation {name!r} cannot have otherwise={otherwise!r}{hint}")
        if any(each.name == name for each in self._expectations):
            raise JobError(f"there are two expectations {name!r}: each needs a name of its own")
        return _Expectation(name, otherwise, f"{_BREAKS}{len(self._expectations)}")

    def _still_judged(self) -> Column:
        """Whether a row has been neither rejected nor left out by an expectation."""
        judged = F.col(_IS_WELL)
        for each in self._expectations:
            if each.otherwise == DROP:
                judged &= ~F.col(each.breaks)
        return judged

    def _expecting(self, expectation: _Expectation, rows: DataFrame, alone: DataFrame | None) -> "Checked":
        """With one more expectation, whose column these rows have."""
        expectations = (*self._expectations, expectation)
        more = replace(self, _all=rows, _judged_alone=alone, _expectations=expectations)
        return more.check(expectation.name, ~F.col(expectation.breaks)) if expectation.otherwise == QUARANTINE else more

    def with_columns(self, **columns: Column) -> "Checked":
        """More columns, or others in place of those of the same name, by name."""
        return self._with(lambda rows: rows.withColumns(columns))

    def select(self, *columns: Column | str) -> "Checked":
        """Other columns in place of all. Rejected rows keep what they are rejected with."""
        return self._with(lambda rows: rows.select(*columns, *self._internal()))

    def keep_source(self) -> "Checked":
        """With the column `source`, by which later views know the record that a row came from (see `checked`)."""
        return self._with(lambda rows: rows.withColumn(SOURCE, F.col(_SOURCE)))

    def of_view(self, view: str) -> "Checked":
        """The same as rows of the view or flow of this name, which its counts then have."""
        return replace(self, _view=view)

    @property
    def _for_verdicts(self) -> DataFrame:
        return self._all if self._judged_alone is None else self._judged_alone

    def _with(self, change: Callable[[DataFrame], DataFrame]) -> "Checked":
        alone = None if self._judged_alone is None else change(self._judged_alone)
        return replace(self, _all=change(self._all), _judged_alone=alone)

    def _internal(self) -> tuple[str, ...]:
        return _SOURCE, _IS_WELL, _REASON, *(each.breaks for each in self._expectations)


def _failed(check: str) -> str:
    return f"check failed: {check}"


def checked(frame: DataFrame) -> Checked:
    """Any DataFrame as rows to check. What is written of a rejected row depends on what the DataFrame has:

    - records of a topic (`value`, `topic`, `partition`, `offset` ...): the record, and where it stood;
    - a column `source`, which `keep_source` has added: the record that the row was made of;
    - neither, as with rows from files: the row as JSON in `value`; there is no source to name.
    """
    none = F.lit(None).cast("string")
    return replace(decoded(frame, "*", source=source_of(frame), is_well=F.lit(True), reason=none), may_reject=False)


def decoded(frame: DataFrame, *columns: Column | str, source: Column, is_well: Column, reason: Column) -> Checked:
    """For decoders: the data of a row, its record (see `source_of`), if it is well (never null), and else why."""
    return Checked(frame.select(*columns, source.alias(_SOURCE), is_well.alias(_IS_WELL), reason.alias(_REASON)))


def source_of(frame: DataFrame) -> Column:
    """The struct that names the record a row is or was made of; see `checked`."""
    names = set(frame.columns)
    if names >= _OF_RECORDS:
        return F.struct(
            *(
                (F.col(name) if name in names else F.lit(None)).cast(kind).alias(name)
                for name, kind in _SOURCE_FIELDS.items()
            )
        )
    if SOURCE in names:
        return F.col(SOURCE)
    as_json = F.to_json(F.struct(*(F.col(f"`{name}`") for name in frame.columns)), {"ignoreNullFields": "false"})
    return F.struct(
        *((as_json if name == "value" else F.lit(None)).cast(kind).alias(name) for name, kind in _SOURCE_FIELDS.items())
    )


def labelled(rejected: DataFrame, *, job: str, view: str) -> DataFrame:
    """Rejected rows with the names of the job, and of the view or flow that rejected them."""
    names = F.array(_header(dead_letters.JOB, F.lit(job)), _header(dead_letters.VIEW, F.lit(view)))
    return rejected.withColumn("headers", F.concat("headers", names))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
