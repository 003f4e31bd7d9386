"""The JVM's classes as a file that it maps into memory (AppCDS), which halves the time and the work of starting Spark.

One file of about 150 MB per Java and PySpark, below $XDG_CACHE_HOME/ottla (~/.cache/ottla). It is made once, by a
process in the background that runs small queries; until it is there, and where it cannot be made, Spark starts without.
The JVM itself checks that an archive was made by it and of these jars, and does without one that was not.

    python -m ottla.pipeline.class_archive      makes it in the foreground
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAY_S: Final = 86_400.0
_UNUSED_AFTER_S: Final = 30 * _DAY_S
_TRY_AGAIN_AFTER_S: Final = 3_600.0
_DUMP_WITHIN_S: Final = 300.0
_NICENESS: Final = 19


def archive_for(java: Java) -> Path:
    """Where the archive for this Java and the installed PySpark is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    jars = Path(package.origin).parent / "jars"
    identity = f"{java.home} {java.build} {jars} {jars.stat().st_mtime_ns}"
    return cache / f"spark-{version('pyspark')}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def jvm_options(java: Java) -> tuple[str, ...]:
    """The options that have the JVM use the archive. There are none if there is no archive; then one is begun."""
    # a cache that cannot be used is no reason not to start
    with contextlib.suppress(OSError):
        archive = archive_for(java)
        if archive.exists():
            if time.time() - archive.stat().st_mtime > _DAY_S:
                archive.touch()  # `_remove_unused` is not to take it
            return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        _make_in_background(archive)
    return ()


def _make_in_background(archive: Path) -> None:
    attempt = archive.with_suffix(".attempt")
    with contextlib.suppress(FileNotFoundError):
        if time.time() - attempt.stat().st_mtime < _TRY_AGAIN_AFTER_S:
            return
    archive.parent.mkdir(parents=True, exist_ok=True)
    attempt.touch()
    making = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # a process that nobody waits for stays a zombie, and Python warns of it as this one ends
    threading.Thread(target=making.wait, name="ottla-class-archive", daemon=True).start()


# -- making it -------------------------------------------------------------------------------------


def make(archive: Path) -> None:
    """Run what jobs run, and have the JVM write down its classes as it ends. Nothing if another process is at it."""
    from ottla.pipeline import session

    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".attempt").open("ab") as lock, tempfile.TemporaryDirectory() as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        fresh = archive.with_suffix(".new")
        context = session.launch(
            "ottla-class-archive", Path(scratch), cores=1, jvm_options=(f"-XX:ArchiveClassesAtExit={fresh}",)
        )
        try:
            _exercise(session.open_session(), Path(scratch))
        finally:
            session.stop(context, within_s=_DUMP_WITHIN_S)
        fresh.replace(archive)
        _remove_unused(archive.parent)


def _remove_unused(directory: Path) -> None:
    for each in directory.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):
            if time.time() - each.stat().st_mtime > _UNUSED_AFTER_S:
                each.unlink()


def _exercise(spark: "SparkSession", scratch: Path) -> None:
    """Queries that load the classes jobs need: a Python source and sink, state, joins, JSON, files."""
    from pyspark.sql import functions as F
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"offset": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"offset": 100}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(end["offset"])]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            texts = [f'{{"key": "k{number % 7}", "n": {number}}}' for number in range(100)]
            yield pa.RecordBatch.from_pydict({"value": texts})

    class Writer(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ottla-exercise"

        def schema(self) -> str:
            return "value string"

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802 - Spark's name
            return Reader()

        def streamWriter(self, schema: Any, overwrite: bool) -> Writer:  # noqa: N802 - Spark's name
            return Writer()

    spark.dataSource.register(Source)
    names = spark.range(10).select(F.concat(F.lit("k"), "id").alias("key"), F.col("id").alias("number"))
    read = spark.readStream.format("ottla-exercise").load()
    rows = (
        read.select(F.from_json("value", "key string, n int").alias("row"))
        .select("row.*", F.current_timestamp().alias("at"))
        .join(F.broadcast(names), "key", "left")
    )
    counted = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute"), "key").count()
    as_json = F.to_json(F.struct("*")).alias("value")

    def keep(batch: Any, _number: int) -> None:
        batch.select(as_json).count()

    writers = (
        rows.select("key", as_json).writeStream.format("ottla-exercise"),
        rows.writeStream.format("parquet").option("path", str(scratch / "files")),
        counted.writeStream.outputMode("update").foreachBatch(keep),
    )
    for number, writer in enumerate(writers):
        query = writer.option("checkpointLocation", str(scratch / f"checkpoint-{number}"))
        query.trigger(availableNow=True).start().awaitTermination()
    spark.read.parquet(str(scratch / "files")).groupBy("key").count().collect()


def main() -> None:
    """Make the archive of this machine's Java, with whatever time other processes leave."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    make(archive_for(find_java()))


if __name__ == "__main__":
    main()
