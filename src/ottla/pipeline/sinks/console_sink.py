"""Rows on the terminal: for looking, not for keeping."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ottla.pipeline.context import Outputs, QuerySpec, RunContext
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class Console:
    """The terminal as an output. See `console`."""

    rows: int = 20
    width: int = 20

    def describe(self) -> str:
        return "console"

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        return start_batches(rows, query, partial(_show, self, query.name))

    def renamed(self, _suffix: str) -> "Console":
        return self

    def last_batch(self, _query_id: str, _outputs: Outputs) -> None:
        """None: what is printed again does no harm."""

    def read(self, _context: RunContext) -> "DataFrame":
        raise SinkError("what went to the console is kept nowhere: there is nothing to read back")


def console(*, rows: int = 20, width: int = 20) -> Console:
    """Print the first `rows` of each micro-batch that has any, each value cut to `width` characters (0: not cut)."""
    return Console(rows, width)


def _show(sink: Console, name: str, batch: MicroBatch) -> None:
    rows = batch.rows.persist()  # printing asks for the first partitions only, and state of the query needs all
    try:
        count = rows.count()
        if count:
            print(f"{name}, micro-batch {batch.number}: {count} rows")
            rows.show(sink.rows, truncate=sink.width or False)
            sys.stdout.flush()
    finally:
        rows.unpersist()
