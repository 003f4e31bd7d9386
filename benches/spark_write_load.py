"""Writing to topics by Spark, in a process of its own: `python -m benches.spark_write_load sink|copy ...`.

As `benches.spark_load`: one session, and what is compared in turn. Prints one line of JSON.
"""

import argparse
import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from benches.spark_load import CONNECTORS, Family, scratch, spark_session

PARTITIONS: Final = 6
GUARANTEES: Final = ("exactly-once", "at-least-once")
_MICRO_BATCHES: Final = 10
_CORES: Final = 2


class InTurn:
    """Runs contestants in turn, `rounds` times after one that warms up, each into a topic of its own."""

    def __init__(self, bootstrap: str, records: int, rounds: int) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._records = records
        self._rounds = rounds
        self._family = Family()

    def __call__(self, names: tuple[str, str], run: Callable[[str, str], None]) -> dict[str, float]:
        """`run(name, topic)`; records per second and per CPU second of both, and the first's share of the second's."""
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for number in range(self._rounds + 1):
            for name in names:
                topic = f"{name}-{uuid.uuid4().hex[:8]}"
                self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
                cpu_before, began = self._family.cpu_seconds(), time.perf_counter()
                with self._family.watched():
                    run(name, topic)
                if number:
                    found[name].append((time.perf_counter() - began, self._family.cpu_seconds() - cpu_before))
                self._admin.delete_topics([topic])[topic].result(60)
        result: dict[str, float] = {}
        for name, samples in found.items():
            result[f"{name}_per_s"] = statistics.median(self._records / seconds for seconds, _ in samples)
            result[f"{name}_per_cpu_s"] = statistics.median(self._records / cpu for _, cpu in samples)
        pairs = list(zip(found[names[0]], found[names[1]], strict=True))
        result["ratio"] = statistics.median(second / first for (first, _), (second, _) in pairs)
        result["cpu_ratio"] = statistics.median(first / second for (_, first), (_, second) in pairs)
        return {**result, **self._family.memory()}


def write(spark: SparkSession, bootstrap: str, records: int, size: int, in_turn: InTurn) -> dict[str, float]:
    """Rows made by Spark itself into a topic: the sink `ottla` and Spark's own, both at-least-once."""
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(f"rpad(CAST(id AS STRING), {size}, 'x') AS value")

    def run(name: str, topic: str) -> None:
        writer = rows.write.format(name).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        writer.mode("append").save()

    return in_turn(CONNECTORS, run)


def copy(
    spark: SparkSession, bootstrap: str, source: str, records: int, in_turn: InTurn, directory: Path
) -> dict[str, float]:
    """A topic into another by a streaming query of ten micro-batches: exactly-once and at-least-once."""

    def run(guarantee: str, topic: str) -> None:
        stream = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", -(-records // _MICRO_BATCHES))
            .load()
        )
        query = (
            stream.select("key", "value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("deliveryGuarantee", guarantee)
            .option("checkpointLocation", str(directory / topic))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return in_turn(GUARANTEES, run)


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.spark_write_load")
    parser.add_argument("what", choices=["sink", "copy"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, default=1_000, help="sink: bytes of a value")
    parser.add_argument("--topic", help="copy: the topic to read")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args(arguments)
    in_turn = InTurn(given.bootstrap, given.records, given.rounds)
    with scratch() as directory, spark_session(directory, _CORES) as spark:
        if given.what == "sink":
            result = write(spark, given.bootstrap, given.records, given.size, in_turn)
        else:
            result = copy(spark, given.bootstrap, given.topic, given.records, in_turn, directory)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
