"""One row per key, with state that ends."""

from pyspark.sql import DataFrame

from ottla.pipeline.rows.watermark import watermark


def drop_duplicates(rows: DataFrame, *key: str, column: str, within: str) -> DataFrame:
    """The first row of each key; another of the same key is dropped if its event time, in `column`, is less than
    `within` away.

    Spark's `dropDuplicates` keeps every key for ever unless the event time is one of its columns, and then rows differ
    that are the same but for their time. This keeps a key for as long as the watermark needs to pass, and no longer.
    A key that comes again after that is a new one. Raises ValueError without a key.
    """
    if not key:
        raise ValueError("drop_duplicates needs the columns by which rows are compared")
    known = watermark(rows, column, within)
    return known.dropDuplicatesWithinWatermark(list(key)) if rows.isStreaming else known.dropDuplicates(list(key))
