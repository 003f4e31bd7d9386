"""What jobs read: topics and files. A topic is also what they write (`ottla.pipeline.sinks`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from ottla.pipeline.context import Outputs, QuerySpec, RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.times import microseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.pipeline.corrections import Corrections
    from ottla.pipeline.rows.aligned import Upstream
    from ottla.pipeline.rows.checked import Checked
    from ottla.pipeline.rows.history import Versions
    from ottla.pipeline.sinks.batches import MicroBatch

GROUP: Final = "kafka.group.id"
_ISOLATION: Final = "kafka.isolation.level"
_FORMATS: Final = {
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "orc": "orc",
    "parquet": "parquet",
    "txt": "text",
}


@runtime_checkable
class Input(Protocol):
    """What a view or flow may name as an input."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it reads, by their names in the job file."""

    def load(self, context: RunContext) -> "DataFrame | Checked | Versions":
        """The rows, as a streaming or a batch DataFrame, or rows of which some were rejected; or versions of rows."""

    def describe(self) -> str:
        """What it is, in a few words that stay the same as long as it reads the same: `topic flights`."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as an input and as an output. See `topic`."""

    name: str
    starting: str = "earliest"
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    idle_after_ms: int | None = None
    aligned: bool | str = False
    upstream: tuple["Upstream", ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.name.split(","))

    def describe(self) -> str:
        """The input, as a drawing of the job names it."""
        idle = ", which may be idle" if self.idle_after_ms is not None else ""
        return f"topic {self.name}{idle}{', aligned' if self.aligned else ''}"

    def load(self, context: RunContext) -> "DataFrame":
        """The topic as a stream with the columns of Spark's Kafka source, headers included. Raises JobError."""
        options = self.reading(
            context, {"subscribe": ",".join(map(context.renamed, self.topics)), **self._starting(context)}
        )
        options |= self._about_time(context)
        return context.spark.readStream.format("ottla").options(**options).load()

    def _about_time(self, context: RunContext) -> dict[str, str]:
        """What `rows.watermark` has to know of it. Raises JobError on Spark Connect."""
        if self.idle_after_ms is None and not self.upstream:
            return {}
        from pyspark.sql.utils import is_remote

        from ottla.pipeline.rows.aligned import options_of
        from ottla.spark.options import CHECKPOINTS, IDLE_AFTER_MS

        if is_remote():
            option = "aligned" if self.upstream else "idle_after"
            raise JobError(
                f"topic({self.name!r}, {option}=...) needs the plan of Spark, which is out of reach on Spark Connect"
            )
        about = options_of(self.upstream) if self.upstream else {IDLE_AFTER_MS: str(self.idle_after_ms)}
        return {**about, CHECKPOINTS: str((context.checkpoints or context.home).absolute())}

    def reading(self, context: RunContext, defaults: Mapping[str, str]) -> dict[str, str]:
        """The options of whatever reads the topic in this run, `defaults` among them where the topic has none itself.

        Aborted records are left out unless the options say otherwise, which Spark's source by itself would show: what
        other jobs and connectors write exactly once would come twice where they were killed. A `kafka.group.id` is
        that of the query, since each query commits where it is itself.
        """
        options = {"includeHeaders": "true", **context.connection(), **defaults, **self.options}
        if not any(name.lower() == _ISOLATION for name in options):
            options[_ISOLATION] = "read_committed"
        found = {}
        for name, value in options.items():
            own = context.group_of_query(value) if name.lower() == GROUP else value
            if own is not None:
                found[name] = own
        return found

    def commits(self, context: RunContext) -> bool:
        """Whether its offsets are committed to a consumer group."""
        return any(name.lower() == GROUP for name in (*context.connection(), *self.options))

    def _starting(self, context: RunContext) -> dict[str, str]:
        """Where it starts in this run. Raises JobError if its topics do so in ways that one stream cannot."""
        found = [context.starting_options(topic) or {"startingOffsets": self.starting} for topic in self.topics]
        if all(each == found[0] for each in found):
            return dict(found[0])
        offsets = [each.get("startingOffsets", "") for each in found]
        if not all(each.startswith("{") for each in offsets):
            raise JobError(
                f"topic({self.name!r}) is one stream, and its topics are to begin in ways that do not go together: "
                "give the same for all of them, or an offset for each"
            )
        merged = {topic: at for each in offsets for topic, at in json.loads(each).items()}
        return {"startingOffsets": json.dumps(merged)}

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        """Write a stream to the topic, exactly once."""
        from ottla.pipeline.sinks.topic import start

        return start(self, rows, query)

    def read(self, context: RunContext) -> "DataFrame":
        """What the topic holds now, as a batch."""
        from ottla.pipeline.sinks.topic import read

        return read(self, context)

    def correct(self, batch: "MicroBatch", corrections: "Corrections", context: RunContext) -> int:
        """Merge late rows into the newest records of their keys. See `sinks.base.Correctable`."""
        from ottla.pipeline.sinks.topic import correct

        return correct(self, batch, corrections, context)

    def last_batch(self, query_id: str, outputs: Outputs) -> int | None:
        """The last micro-batch of a query in the topic, by the marks of its tasks."""
        from ottla.pipeline.sinks.topic_batches import last_batch

        return last_batch(outputs.renamed(self.name), self.options, query_id, outputs)

    def renamed(self, suffix: str) -> "Topic":
        """The copy that a run beside another writes."""
        return replace(self, name=f"{self.name}-{suffix}")


