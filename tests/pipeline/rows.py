"""What the tests of rows have in common: records without a topic, reasons, and flows that end."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession

from ottla.pipeline import Job
from ottla.pipeline.context import AVAILABLE_NOW, RunContext
from ottla.pipeline.queries import plan, run_stage, stages
from ottla.pipeline.rows import Checked
from ottla.pipeline.rows.dead_letters import DeadLetter

_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """A batch of records as the source gives them: their offsets count from 0."""
    rows = [(b"k", value, "flights", 0, offset, AT, 0, [("trace", b"7")]) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, _COLUMNS)


def reasons(checked: Checked) -> dict[int | None, str]:
    """The reason of each rejected record, by offset."""
    letters = [DeadLetter.read([(each.key, each.value) for each in row.headers]) for row in checked.rejected.collect()]
    return {letter.offset: letter.reason for letter in letters if letter is not None}


def run_job(job: Job, context: RunContext, checkpoints: Path) -> None:
    """Have all flows of a job take in what there is, and end."""
    for stage in stages(plan(job, context, trigger=AVAILABLE_NOW), context):
        run_stage(stage, context, lambda name: checkpoints / name)


class Ended(NamedTuple):
    """`rows` are all that came out, `batches` what the query reported of its micro-batches."""

    rows: list[Row]
    batches: list[dict[str, Any]]

    def of(self, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of the rows, in order."""
        return sorted(tuple(row[name] for name in columns) for row in self.rows)


def run_to_end(rows: DataFrame, checkpoint: Path) -> Ended:
    """Take in what there is, in append mode. (Spark's own table in memory does not go on from a checkpoint.)"""
    found: list[Row] = []
    query = (
        rows.writeStream.foreachBatch(lambda batch, _number: found.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Ended(found, [json.loads(each.json) for each in query.recentProgress])
