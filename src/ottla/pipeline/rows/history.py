"""A captured table with all its versions, to join streams with as of the time of each row.

    @job.flow(orders=orders, customers=history("shop.public.customers"), to=topic("orders-enriched"))
    def enriched(orders, customers):
        return as_of(orders, customers, on="customer_id", at="ordered_at")

The versions come from the topic of changes, and are kept in files on each machine (`version_store`). A function over
Arrow looks rows up there: only the columns of the key and of the time go to Python, and neither is the table read in
each micro-batch nor are rows shuffled.
"""

import hashlib
import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.pipeline import names
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import GROUP, as_text, topic
from ottla.pipeline.progress import LOOKUPS, WAITED_ROWS
from ottla.pipeline.rows.captured import Captured, TableShape
from ottla.pipeline.rows.change_events import event_schema
from ottla.pipeline.rows.table_history import HISTORIES, START, TableHistory, instant_us
from ottla.pipeline.rows.version_reader import ROW, STATUS, WAITED, TableSource, VersionSource, answer
from ottla.pipeline.rows.version_store import STATUSES
from ottla.pipeline.sinks.base import Snapshots
from ottla.pipeline.times import microseconds
from ottla.registry.client import Registry
from ottla.spark.client_settings import library
from ottla.spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import Column

    from ottla.pipeline.sinks.base import Sink

log = logging.getLogger(__name__)

_KEY_TYPES: Final = (
    BinaryType, BooleanType, DateType, DecimalType, IntegralType, StringType, TimestampType, TimestampNTZType
)  # fmt: skip
_ASKS: Final = "__ottla_asks"
_number: Final = itertools.count()
"""Distinguishes the counts of one lookup from those of others."""
_ANSWER_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class History:
    """See `history`. `depth_us` and `delay_us` are in microseconds."""

    table: Captured
    keys: tuple[str, ...]
    delay_us: int
    depth_us: int | None

    @property
    def topics(self) -> tuple[str, ...]:
        return self.table.topics

    def describe(self) -> str:
        return f"history {self.table.name}"

    def load(self, context: RunContext) -> "Versions":
        """What `as_of` takes. Raises JobError for a topic that does not show the table, or loses its changes."""
        name = self.table.topic.name
        self._check_keeps_all(context)
        shape = self.table.described(context)
        key = self._key(shape)
        try:
            event_schema(shape.columns)
        except ValueError as error:
            raise JobError(f"{self}: {error}") from None
        reading = {
            "subscribe": context.renamed(name),
            "kafka.isolation.level": "read_committed",
            **{
                option: value
                for option, value in self.table.topic.reading(context, {}).items()
                if _is_of_client(option)
            },
        }
        kept_as = hashlib.sha256(f"{shape.columns.json()}{key}{self.depth_us}".encode()).hexdigest()[:8]
        directory = (context.home / HISTORIES / f"{context.renamed(name)}-{kept_as}").absolute()
        source = VersionSource(
            what=str(self),
            directory=str(directory),
            options=tuple(sorted(reading.items())),
            columns=shape.columns.json(),
            key=key,
            delay_us=self.delay_us,
            depth_us=self.depth_us,
            ends=tuple((partition.number, end) for partition, end in sorted(shape.ends.items())),
            checks_columns=self.table.schema is None,
            registry=self.table.registry,
        )
        return Versions(source, shape.columns)

    def _key(self, shape: TableShape) -> tuple[str, ...]:
        """The columns that identify a row. Raises JobError."""
        if not shape.has_key:
            raise JobError(
                f"{self}: the captured table has no primary key: its records have no key, so that nobody "
                "knows which versions are of one row. Give the table a primary key, or name columns that identify "
                "its rows in the connector's message.key.columns, and capture it anew"
            )
        key = self.keys or shape.key
        if not key:
            raise JobError(
                f"{self}: the key of the table is not known from the records' keys: name it, as in keys='id'"
            )
        for each in key:
            if each not in shape.columns.names:
                raise JobError(
                    f"{self}: its key has the column {each!r}, and the table has: {', '.join(shape.columns.names)}"
                )
            check_key_type(str(self), each, shape.columns[each].dataType)
        return key

    def _check_keeps_all(self, context: RunContext) -> None:
        """Raises JobError for a topic that is compacted, or whose settings cannot be read."""
        name = context.renamed(self.table.topic.name)
        options = ReadOptions.parse({**context.connection(), "subscribe": name}, streaming=False)
        configuration: dict[str, Any] = library(options.client, logger=log)
        admin = AdminClient(configuration)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        try:
            (answer,) = admin.describe_configs([resource], request_timeout=_ANSWER_WITHIN_S).values()
            policy = answer.result(_ANSWER_WITHIN_S)["cleanup.policy"].value or ""
        except (KafkaException, TimeoutError) as error:
            said = error.args[0].str() if error.args and hasattr(error.args[0], "str") else "no answer"
            raise JobError(f"{self}: whether the topic is compacted cannot be asked: {said}") from None
        if "compact" in policy:
            raise JobError(
                f"{self}: the topic is compacted (cleanup.policy={policy}), which removes versions: capture into a "
                "topic with cleanup.policy=delete, with a retention as long as what is to be replayed "
                "(topic.creation.default.cleanup.policy of the connector); table(...) joins with today's rows"
            )

    def __str__(self) -> str:
        return f"history({self.table.topic.name!r})"