@dataclass(frozen=True, slots=True)
class Files:
    """Files as an input. See `files`."""

    path: str
    format: str
    schema: str | None
    stream: bool
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return f"{self.format} files {self.path}"

    def load(self, context: RunContext) -> "DataFrame":
        """The rows of the files: those there are now, or as a stream of those that come."""
        reader = context.spark.readStream if self.stream else context.spark.read
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return reader.format(self.format).options(**self.options).load(context.path(self.path))


def topic(
    name: str,
    *,
    starting: str = "earliest",
    key: str | tuple[str, ...] = (),
    idle_after: str | None = None,
    aligned: bool | str = False,
    **options: object,
) -> Topic:
    """A topic, read as a stream or written exactly once. To read, it may be several: `"flights,arrivals"`.

    `starting` is where a run without a checkpoint begins to read: `earliest`, `latest` or JSON, as Spark's
    `startingOffsets`. `key` names the columns that make the key of the records written, where rows have no column of
    that name. Any option of the format `ottla` may follow, such as `maxOffsetsPerTrigger=10_000` or, by `**{...}`,
    `kafka.group.id`.

    With `idle_after` (`5 minutes`), a topic that has brought nothing for so long does not hold back the watermark of a
    flow any more (`rows.watermark`): that of the topic is then so far behind the clock, and older rows are late.

    With `aligned`, the topic is one that flows of the job write, and the watermark of a flow that reads it is never
    later than theirs, so that no row is late that was in time there. `True` allows for the length of their windows; an
    interval (`1 hour`) is how far rows may be behind their watermark, where joins, sessions or state hold them.
    Raises JobError for a name that is none, and for an interval that is none.
    """
    if not name.strip():
        raise JobError(f"topic({name!r}): a topic has a name, such as topic('flights')")
    idle_after_us = None if idle_after is None else microseconds(idle_after)
    if idle_after is not None and not idle_after_us:
        raise JobError(f"topic({name!r}): idle_after is an interval such as '5 minutes', not {idle_after!r}")
    if isinstance(aligned, str) and microseconds(aligned) is None:
        raise JobError(f"topic({name!r}): aligned is True or an interval such as '1 hour', not {aligned!r}")
    if aligned and idle_after is not None:
        raise JobError(
            f"topic({name!r}): aligned waits for the flows that write it, and idle_after does not: give one of them. "
            "The inputs of those flows may be idle_after an interval"
        )
    idle_after_ms = None if idle_after_us is None else idle_after_us // 1000
    keys = (key,) if isinstance(key, str) else tuple(key)
    return Topic(name, starting, keys, as_text(options), idle_after_ms, aligned)


def files(
    path: str,
    *,
    format: str | None = None,  # noqa: A002 - Spark's word
    schema: str | None = None,
    stream: bool = False,
    **options: object,
) -> Files:
    """Files by a path or pattern: read whole when the run starts, or with `stream` as they come into a directory.

    A relative path starts at the job file's directory. `format` is Spark's (csv, json, parquet, orc, text) and
    follows from the name where it ends in one; a stream needs a `schema`. Options are those of Spark's reader
    (`header=True`). Raises JobError.
    """
    found = format or _FORMATS.get(path.rpartition(".")[2].lower())
    if found is None:
        raise JobError(f"files({path!r}) does not end in a known format: name it, as in format='csv'")
    if stream and schema is None:
        raise JobError(f"files({path!r}, stream=True) needs a schema, such as schema='carrier STRING, name STRING'")
    return Files(path, found, schema, stream, as_text(options))


def as_text(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
