"""A flow into a sink, fed with files of JSON: one file is one micro-batch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline.context import QuerySpec, RunContext
from ottla.pipeline.sinks.base import Sink


def context_of(spark: SparkSession, directory: Path, bootstrap: str = "") -> RunContext:
    return RunContext(spark, bootstrap, job="job", run="run", home=directory / "home", directory=directory)


@dataclass(frozen=True)
class Flow:
    """`columns` is the schema of the rows in SQL's words."""

    spark: SparkSession
    directory: Path
    columns: str
    bootstrap: str = ""

    @property
    def context(self) -> RunContext:
        return context_of(self.spark, self.directory, self.bootstrap)

    def feed(self, *rows: dict[str, Any]) -> None:
        """One more micro-batch."""
        arriving = self.directory / "arriving"
        arriving.mkdir(exist_ok=True)
        number = len(list(arriving.iterdir()))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (arriving / f"{number:04}.json").write_text(text)

    def rows(self) -> DataFrame:
        arriving = self.directory / "arriving"
        arriving.mkdir(exist_ok=True)
        return self.spark.readStream.schema(self.columns).option("maxFilesPerTrigger", 1).json(str(arriving))

    def run(self, sink: Sink, rows: DataFrame | None = None, mode: str = "append") -> None:
        """Write what is there, and end."""
        spec = QuerySpec("job.flow", self.directory / "checkpoint", "available-now", mode, self.context)
        query = sink.start(self.rows() if rows is None else rows, spec)
        assert query.awaitTermination(120)

    def forget_the_last_micro_batch(self) -> None:
        """As if Spark had died after the sink's commit, before its own."""
        commits = self.directory / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)