def check_key_type(what: str, name: str, kind: DataType) -> None:
    """Raises JobError for a column that rows cannot be looked up by."""
    if not isinstance(kind, _KEY_TYPES):
        raise JobError(f"{what}: rows cannot be looked up by {name!r}, which is {kind.simpleString()}")


@dataclass(frozen=True, slots=True)
class HistoryOfTable(TableHistory):
    """See `history`: a table of all versions."""

    def load(self, context: RunContext) -> "Versions":
        """What `as_of` takes. Raises JobError."""
        return Versions(*self.read(context))


def _is_of_client(option: str) -> bool:
    return option.lower().startswith("kafka.") and option.lower() != GROUP


@dataclass(frozen=True, slots=True)
class Versions:
    """What a function gets for `history(...)`: `as_of` joins rows with it."""

    source: VersionSource | TableSource
    schema: StructType
    isStreaming: ClassVar[bool] = False  # noqa: N815 - as a DataFrame has it

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def key(self) -> tuple[str, ...]:
        return self.source.key

    def look_up(self, keys: "Column", at: "Column", columns: StructType) -> "Column":
        """A struct of the status and of these columns. `keys` is a struct of the key's columns."""
        source = self.source
        row_type: Any = to_arrow_type(columns, timezone="UTC")

        def find(keys: pa.Array, times: pa.Array) -> pa.Array:
            return answer(source, row_type, keys, times)

        returned = StructType([StructField(STATUS, ByteType()), StructField(ROW, columns)])
        function = arrow_udf(find, returnType=returned)  # type: ignore[call-overload]  # its stub requires a kind
        found: Column = function.asNondeterministic()(keys, at)
        return found

    def __str__(self) -> str:
        return self.source.what


def history(
    of: "str | Sink",
    *,
    keys: str | tuple[str, ...] = (),
    schema: str | None = None,
    depth: str | None = None,
    delay: str = "5 seconds",
    since: str | None = None,
    until: str | None = None,
    registry: Registry | None = None,
    **options: object,
) -> "History | HistoryOfTable":
    """All versions of a table: one that a connector captures into a topic (`shop.public.customers`), or one that
    `apply_changes(..., history="all")` writes: `delta("customers-versions")`, `iceberg(...)`. `as_of` joins with them.

    `delay` is how long a change may take from the database into the topic: a row waits for so long after its own time.
    `keys` are the columns that identify a row; left out, those of the records' keys.

    A topic: `depth` (`90 days`) is for how long versions that are over are kept; left out, all that the topic has are.
    `schema` and `registry` are as in `captured`, options are those of the client (`kafka.*`).

    A table: the run keeps to one snapshot. What it knows ends `delay` before its last change, or at `until`: a time
    (ISO 8601), or `start` if the table had all changes when the run took its snapshot, but for those of the `delay`
    before. `since` is a time from which on it has every insert: a key that has its first version later was not there
    before. Raises JobError.
    """
    delay_us = microseconds(delay)
    depth_us = None if depth is None else microseconds(depth)
    for option, text, found in (("delay", delay, delay_us), ("depth", depth, depth_us)):
        if text is not None and found is None:
            raise JobError(f"{_call(of)}: {option} is an interval such as '30 seconds' or '90 days', not {text!r}")
    assert delay_us is not None
    own = (keys,) if isinstance(keys, str) else tuple(keys)
    if not isinstance(of, str):
        of_table = _checked_table(of, own, {"schema": schema, "depth": depth, "registry": registry, **options})
        start = until == START
        return HistoryOfTable(of_table, own, delay_us, _instant(of, "since", since),
            None if start else _instant(of, "until", until), start)  # fmt: skip
    for option, text in (("since", since), ("until", until)):
        if text is not None:
            raise JobError(f"{_call(of)}: {option} is for tables: a topic shows by itself what it has")
    if not of.strip() or "," in of:
        raise JobError(f"{_call(of)}: a table is captured in one topic, such as 'shop.public.customers'")
    given = as_text(options)
    for option in given:
        if not _is_of_client(option):
            raise JobError(f"{_call(of)}: there is no option {option!r}; those of the client begin with 'kafka.'")
    table = Captured(replace(topic(of), options=given), schema, truncates=True, registry=registry)
    return History(table, own, delay_us, depth_us)


