"""One row per key, with state that ends.

Two times decide what becomes of a row. The watermark, `delay` behind the newest row, decides which rows are too late to
count at all. The horizon is how long a key is remembered:

    first row of a key, at t          forgotten when the watermark passes t + horizon
    ├───────── horizon ──────────┤
    │ the same key again: always │ dropped until the watermark  │ always a new row
    │ dropped                    │ has passed t + horizon       │

A row that is not late comes after the watermark; so if the key of a row before it has been forgotten, the two are more
than the horizon apart, whether the horizon is longer or shorter than the delay.

Spark takes the delay for the horizon, from the metadata of the event time's column, as the operator finds it. So a
horizon of its own is that metadata, changed below the operator and put back above it; the watermark itself is set by
the node that `withWatermark` has made, and stays.
Source: `StreamingDeduplicateWithinWatermarkExec`, `EventTimeWatermark` of Spark 4.
"""

from typing import Final

from pyspark.sql import DataFrame

from ottla.pipeline.rows.watermark import closes_by_its_time, named, watermark

_DELAY: Final = "spark.watermarkDelayMs"
"""Spark's, in the metadata of a column that has a watermark: its delay in milliseconds."""


def drop_duplicates(rows: DataFrame, *key: str, column: str, within: str | None = None) -> DataFrame:
    """The first row of each key; another of the same key is dropped if its event time, in `column`, is less than
    `within` away.

    Spark's `dropDuplicates` keeps every key for ever unless the event time is one of its columns, and then rows differ
    that are the same but for their time. This keeps a key until the watermark has passed its first row's time by
    `within`, and no longer. A key that comes again after that is a new one; between the two, how far the watermark has
    come decides.

    If the rows have a watermark on `column`, it stays as it is, and `within` is by default its delay; a longer one
    finds duplicates that are further apart, a shorter one needs less state. If they have none, it is set here, `within`
    behind. Raises ValueError without a key, without a `within` that is needed, for a horizon of 0, and for rows with a
    watermark on another column, which Spark would refuse when the query runs.
    """
    if not key:
        raise ValueError("drop_duplicates needs the columns by which rows are compared")
    if not rows.isStreaming:  # there are no watermarks, but late rows are looked for
        if not closes_by_its_time(rows, column):
            watermark(rows, column, within or "0 seconds")
        return rows.dropDuplicates(list(key))
    column = named(rows, column)
    before = rows.select(column).schema.fields[0].metadata
    if _DELAY not in before:
        return watermark(rows, column, _first_watermark(rows, column, within)).dropDuplicatesWithinWatermark(list(key))
    horizon_ms = before[_DELAY] if within is None else _milliseconds(rows, within)
    if horizon_ms == before[_DELAY]:
        return rows.dropDuplicatesWithinWatermark(list(key))
    remembered = rows.withMetadata(column, {**before, _DELAY: horizon_ms})
    return remembered.dropDuplicatesWithinWatermark(list(key)).withMetadata(column, before)


def _first_watermark(rows: DataFrame, column: str, within: str | None) -> str:
    """The delay of a watermark to set on rows that have none on this column. Raises ValueError if they cannot have."""
    others = [each.name for each in rows.schema.fields if _DELAY in each.metadata]
    if others:
        raise ValueError(
            f"the rows have a watermark on {others[0]!r}, and Spark deduplicates by one column only: give "
            f"drop_duplicates column={others[0]!r}, or set the watermark on {column!r} in its place"
        )
    if within is None:
        raise ValueError(
            f"the rows have no watermark on {column!r}: say by within= how far apart rows of the same key may be, or "
            "set a watermark before"
        )
    return within


def _milliseconds(rows: DataFrame, within: str) -> int:
    """A time as Spark reads it. Raises ValueError for 0, and what Spark raises for a negative one, or none at all."""
    clock = rows.sparkSession.readStream.format("rate").load()  # batches have no watermark to read it from
    found = int(clock.withWatermark("timestamp", within).schema["timestamp"].metadata[_DELAY])
    if found <= 0:
        raise ValueError(f"drop_duplicates finds no duplicates within {within!r}: give it a time of more than 0")
    return found
