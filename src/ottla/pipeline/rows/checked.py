"""Rows that passed and rows that were rejected, with what is needed to find the record they came from.

    records ──▶ decode ──▶ check ──▶ check ──┬──▶ rows        the columns of the data
                                             └──▶ rejected    key, value and headers of the record, and why

Both come from one DataFrame with three more columns: the record, whether the row is well, and if not, why. A row that
is not is judged no further, so that a condition may rely on those before it. Whether and why are kept apart because
Spark computes a filter's condition below it and once more above: the first is cheap, the second asked of few.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from ottla.pipeline.rows import dead_letters

SOURCE: Final = "source"
"""The column that `keep_source` adds: a struct of key, value, headers, topic, partition, offset and timestamp."""

_SOURCE: Final = "__ottla_source"
_IS_WELL: Final = "__ottla_is_well"
_REASON: Final = "__ottla_reason"

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
class Checked:
    """Rows, some of which have been rejected. Made by `checked` or by a decoder such as `from_json`."""

    _all: DataFrame

    @property
    def rows(self) -> DataFrame:
        """The rows that passed, without the columns that only rejected rows need."""
        return self._all.where(F.col(_IS_WELL)).drop(_SOURCE, _IS_WELL, _REASON)

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
        return self._all.where(~F.col(_IS_WELL)).select(
            F.col(f"{_SOURCE}.key").alias("key"),
            F.col(f"{_SOURCE}.value").alias("value"),
            F.concat(before, said).alias("headers"),
        )

    @property
    def verdict(self) -> DataFrame:
        """Only a verdict on each row."""
        return self._all.select(_IS_WELL)

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
        return self._all.where(is_well).drop(_SOURCE, _IS_WELL, _REASON)

    def check(self, name: str, condition: Column) -> "Checked":
        """Reject the rows for which the condition is false or null, for the reason `check failed: <name>`."""
        holds = F.coalesce(condition, F.lit(False))
        return Checked(
            self._all.withColumns(
                {
                    _REASON: F.when(F.col(_IS_WELL), F.lit(f"check failed: {name}")).otherwise(F.col(_REASON)),
                    _IS_WELL: F.col(_IS_WELL) & holds,
                }
            )
        )

    def with_columns(self, **columns: Column) -> "Checked":
        """More columns, or others in place of those of the same name, by name."""
        return Checked(self._all.withColumns(columns))

    def select(self, *columns: Column | str) -> "Checked":
        """Other columns in place of all. Rejected rows keep what they are rejected with."""
        return Checked(self._all.select(*columns, _SOURCE, _IS_WELL, _REASON))

    def keep_source(self) -> "Checked":
        """With the column `source`, by which later views know the record that a row came from (see `checked`)."""
        return Checked(self._all.withColumn(SOURCE, F.col(_SOURCE)))


def checked(frame: DataFrame) -> Checked:
    """Any DataFrame as rows to check. What is written of a rejected row depends on what the DataFrame has:

    - records of a topic (`value`, `topic`, `partition`, `offset` ...): the record, and where it stood;
    - a column `source`, which `keep_source` has added: the record that the row was made of;
    - neither, as with rows from files: the row as JSON in `value`; there is no source to name.
    """
    return decoded(frame, "*", source=source_of(frame), is_well=F.lit(True), reason=F.lit(None).cast("string"))


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
