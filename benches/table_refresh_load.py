"""How soon a stream sees a change of the table it is joined with: `python -m benches.table_refresh_load`.

A compacted topic of `--keys` keys is changed `--rate` times a second. One change in twenty is of one key, and has a
number. A stream of records of that key, fifty a second, is joined with the table into another topic, in micro-batches
as fast as they come. The delay of a change is from when it was sent until a consumer of that topic has a row with its
number or a later one. Prints a line of JSON.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.support.ottla_process import OttlaProcess

from benches.as_of_load import fill
from ottla.pipeline import session, table
from ottla.pipeline.context import RunContext

_ONE_IN: Final = 20
_STREAM_RATE: Final = 50
_TURN_S: Final = 0.02
_LEFT_OUT_S: Final = 20.0
"""After the first row, while the JVM compiles."""
_FIRST_ROW_WITHIN_S: Final = 300.0
_LAST_ROW_WITHIN_S: Final = 60.0
_NUMBERED: Final = "0"
"""The key whose changes are numbered."""


class Changes(threading.Thread):
    """Changes the table and feeds the stream until it is stopped; notes when it sent which number."""

    def __init__(self, bootstrap: str, keys: int, rate: int) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._keys, self._per_turn = keys, max(1, round(rate * _TURN_S))
        self._over = threading.Event()
        self.sent_at: list[float] = []
        self.changes = 0
        self.seconds = 0.0

    def run(self) -> None:
        began = due = time.monotonic()
        while not self._over.is_set():
            for _ in range(self._per_turn):
                self._change()
            self._producer.produce("stream", b"{}", _NUMBERED)
            self._producer.poll(0)
            due += _TURN_S
            time.sleep(max(0.0, due - time.monotonic()))
        self.seconds = time.monotonic() - began
        self._producer.flush(60)

    def _change(self) -> None:
        self.changes += 1
        is_numbered = self.changes % _ONE_IN == 0
        key = 0 if is_numbered else 1 + self.changes % (self._keys - 1)
        number = len(self.sent_at) if is_numbered else 0
        if is_numbered:
            self.sent_at.append(time.monotonic())
        value = f'{{"id": {key}, "name": "customer {key:09}", "version": {number}}}'
        self._producer.produce("customers", value, str(key))

    def stop(self) -> None:
        self._over.set()
        self.join()


def seen_at(bootstrap: str, changes: Changes, seconds: float) -> list[tuple[int, float]]:
    """Each number that a row of the output was the first to have, and when: from the first one on for so many seconds,
    and until the last number sent has come. Raises TimeoutError."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "refresh", "auto.offset.reset": "earliest"})
    consumer.subscribe(["out"])
    found: list[tuple[int, float]] = []
    deadline, is_stopped = time.monotonic() + _FIRST_ROW_WITHIN_S, False
    try:
        while not is_stopped or found[-1][0] < len(changes.sent_at) - 1:
            now = time.monotonic()
            if found and not is_stopped and now - found[0][1] >= seconds:
                changes.stop()
                deadline, is_stopped = now + _LAST_ROW_WITHIN_S, True
            if now > deadline and (is_stopped or not found):
                raise TimeoutError(f"the stream has not seen {'the last' if found else 'a'} change in time")
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            number: int | None = json.loads(message.value() or b"{}").get("version")
            if number is not None and (not found or number > found[-1][0]):
                found.append((number, time.monotonic()))
    finally:
        consumer.close()
    return found


def delays(sent_at: list[float], found: list[tuple[int, float]], since: float) -> list[float]:
    """Seconds from each change after `since` until the first row that has it."""
    result, done = [], 0
    for number, at in found:
        result += [at - sent for sent in sent_at[done : number + 1] if sent >= since]
        done = number + 1
    return result


def start(spark: SparkSession, bootstrap: str, directory: Path) -> Any:
    """The query that joins the stream with the table."""
    context = RunContext(spark, bootstrap, "job", "run", directory / "home", directory)
    latest = table("customers", key="id", schema="id BIGINT, name STRING, version INT").load(context)
    server = {"kafka.bootstrap.servers": bootstrap}
    stream = spark.readStream.format("ottla").options(**server).option("subscribe", "stream").load()
    joined = stream.select(F.col("key").cast("string").cast("bigint").alias("id")).join(
        F.broadcast(latest), "id", "left"
    )
    rows = joined.select(F.to_json(F.struct("id", "version")).alias("value"))
    writer = rows.writeStream.format("ottla").options(**server).option("topic", "out")
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start()


def measure(given: Any, directory: Path, bootstrap: str) -> dict[str, Any]:
    """The figures of one run."""
    fill(bootstrap, "customers", given.keys)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in ("stream", "out")]).values():
        made.result(60)
    context = session.launch("refresh", directory / "spark", cores=2, long_lived=True)
    changes = Changes(bootstrap, given.keys, given.rate)
    try:
        query = start(session.open_session(), bootstrap, directory)
        changes.start()
        found = seen_at(bootstrap, changes, _LEFT_OUT_S + given.seconds)
        batches = [each["batchDuration"] / 1000 for each in query.recentProgress if each["numInputRows"]]
        query.stop()
    finally:
        if changes.is_alive():
            changes.stop()
        session.stop(context)
    seconds = sorted(delays(changes.sent_at, found, found[0][1] + _LEFT_OUT_S))
    return {
        **vars(given),
        "changes_per_s": round(changes.changes / changes.seconds),
        "measured": len(seconds),
        "p50_s": round(seconds[len(seconds) // 2], 2),
        "p99_s": round(seconds[len(seconds) * 99 // 100], 2),
        "most_s": round(seconds[-1], 2),
        "micro_batch_s": round(statistics.median(batches), 2),
    }


def main() -> None:
    """Parse the command line, run, print the figures."""
    parser = argparse.ArgumentParser(prog="benches.table_refresh_load")
    for name, default in (("keys", 100_000), ("rate", 1_000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="refresh-"))
    try:
        with OttlaProcess() as broker:
            print(json.dumps(measure(given, directory, broker.bootstrap)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
