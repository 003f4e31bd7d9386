"""A join with the versions of a captured table as of the time of each row, beside one with today's table.

`python -m benches.as_of_load [--full] [--rows 1000000] [--keys 100000] [--versions 5] [--batches 1]` prints a line of
JSON: seconds and rows a second of both joins in turn, over rows that Spark makes, into nothing. `--full`: ten times as
many rows and keys. `batches`: how many micro-batches the rows come in. The versions are put into their store directly,
without a topic; today's table is read from one. Every version is compared with what it has to be: a wrong one, or a row
too few, ends the program with exit code 1.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from tests.support.ottla_process import OttlaProcess

from ottla.pipeline import session, table
from ottla.pipeline.context import RunContext
from ottla.pipeline.rows import Versions, as_of
from ottla.pipeline.rows.version_reader import VersionSource
from ottla.pipeline.rows.version_runs import AT, OP
from ottla.pipeline.rows.version_store import VersionStore
from ottla.spark.offsets import OffsetRange, Partition

_COLUMNS: Final = StructType(
    [StructField("id", LongType()), StructField("name", StringType()), StructField("version", IntegerType())]
)
_STORED: Final = pa.schema([("id", pa.int64()), ("name", pa.string()), ("version", pa.int32())])
_BEGIN_US: Final = 1_760_000_000_000_000
_STEP_US: Final = 3_600_000_000
"""Between two versions of a row."""
_CHANGES_AT_ONCE: Final = 500_000
_UNUSED: Final = (("kafka.bootstrap.servers", "localhost:9"), ("subscribe", "t"))
"""All rows are of the past: no broker is asked."""


def versions_in(directory: Path, keys: int, versions: int) -> tuple[Versions, float]:
    """A history of so many keys and versions of each, and the seconds that storing it took."""
    store = VersionStore(directory, _STORED, ("id",), delay=5_000_000)

    def read(wanted: OffsetRange) -> Iterator[pa.Table]:
        for start in range(wanted.start, wanted.end, _CHANGES_AT_ONCE):
            numbers = np.arange(start, min(start + _CHANGES_AT_ONCE, wanted.end))
            ids, version = numbers % keys, numbers // keys
            names = pa.array([f"customer {number:09}" for number in ids])
            op = np.where(version == 0, ord("c"), ord("u")).astype(np.uint8)
            at = _BEGIN_US + version * _STEP_US + ids % 1_000_000
            columns = [pa.array(ids), names, pa.array(version.astype(np.int32)), pa.array(at), pa.array(op)]
            yield pa.table(columns, pa.schema([*_STORED, (AT, pa.int64()), (OP, pa.uint8())]))

    began, partition = time.perf_counter(), Partition("t", 0)
    with store.locked():
        store.follow({partition: 0}, {partition: keys * versions}, "", time.time_ns() // 1000, read)
    source = VersionSource(
        what="history('t')", directory=str(directory), options=_UNUSED, columns=_COLUMNS.json(), key=("id",),
        delay_us=5_000_000, depth_us=None, ends=(), checks_columns=False,
    )  # fmt: skip
    return Versions(source, _COLUMNS), time.perf_counter() - began


def fill(bootstrap: str, topic: str, keys: int) -> None:
    """A compacted topic with a row for each key."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    for number in range(keys):
        value = f'{{"id": {number}, "name": "customer {number:09}", "version": 0}}'
        producer.produce(topic, value, str(number))
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def rows(spark: SparkSession, count: int, keys: int, versions: int, batch: int, batches: int) -> DataFrame:
    """A part of the rows: a random key, and a random time within the versions."""
    numbers = spark.range(batch * count // batches, (batch + 1) * count // batches, numPartitions=2)
    key = F.pmod(F.xxhash64("id"), F.lit(keys)).alias("customer")
    span = versions * _STEP_US - 2_000_000
    at = F.timestamp_micros(F.lit(_BEGIN_US + 1_000_000) + F.pmod(F.xxhash64("id", F.lit(1)), F.lit(span))).alias("at")
    return numbers.select("id", key, at, F.lit("x" * 60).alias("payload"))


def timed(make: Callable[[int], DataFrame], batches: int) -> float:
    began = time.perf_counter()
    for batch in range(batches):
        make(batch).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="benches.as_of_load")
    for name, default in (("rows", 1_000_000), ("keys", 100_000), ("versions", 5), ("batches", 1), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--full", action="store_true", help="ten times as many rows and keys")
    given = parser.parse_args()
    if given.full:
        given.rows, given.keys = 10 * given.rows, 10 * given.keys
    directory = Path(tempfile.mkdtemp(prefix="as-of-"))
    try:
        with OttlaProcess() as broker:
            figures = measure(given, directory, broker.bootstrap)
            print(json.dumps(figures))
            if figures["wrong"] or figures["compared"] != given.rows:
                sys.exit("the join as of a time is not exact")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure(given: Any, directory: Path, bootstrap: str) -> dict[str, Any]:
    fill(bootstrap, "customers", given.keys)
    versions, stored_s = versions_in(directory / "history", given.keys, given.versions)
    context = session.launch("as-of", directory / "spark", cores=2, settings={"spark.driver.memory": "3g"})
    spark = session.open_session()
    try:
        run = RunContext(spark, bootstrap, "job", "run", directory / "home", directory)
        today = table("customers", key="id", schema=_COLUMNS.simpleString()[7:-1].replace(":", " ").replace(",", ", "))
        latest = today.load(run)

        def part(batch: int) -> DataFrame:
            return rows(spark, given.rows, given.keys, given.versions, batch, given.batches)

        def joined_today(batch: int) -> DataFrame:
            return part(batch).join(F.broadcast(latest.withColumnRenamed("id", "customer")), "customer", "left")

        def joined_then(batch: int) -> DataFrame:
            return as_of(part(batch), versions, on="customer", at="at")

        latest.limit(1).collect()
        wrong, found = 0, 0
        for batch in range(given.batches):
            offset = F.unix_micros("at") - _BEGIN_US - F.pmod("customer", F.lit(1_000_000))
            expected = F.floor(offset / _STEP_US)
            is_right = (F.col("version") == expected) & F.col("name").endswith(F.lpad(F.col("customer"), 9, "0"))
            right = joined_then(batch).agg(F.count_if(is_right), F.count(F.lit(1))).collect()[0]
            found += right[1]
            wrong += right[1] - right[0]
        figures: dict[str, list[float]] = {"today": [], "as_of": []}
        for _ in range(given.rounds):
            figures["today"].append(timed(joined_today, given.batches))
            figures["as_of"].append(timed(joined_then, given.batches))
        best = {name: min(seconds) for name, seconds in figures.items()}
        return {
            **vars(given), "wrong": wrong, "compared": found, "stored_s": round(stored_s, 1),
            "seconds": {name: [round(each, 1) for each in seconds] for name, seconds in figures.items()},
            "rows_per_s": {name: round(given.rows / seconds) for name, seconds in best.items()},
            "as_of_to_today": round(best["today"] / best["as_of"], 2),
            "megabytes": round(sum(each.stat().st_size for each in (directory / "history").iterdir()) / 1e6),
        }  # fmt: skip
    finally:
        session.stop(context)


if __name__ == "__main__":
    main()
