"""A function of the job's own as a sink: a picture, a notification, a system that has no sink here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.pipeline.context import QuerySpec, RunContext
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Write = Callable[[MicroBatch, RunContext], None]


@dataclass(frozen=True, slots=True)
class EachBatch:
    """See `each_batch`."""

    write: Write
    what: str

    def describe(self) -> str:
        return self.what

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        return start_batches(rows, query, lambda batch: self.write(batch, query.context))

    def renamed(self, _suffix: str) -> "EachBatch":
        return self  # the run's context has the location

    def read(self, _context: RunContext) -> "DataFrame":
        raise SinkError(f"what {self.what} has written only the job knows to read back")


def each_batch(write: Write, *, describe: str | None = None) -> EachBatch:
    """Have a function write each micro-batch: `write(batch, context)`, with `batch.rows`, `batch.number` and
    `batch.query_id`, and the run it is part of (`context.home` is its directory).

    Spark repeats a micro-batch after a crash: the function has to make sure that the same number written twice is as if
    written once. All rows have to be read (`batch.run()` if they are not wanted). A run beside another calls the same
    function: what it writes should go by `context.home` or `context.suffix`.
    """
    return EachBatch(write, describe or f"function {write.__name__}")
