"""Load by Spark, in a process of its own: `python -m benches.spark_load read|latency ...`.

One session has both connectors, `ottla` and Spark's own (`kafka`), and uses them in turn: what slows the machine for a
while slows both. Prints one line of JSON.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import DataFrame, SparkSession
from tests.support.spark_connector import connector_settings

from benches.generators import create_topic
from benches.librdkafka_load import latency
from ottla.pipeline import session

CONNECTORS: Final = ("ottla", "kafka")
_LATENCY_ROUNDS: Final = (*CONNECTORS, *CONNECTORS, *reversed(CONNECTORS))
"""The JVM compiles what is hot for minutes: each connector has as much of that before it as the other."""
_SETTINGS: Final = {"spark.driver.memory": "2g"}


class Family:
    """What this process and all that it has started use: JVM, Python workers."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._over = threading.Event()
        self.worker_rss_bytes = 0
        self.worker_pss_bytes = 0
        """The most that one Python worker has had at a time, while watched. In the proportional size, pages that it
        shares with the process it was forked from count in part."""

    def cpu_seconds(self) -> float:
        """User and system time so far, also of those that have ended."""
        total = 0.0
        for process in (self._own, *self._own.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the memory of the workers ten times a second."""
        self._over.clear()
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            yield
        finally:
            self._over.set()
            watcher.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.look()

    def look(self) -> None:
        """Note how much memory the workers have now."""
        for process in self.workers():
            with suppress(psutil.Error):
                found = process.memory_full_info()
                self.worker_rss_bytes = max(self.worker_rss_bytes, found.rss)
                self.worker_pss_bytes = max(self.worker_pss_bytes, found.pss)

    def memory(self) -> dict[str, float]:
        """The figures of the workers' memory, in MB."""
        return {"worker_rss_mb": self.worker_rss_bytes / 1e6, "worker_pss_mb": self.worker_pss_bytes / 1e6}

    def workers(self) -> Iterator[psutil.Process]:
        """The Python processes below this one.

        They are known by their program, not their name: a process that a thread of the JVM starts has the name of that
        thread, and all memory of the JVM, until its own program is loaded.
        """
        for process in self._own.children(recursive=True):
            with suppress(psutil.Error):
                if "python" in Path(process.exe()).name:
                    yield process


@contextmanager
def spark_session(directory: Path, cores: int) -> Iterator[SparkSession]:
    """A session as for a long run, with both connectors."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # not the load's core alone
    context = session.launch(
        "bench", directory, cores=cores, settings={**_SETTINGS, **connector_settings()}, long_lived=True
    )
    try:
        yield session.open_session()
    finally:
        session.stop(context)


def read(bootstrap: str, topic: str, records: int, sinks: list[str], rounds: int, cores: int) -> dict[str, float]:
    """Records per second from the whole topic into each sink, the medians of `rounds` after one that warms up."""
    result: dict[str, float] = {}
    family = Family()
    with scratch() as directory, spark_session(directory, cores) as spark:
        for sink in sinks:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONNECTORS}
            for number in range(rounds + 1):
                for name in CONNECTORS:
                    reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
                    cpu_before, began = family.cpu_seconds(), time.perf_counter()
                    with family.watched():
                        _write(reader.option("subscribe", topic).load(), sink, directory / "out")
                    if number:
                        found[name].append((time.perf_counter() - began, family.cpu_seconds() - cpu_before))
            for name, samples in found.items():
                result[f"{sink}_{name}_per_s"] = statistics.median(records / seconds for seconds, _ in samples)
                result[f"{sink}_{name}_per_cpu_s"] = statistics.median(records / cpu for _, cpu in samples)
            pairs = list(zip(found["ottla"], found["kafka"], strict=True))
            result[f"{sink}_ratio"] = statistics.median(kafka / ottla for (ottla, _), (kafka, _) in pairs)
            result[f"{sink}_cpu_ratio"] = statistics.median(ottla / kafka for (_, ottla), (_, kafka) in pairs)
    return {**result, **family.memory()}


def pass_through(
    bootstrap: str, source: str, sink: str, rate: int, warm_up_s: float, seconds: float
) -> dict[str, float]:
    """Milliseconds from when a record of the topic `source` was due until a consumer of `sink` has it: the mean of two
    rounds for each connector, after one that warms up the JVM. Makes the topics: `source`-0 and so on."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONNECTORS}
    with scratch() as directory, spark_session(directory, 2) as spark:
        for number, name in enumerate(_LATENCY_ROUNDS):
            for topic in (source, sink):
                create_topic(bootstrap, f"{topic}-{number}", 1)
            server: Any = {"kafka.bootstrap.servers": bootstrap}
            stream = spark.readStream.format(name).options(**server).option("startingOffsets", "earliest")
            writer = (
                stream.option("subscribe", f"{source}-{number}")
                .load()
                .select("key", "value")
                .writeStream.format(name)
                .options(**server)
                .option("topic", f"{sink}-{number}")
                .option("checkpointLocation", str(directory / str(number)))
            )
            if name == "ottla":
                writer = writer.option("deliveryGuarantee", "at-least-once")  # as Spark's own
            query = writer.start()
            try:
                times = {"warm_up_s": warm_up_s, "seconds": seconds}
                delays = latency(bootstrap, f"{source}-{number}", rate, **times, size=100, sink=f"{sink}-{number}")
            finally:
                query.stop()
            found[name].append(delays)
    result: dict[str, float] = {}
    for share in ("p50", "p99"):
        for name, (_, *rounds) in found.items():
            result[f"{name}_{share}_ms"] = statistics.mean(each[share] for each in rounds)
        result[f"{share}_ratio"] = result[f"ottla_{share}_ms"] / result[f"kafka_{share}_ms"]
    return result


def _write(table: DataFrame, sink: str, out: Path) -> None:
    writer = table.write.mode("overwrite")
    if sink == "noop":
        writer.format("noop").save()
    else:
        writer.option("compression", "zstd").parquet(str(out))


@contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="spark-", dir=os.environ.get("OTTLA_BENCH_DATA")))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.spark_load")
    parser.add_argument("what", choices=["read", "latency"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--sink", default="noop", help="read: noop, parquet or both; latency: the topic to write to")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args(arguments)
    if given.what == "read":
        result = read(given.bootstrap, given.topic, given.records, given.sink.split(","), given.rounds, given.cores)
    else:
        result = pass_through(given.bootstrap, given.topic, given.sink, given.rate, given.warm_up, given.seconds)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
