"""Micro-batches, one after the other, each with what makes it recognisable when Spark repeats it.

Spark repeats a micro-batch that its checkpoint does not know to be done: after a crash between the sink's commit and
Spark's own. Query id and number are the same then, so a sink that keeps both where it keeps the rows, in one atomic
step, writes each micro-batch once.

`foreachBatch` and not a Python data source: Spark lets those append only, and these sinks update by key, too.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipeline.context import QuerySpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_ID: str = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`query_id` lives as long as the checkpoint; `number` counts from 0."""

    rows: "DataFrame"
    query_id: str
    number: int

    def run(self) -> None:
        """Compute the rows and let them go: state of the query moves on with them, even if they were written before."""
        self.rows.write.format("noop").mode("overwrite").save()


def start_batches(rows: "DataFrame", query: QuerySpec, write: Callable[[MicroBatch], None]) -> "StreamingQuery":
    """Start a query that hands each micro-batch to `write`, which may be handed the same one again."""
    checkpoint = query.checkpoint

    def each(batch: "DataFrame", number: int) -> None:
        write(MicroBatch(batch, _query_id(batch, checkpoint), number))

    started: StreamingQuery = query.writer(rows).foreachBatch(each).start()
    return started


def _query_id(rows: "DataFrame", checkpoint: Path) -> str:
    from pyspark.sql.utils import is_remote

    if is_remote():  # Spark Connect runs this beside the server, where there is no SparkContext but the checkpoint
        identifier: str = json.loads((checkpoint / "metadata").read_text())["id"]
        return identifier
    found = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert found is not None, "Spark names the query of every micro-batch"
    return found
