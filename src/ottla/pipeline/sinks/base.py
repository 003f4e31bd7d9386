"""What a sink is: the place where the rows of a flow go, and how its query is set up."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MODES: Final = ("append", "update", "complete")
AVAILABLE_NOW: Final = "available-now"
"""The trigger of a query that takes what is there and ends."""


class SinkError(Exception):
    """Rows cannot be written as the job asks; the message says to which sink, why, and what to do."""


class Context(Protocol):
    """What a sink asks of the run that it belongs to (`RunContext`)."""

    @property
    def spark(self) -> "SparkSession": ...

    @property
    def bootstrap(self) -> str:
        """Brokers, as `host:port,host:port`."""
        ...

    @property
    def client(self) -> dict[str, str]:
        """Options `kafka.*` for whatever talks to the brokers."""
        ...

    def renamed(self, topic: str) -> str:
        """The topic's name in this run: a replay or a test writes elsewhere."""
        ...


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One streaming query.

    `name` is `<job>.<flow>`; `checkpoint` Spark's checkpoint location; `trigger` an interval in Spark's words
    (`1 second`) or `available-now`; `mode` one of `MODES`.
    """

    name: str
    checkpoint: Path
    trigger: str
    mode: str
    context: Context

    def writer(self, rows: "DataFrame") -> Any:
        """Spark's writer for `rows` with everything set but the sink. Raises SinkError if the mode is unknown."""
        if self.mode not in MODES:
            raise SinkError(f"{self.name}: mode '{self.mode}' is none of {', '.join(MODES)}")
        writer = rows.writeStream.queryName(self.name).outputMode(self.mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if self.trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=self.trigger)


class Sink(Protocol):
    """Where rows go. Implementations are values: making one touches nothing."""

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        """Begin to write `rows`; what is missing (a table, a directory) is made.

        Raises SinkError if the rows do not fit, before the query begins.
        """
        ...

    def describe(self) -> str:
        """In one phrase, for a table of flows: `topic delays`, `Delta table /data/delays`."""
        ...

    def renamed(self, suffix: str) -> "Sink":
        """The same kind of sink beside this one, named with `-suffix` at its end."""
        ...

    def read(self, context: Context) -> "DataFrame":
        """What has been written, as a batch: for comparisons. Raises SinkError if it cannot be read back."""
        ...