def _call(of: "str | Sink") -> str:
    return f"history({of!r})" if isinstance(of, str) else f"history({of.describe()})"


def _checked_table(of: "Sink", keys: tuple[str, ...], others: Mapping[str, object]) -> Snapshots:
    if not isinstance(of, Snapshots):
        what = of.describe() if hasattr(of, "describe") else repr(of)
        raise JobError(f"{what} has no snapshots that a run could keep to: give delta(...), iceberg(...) or a topic")
    for option, given in others.items():
        if given is not None:
            raise JobError(f"{_call(of)}: there is no option {option!r} for tables")
    if not keys:
        raise JobError(f"{_call(of)}: name the columns that identify a row, as in keys='id'")
    return of


def _instant(of: "Sink", option: str, text: str | None) -> int | None:
    found = None if text is None else instant_us(text)
    if text is not None and found is None:
        raise JobError(f"{_call(of)}: {option} is a time with its zone, such as '2026-01-31T00:00:00Z', not {text!r}")
    return found


def as_of(
    rows: DataFrame,
    versions: Versions,
    *,
    on: str | tuple[str, ...],
    at: str,
    columns: tuple[str, ...] | list[str] | None = None,
    status: str | None = None,
) -> DataFrame:
    """The rows with the columns of the version that was valid at the time `at`; null where there was no row then.

    `on` are the columns of `rows` that are the table's key, in its order; `columns` are those of the table to take
    (left out: all but the key). A row whose time the history does not know (before its beginning; ahead of the clock)
    fails the query, unless `status` names a column to be added for what is known: `found`, `absent`, `too old`,
    `ahead` or `no time`. Raises JobError.
    """
    if not isinstance(versions, Versions):
        raise JobError("as_of(rows, versions, ...) takes what history(...) gives, not a DataFrame")
    own = (on,) if isinstance(on, str) else tuple(on)
    _check_columns(rows, versions, own, at, "as_of")
    wanted = _wanted(rows, versions, columns, status)
    joined = _looked_up(rows, versions, [F.col(f"`{name}`") for name in own], F.col(f"`{at}`"), wanted, status is None)
    kept = [F.col(f"`{name}`") for name in rows.columns]
    taken = [F.col(f"{ROW}.`{name}`").alias(name) for name in wanted.names]
    texts = F.array(*map(F.lit, STATUSES))
    said = [] if status is None else [F.element_at(texts, _code() + 1).alias(status)]
    return joined.select(*kept, *taken, *said)


def with_existence(
    rows: DataFrame,
    versions: Versions,
    *,
    on: tuple[str, ...],
    at: str,
    where: "Column",
    is_strict: bool,
    into: str,
    what: str,
) -> DataFrame:
    """`rows` with a boolean column `into`: whether the table had a row with the key `on`, in the order of the table's,
    at the time `at`; false where nobody knows, unless `is_strict` makes that an error. Null where not `where`, and
    where a part of the key is null.

    `what` begins the message of errors. Raises JobError.
    """
    _check_columns(rows, versions, on, at, what)
    asks = where & reduce(and_, (F.col(f"`{name}`").isNotNull() for name in on))
    keys = [F.when(asks, F.col(f"`{name}`")) for name in on]
    time = F.when(asks, F.col(f"`{at}`")).otherwise(F.timestamp_seconds(F.lit(0)))
    # a column that is there, since Spark's arrays of Arrow need one
    some = StructType([versions.schema[versions.key[0]]])
    joined = _looked_up(rows.withColumn(_ASKS, asks), versions, keys, time, some, is_strict, F.col(_ASKS))
    found = F.when(F.col(_ASKS), _code() == STATUSES.index("found"))
    return joined.withColumn(into, found).drop(STATUS, ROW, _ASKS)


