"""Watermarks whose late rows can be found: `DataFrame.withWatermark`, and a note of the rows they apply to.

Spark drops a row when its window or time has ended, by the watermark of the micro-batch before: the window of an
aggregation, or the row's own event time where rows are joined, deduplicated or kept in state. Only the author of a
query knows which, so it is declared with the watermark.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.pipeline.rows.aligned import aligned
from ottla.pipeline.rows.idle import with_times
from ottla.pipeline.rows.times import without_times

CLOSES: Final = "__ottla_closes"
_NUMBER: Final = "ottla.watched"
"""In the metadata of a column with a watermark, while its flow is rebuilt for its late rows: the place in the list."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Rows that a watermark is about. `window` are arguments of Spark's `window`, `session` the gap of a session."""

    rows: DataFrame
    column: str
    window: tuple[str, ...] = ()
    session: str | None = None

    def closing(self) -> DataFrame:
        """The rows with the time at which each is too late in the column `CLOSES`: one for each window it is in."""
        if self.window:
            windows = F.window(F.col(self.column), *self.window)
            return self.rows.withColumn(CLOSES, windows).withColumn(CLOSES, F.col(f"{CLOSES}.end"))
        if self.session is not None:
            return self.rows.withColumn(CLOSES, F.col(self.column) + F.expr(f"INTERVAL {self.session}"))
        return self.rows.withColumn(CLOSES, F.col(self.column))


_watched: Final[ContextVar[list[Watched] | None]] = ContextVar("watched", default=None)


def watermark(
    rows: DataFrame, column: str, delay: str, *, window: str | tuple[str, ...] = (), session: str | None = None
) -> DataFrame:
    """`rows.withWatermark(column, delay)`, for a flow with `late=topic(...)`.

    Say what the rows are aggregated by: `window`, the arguments of Spark's `window` (`"1 hour"`, or `("1 hour",
    "10 minutes")` for windows that overlap), or the gap of its `session_window`; neither for joins, for deduplication
    and for state of one's own, where the event time itself decides. A `drop_duplicates` behind it needs no argument:
    it is known to decide by the event time.

    The watermark of rows whose topics are all declared `idle_after` an interval follows the clock while those bring
    nothing (`idle`). That of a topic that is declared `aligned` is never later than that of the flows that write it.
    Raises ValueError if `column` is no column of such rows.
    """
    watched = _watched.get()
    column = named(rows, column)
    timed = with_times(rows, column)
    marked = rows.withWatermark(column, delay)
    if timed is not None:
        marked = without_times(timed.withWatermark(column, delay))
    marked = aligned(rows, marked, column)
    if watched is None:
        return marked
    watched.append(Watched(rows, column, (window,) if isinstance(window, str) else tuple(window), session))
    metadata = marked.select(column).schema.fields[0].metadata
    return marked.withMetadata(column, {**metadata, _NUMBER: len(watched) - 1})


def named(rows: DataFrame, column: str) -> str:
    """A column as the rows spell it: `withMetadata` gives it the name that it is called by."""
    alike = [each for each in rows.columns if each.lower() == column.lower()]
    return column if column in alike or len(alike) != 1 else alike[0]


def closes_by_its_time(rows: DataFrame, column: str) -> bool:
    """Note that an operator comes now that drops rows by their own time, whatever `watermark` was given for those
    behind it: the first operator decides which rows are late. Returns whether the rows have such a watermark."""
    watched = _watched.get()
    number = rows.select(column).schema.fields[0].metadata.get(_NUMBER)
    if watched is None or number is None:
        return False
    watched[number] = replace(watched[number], window=(), session=None)
    return True


@contextmanager
def watching() -> Iterator[list[Watched]]:
    """Within it, `watermark` adds to the list what it is called with."""
    found: list[Watched] = []
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)
