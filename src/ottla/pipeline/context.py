"""The context of a run, as inputs and sinks see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES: Final = ("append", "update", "complete")
"""Spark's output modes."""
CHANGES: Final = "changes"
"""The mode of a flow whose rows are changes of a captured table, which its output follows (`Job.apply_changes`)."""
HISTORY: Final = "history"
"""As `CHANGES`, for an output that keeps all versions of the rows, with the times between which they were valid."""
AVAILABLE_NOW: Final = "available-now"
"""The trigger of a query that takes what is there and ends."""
ALL_TOPICS: Final = "*"
"""The key in `RunContext.starting` that stands for every topic without one of its own."""


class _Reach:
    """What a run and the question after its outputs have in common: its brokers, and what names and paths mean."""

    __slots__ = ()

    bootstrap: str
    directory: Path
    client: dict[str, str]
    suffix: str
    written: frozenset[str]

    def connection(self) -> dict[str, str]:
        """Options that reach the brokers, for `spark.read|readStream|write|writeStream.format("ottla")`."""
        return {"kafka.bootstrap.servers": self.bootstrap, **self.client}

    def renamed(self, topic: str) -> str:
        """The topic that a name in the job file means in this run: a copy, if the job writes it and has a suffix."""
        return suffixed(topic, self.written, self.suffix)

    def path(self, path: str | Path) -> str:
        """A path of the job file, relative ones from its directory; addresses such as s3://... as they are."""
        return path_from(self.directory, path)


@dataclass(slots=True)
class Pins:
    """Which snapshot of each table a run reads, by the table's description: the newest at its first start, the same one
    from then on. With `renews`, this start takes the newest once more. `known` is the run's record of them, which is
    written before the first query starts."""

    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    renews: bool = False
    _renewed: set[str] = field(default_factory=set)
    _is_used: bool = False

    def is_first_use(self) -> bool:
        """True once: before this start takes anything."""
        is_used, self._is_used = self._is_used, True
        return not is_used

    def of(self, table: str) -> dict[str, Any] | None:
        """What is kept of a table; None before its first start."""
        return self.known.get(table)

    def is_due(self, table: str) -> bool:
        """Whether its newest snapshot is to be taken now."""
        return table not in self.known or (self.renews and table not in self._renewed)

    def keep(self, table: str, pin: dict[str, Any]) -> None:
        """Read it by this from now on."""
        self.known[table] = pin
        self._renewed.add(table)


@dataclass(frozen=True, slots=True)
class RunContext(_Reach):
    """One run of a job.

    `client` are options for the client library, each with the prefix `kafka.`, without the bootstrap servers. `home` is
    the run's own directory, `directory` that of the job file, to which relative paths in the job refer. `starting` has,
    per topic or under `ALL_TOPICS`, the options of Spark's source that take the place of where the job would start to
    read (a replay). With a `suffix`, everything that the job writes has `-suffix` at the end of its name (a run beside
    another); `written` are the topics that the job writes, by their names in the job file. `group_suffix` parts the
    consumer groups of several queries; a query whose suffix is None commits to none. `tables` has the snapshots that
    the run keeps to. `checkpoints` has a directory
    for each query, None where queries are not aligned with each other. `own_starting` is as `starting`, for flows that
    begin elsewhere than the others (`regroup`).
    """

    spark: "SparkSession"
    bootstrap: str
    job: str
    run: str
    home: Path
    directory: Path
    client: dict[str, str] = field(default_factory=dict)
    starting: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    suffix: str = ""
    written: frozenset[str] = frozenset()
    group_suffix: str | None = ""
    tables: Pins = field(default_factory=Pins)
    checkpoints: Path | None = None
    own_starting: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)

    def group_of_query(self, group: str) -> str | None:
        """The consumer group to which a query commits, if any: a run beside another must not move that one's offsets,
        nor a query those of another query."""
        if self.group_suffix is None:
            return None
        return "-".join(filter(None, (group, self.group_suffix, self.suffix)))

    def starting_options(self, topic: str) -> Mapping[str, str] | None:
        """The start of this topic in a replay, as options of Spark's source; None: the job's own."""
        return self.starting.get(topic, self.starting.get(ALL_TOPICS))


def path_from(directory: Path, path: str | Path) -> str:
    """A path of a job file in `directory`; addresses such as s3://... as they are."""
    return str(path) if "://" in str(path) else str(directory / path)


def suffixed(topic: str, written: frozenset[str], suffix: str) -> str:
    """The name of a topic in a run with a suffix: another for those that the job writes."""
    return f"{topic}-{suffix}" if suffix and topic in written else topic


@dataclass(frozen=True, slots=True)
class Outputs(_Reach):
    """What has to be known of a run to ask what its sinks have written, before there is a Spark.

    `bootstrap`, `client`, `directory`, `suffix` and `written` are those of its `RunContext`. Only what was written
    since `since_ms` (milliseconds since 1970) matters.
    """

    bootstrap: str
    directory: Path
    client: dict[str, str] = field(default_factory=dict)
    suffix: str = ""
    written: frozenset[str] = frozenset()
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One streaming query.

    `name` is `<run>.<flow>`; `checkpoint` Spark's checkpoint location; `trigger` an interval in Spark's words
    (`1 second`) or `AVAILABLE_NOW`; `mode` Spark's output mode, `CHANGES` or `HISTORY`.
    """

    name: str
    checkpoint: Path
    trigger: str
    mode: str
    context: RunContext

    def writer(self, rows: "DataFrame") -> Any:
        """Spark's writer for `rows` with everything set but the sink."""
        mode = "append" if self.mode in (CHANGES, HISTORY) else self.mode
        writer = rows.writeStream.queryName(self.name).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if self.trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=self.trigger)
