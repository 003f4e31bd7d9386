"""What a sink is: the place where the rows of a flow go."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from ottla.pipeline.context import Outputs, QuerySpec, RunContext
from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.pipeline.corrections import Corrections
    from ottla.pipeline.sinks.batches import MicroBatch

COMPACT_EVERY: Final = 100
"""Micro-batches that a table takes between two compactions, unless the job sets another number."""


class SinkError(PipelineError):
    """Rows cannot be written as the job asks; the message names the sink, the reason, and the remedy."""


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
        """The same kind of sink beside this one, with the suffix at the end of its name."""
        ...

    def read(self, context: RunContext) -> "DataFrame":
        """The written rows, as a batch: for comparisons. Raises SinkError if they cannot be read back."""
        ...


class UncertainBatchError(SinkError):
    """A sink cannot say which micro-batch it has last; the message explains why."""


@runtime_checkable
class Recording(Protocol):
    """A sink that keeps the number of a query's last micro-batch where it keeps the rows."""

    def describe(self) -> str: ...

    def last_batch(self, query_id: str, outputs: Outputs) -> int | None:
        """The number of the last micro-batch of this query that the output has; None if it has none.

        Asks the output itself; makes and changes nothing. Raises UncertainBatchError if the answer is lost, SinkError
        if the output cannot be asked now.
        """
        ...


@runtime_checkable
class Snapshots(Protocol):
    """A table that keeps its older snapshots, so that a run can keep to one."""

    def describe(self) -> str: ...

    def newest_snapshot(self, context: RunContext) -> str:
        """Its id, with that of the table before an `@`. Raises SinkError."""
        ...

    def rows_of(self, context: RunContext, snapshot: str) -> "pa.Table":
        """All rows of a snapshot, in this process's memory. Raises SinkError if it is gone, or of another table."""
        ...


@runtime_checkable
class Correctable(Protocol):
    """A sink that late rows can be merged into: rows that it has can be found by their key, and changed.

    `key` are the columns that identify a row; without any, it cannot.
    """

    @property
    def key(self) -> tuple[str, ...]: ...

    def describe(self) -> str: ...

    def correct(self, batch: "MicroBatch", corrections: "Corrections", context: RunContext) -> int:
        """Merge late rows, aggregated, into those that have been written; how many of those there are.

        The number of the micro-batch is kept with them in the same atomic step, under the query id of `batch`, so that
        it is merged once, however often this is called. Raises PipelineError; then nothing has changed, but where the
        answer to the commit was lost: the next call finds out.
        """
        ...


@runtime_checkable
class Compactable(Protocol):
    """A sink that micro-batches leave with many small files."""

    def describe(self) -> str: ...

    def compact(self, directory: Path) -> str:
        """Rewrite small files as few large ones; what was done, in one phrase.

        Relative paths are meant from `directory`, the job file's. Raises SinkError.
        """
        ...