def _looked_up(
    rows: DataFrame,
    versions: Versions,
    keys: "list[Column]",
    at: "Column",
    wanted: StructType,
    is_strict: bool,
    counted: "Column | None" = None,
) -> DataFrame:
    """The rows with the columns `STATUS` and `ROW`. What was found for rows that are `counted` is observed."""
    types = [versions.schema[of].dataType for of in versions.key]
    cast = [key.cast(kind).alias(f"k{place}") for place, (key, kind) in enumerate(zip(keys, types, strict=True))]
    found = replace(versions, source=replace(versions.source, is_strict=is_strict)).look_up(F.struct(*cast), at, wanted)
    # `inline` keeps what follows above it: Spark would look up once for each place that a mere projection is named in.
    joined = rows.select("*", F.inline(F.array(found)))
    of_these = F.lit(True) if counted is None else counted
    counts = [F.count_if(of_these & (_code() == place)).alias(status) for place, status in enumerate(STATUSES)]
    waited = F.count_if(of_these & (F.col(STATUS) >= WAITED)).alias(WAITED_ROWS)
    return joined.observe(f"{LOOKUPS}{next(_number)}:{versions}", *counts, waited)


def _code() -> "Column":
    return F.col(STATUS).cast("int").bitwiseAND(F.lit(WAITED - 1))


def _check_columns(rows: DataFrame, versions: Versions, own: tuple[str, ...], at: str, what: str) -> None:
    """Whether the columns `own` are the table's key, and `at` is a time. Raises JobError."""
    there = [name for name in rows.columns if not name.startswith("__ottla")]
    if len(own) != len(versions.key):
        raise JobError(f"{what}: the key of {versions} is {', '.join(versions.key)}, and on= names {', '.join(own)}")
    for name, of in zip(own, versions.key, strict=True):
        if name not in there:
            hint = names.did_you_mean(name, there, otherwise=f"; they have {', '.join(there)}")
            raise JobError(f"{what}: the rows have no column {name!r}{hint}")
        mine, other = rows.schema[name].dataType, versions.schema[of].dataType
        if not _go_together(mine, other):
            raise JobError(
                f"{what}: {name!r} is {mine.simpleString()}, and {of!r} of {versions} is {other.simpleString()}: "
                "cast it"
            )
    if at not in there:
        raise JobError(f"{what}: the rows have no column {at!r}{names.did_you_mean(at, there, otherwise='')}")
    if not isinstance(rows.schema[at].dataType, TimestampType):
        kind = rows.schema[at].dataType.simpleString()
        raise JobError(f"{what}: {at!r} is {kind}, and the time has to be a TIMESTAMP: cast it")


def _wanted(
    rows: DataFrame, versions: Versions, columns: tuple[str, ...] | list[str] | None, status: str | None
) -> StructType:
    chosen = [each for each in versions.columns if each not in versions.key] if columns is None else list(columns)
    for name in chosen:
        if name not in versions.columns:
            hint = names.did_you_mean(name, versions.columns, otherwise=f"; it has {', '.join(versions.columns)}")
            raise JobError(f"as_of: {versions} has no column {name!r}{hint}")
    for name in (*chosen, *([] if status is None else [status])):
        if name in rows.columns or (name == status and name in chosen):
            raise JobError(
                f"as_of: the rows have a column {name!r} already: rename it, or choose others of the table by columns="
            )
    return StructType([StructField(name, versions.schema[name].dataType) for name in chosen])


def _go_together(one: DataType, other: DataType) -> bool:
    if isinstance(one, IntegralType) and isinstance(other, IntegralType):
        return isinstance(other, LongType) or one == other or not isinstance(one, LongType)
    return one == other
