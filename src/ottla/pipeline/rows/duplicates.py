"""One row per key, with state that ends."""

from pyspark.sql import DataFrame

from ottla.pipeline.rows.watermark import watermark


def drop_duplicates(rows: DataFrame, *key: str, column: str, within: str) -> DataFrame:
    """The first row of each key; another of the same key is dropped if its event time, in `column`, is less than
    `within` away.

    Spark's `dropDuplicates` keeps every key for ever unless the event time is one of its columns, and then rows differ
    that are the same but for their time. This keeps a key for as long as the watermark needs to pass, and no longer.
    A key that comes again after that is a new one. The watermark is set here; rows that have one on that column keep
    it, and its delay has to be `within`, since Spark keeps keys for as long as the watermark is behind. Raises
    ValueError for another delay, or without a key.
    """
    if not key:
        raise ValueError("drop_duplicates needs the columns by which rows are compared")
    known = rows
    delay_ms = _delay_ms(rows, column)
    if delay_ms is None:
        known = watermark(rows, column, within)
    elif delay_ms != _delay_ms(rows.withMetadata(column, {}).withWatermark(column, within), column):
        raise ValueError(
            f"the rows have a watermark on {column!r} already, {delay_ms / 1000:g} s behind, and Spark keeps keys for "
            f"that long: give drop_duplicates the same within=, or leave the watermark out, since it sets one itself"
        )
    return known.dropDuplicatesWithinWatermark(list(key)) if rows.isStreaming else known.dropDuplicates(list(key))


def _delay_ms(rows: DataFrame, column: str) -> int | None:
    """How far the watermark on a column is behind, if there is one."""
    found = rows.select(column).schema[0].metadata.get("spark.watermarkDelayMs")
    return None if found is None else int(found)
