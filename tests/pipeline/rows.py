"""What the tests of rows have in common: records without a topic, reasons, and flows that end."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

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
    """Of all that was rejected, by offset."""
    letters = [DeadLetter.read([(each.key, each.value) for each in row.headers]) for row in checked.rejected.collect()]
    return {letter.offset: letter.reason for letter in letters if letter is not None}


def run_job(job: Job, context: RunContext, checkpoints: Path) -> None:
    """Have all flows of a job take in what there is, and end."""
    for stage in stages(plan(job, context, trigger=AVAILABLE_NOW), context):
        run_stage(stage, context, lambda name: checkpoints / name)


def run_to_end(rows: DataFrame, checkpoint: Path, name: str, mode: str = "append") -> list[dict[str, Any]]:
    """Take in what there is, into a table in memory; what the query reported of its micro-batches."""
    query = (
        rows.writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return [dict(each.jsonValue()) for each in query.recentProgress]


def table(spark: SparkSession, name: str, *columns: str) -> Sequence[Any]:
    """What the query of that name has written, in order."""
    return sorted(tuple(row) for row in spark.table(name).select(*map(F.expr, columns)).collect())
