"""One row per key, with state that ends."""

from pyspark.sql import DataFrame

from ottla.pipeline.rows.watermark import watermark


def drop_duplicates(rows: DataFrame, *key: str, column: str, within: str) -> DataFrame:
    """The first row of each key; another of the same key is dropped if its event time, in `column`, is less than
    `within` away.

    Spark's `dropDuplicates` keeps every key for ever unless the event time is one of its columns, and then rows differ
    that are the same but for their time. This keeps a key for as long as the watermark needs to pass, and no longer.
    A key that comes again after that is a new one. The watermark is set here, `within` behind. Raises ValueError for
    rows that have one on that column already, which Spark would refuse when the query runs, or without a key.
    """
    if not key:
        raise ValueError("drop_duplicates needs the columns by which rows are compared")
    if "spark.watermarkDelayMs" in rows.select(column).schema[0].metadata:
        raise ValueError(
            f"the rows have a watermark on {column!r} already, and drop_duplicates sets one itself: leave the first "
            "out, and give drop_duplicates its delay as within="
        )
    known = watermark(rows, column, within)
    return known.dropDuplicatesWithinWatermark(list(key)) if rows.isStreaming else known.dropDuplicates(list(key))
