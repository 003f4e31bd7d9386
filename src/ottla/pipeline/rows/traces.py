"""The trace that a record is a part of: the headers of W3C's Trace Context (docs/metrics.md)."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

HEADERS: Final = ("traceparent", "tracestate")


def trace_headers(headers: Column | str = "headers") -> Column:
    """The headers that carry a record's trace, for the column `headers` of the one record that it becomes.

    `headers`: those of the record, as a topic has them with `includeHeaders=True`. A record without a trace, and one
    without headers, has none.
    """
    column = F.col(headers) if isinstance(headers, str) else headers
    kept = F.filter(column, lambda header: header["key"].isin(*HEADERS))
    return F.coalesce(kept, F.array().cast("array<struct<key:string,value:binary>>"))
