"""The load generators: Kafka's Java performance tools and client, and librdkafka.

They run in processes of their own, which inherit the cores of this one.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import kafka_tool
from tests.support.java_sources import compiled, java_command

_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
_PROGRESS: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec")
_RUN_LIMIT_S: Final = 900.0
_JAVA: Final = Path(__file__).parent / "java"


class LoadFailedError(RuntimeError):
    """A load generator did not do what it was asked for; the message has its output."""


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic and wait until every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replicas)], operation_timeout=60)[topic].result(90)
    wait_for_leaders(bootstrap, topic, partitions)


def wait_for_leaders(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until `topic` has `partitions` partitions with leaders.

    Raises:
        LoadFailedError: not within a minute.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        known = admin.list_topics(topic, timeout=30).topics[topic].partitions
        if len(known) == partitions and all(partition.leader >= 0 for partition in known.values()):
            return
        time.sleep(0.02)
    raise LoadFailedError(f"{topic} has no leader for each of {partitions} partitions after a minute")


def java_produce(bootstrap: str, topic: str, records: int, size: int, *, transaction_ms: int | None = None) -> float:
    """Records per second that ProducerPerformance has acknowledged, after the first five seconds.

    The first of the tool's windows is left out, because the virtual machine compiles in it. With `transaction_ms`, in
    transactions that are committed after so many milliseconds.
    """
    transactional = ("--transactional-id", "benchmark-java", "--transaction-duration-ms", str(transaction_ms))
    done = kafka_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
        *(transactional if transaction_ms is not None else ()),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
        timeout_s=_RUN_LIMIT_S,
        jvm_options=_JVM,
    )
    windows = [
        (int(match[1]), float(match[2])) for line in done.stdout.splitlines() if (match := _PROGRESS.match(line))
    ]
    if not windows or windows[-1][0] != records:
        raise LoadFailedError(f"ProducerPerformance sent not all of {records} records:\n{done.stdout}\n{done.stderr}")
    return steady_rate(windows)


def steady_rate(windows: list[tuple[int, float]]) -> float:
    """The rate without the first window, from ProducerPerformance's lines (records, records per second).

    The last line is the sum of all; with fewer than two windows before it there is nothing to leave out.
    """
    *parts, (total, overall) = windows
    if len(parts) < 2 or total == parts[0][0]:
        return overall
    first, first_rate = parts[0]
    return (total - first) / (total / overall - first / first_rate)


def java_consume(bootstrap: str, topic: str, records: int) -> float:
    """Records per second that ConsumerPerformance fetched, without the time it took to join its group."""
    done = kafka_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records), "--timeout", "60000"),
        timeout_s=_RUN_LIMIT_S,
        jvm_options=_JVM,
    )
    rows = [line.split(", ") for line in done.stdout.splitlines() if ", " in line]
    row = dict(zip(rows[0], rows[1], strict=True)) if len(rows) > 1 else {}
    if int(row.get("data.consumed.in.nMsg", "0")) < records:
        raise LoadFailedError(f"ConsumerPerformance read not all of {records} records:\n{done.stdout}\n{done.stderr}")
    return float(row["fetch.nMsg.sec"])


def java_process(
    bootstrap: str, source: str, sink: str, warm_up: int, records: int, transaction_ms: int
) -> dict[str, float]:
    """The figures of `ReadProcessWrite`: consume, transform, produce, the offsets in the transaction."""
    classes = compiled(_JAVA / "ReadProcessWrite.java")
    amounts = (str(warm_up), str(records), str(transaction_ms))
    command = java_command(classes, "ReadProcessWrite", bootstrap, source, sink, *amounts, jvm_options=_JVM)
    return _run("ReadProcessWrite", command)


def librdkafka(what: str, bootstrap: str, topic: str, **options: float) -> dict[str, float]:
    """Run `benches.librdkafka_load`; its figures."""
    return _run_module("benches.librdkafka_load", what, bootstrap=bootstrap, topic=topic, **options)


def librdkafka_transactions(what: str, bootstrap: str, topic: str, **options: float | str) -> dict[str, float]:
    """Run `benches.transactions_load`; its figures."""
    return _run_module("benches.transactions_load", what, bootstrap=bootstrap, topic=topic, **options)


def spark(what: str, bootstrap: str, topic: str, **options: float | str) -> dict[str, float]:
    """Run `benches.spark_load`; its figures."""
    return _run_module("benches.spark_load", what, bootstrap=bootstrap, topic=topic, **options)


def spark_write(what: str, bootstrap: str, **options: float | str) -> dict[str, float]:
    """Run `benches.spark_write_load`; its figures."""
    return _run_module("benches.spark_write_load", what, bootstrap=bootstrap, **options)


def consumers(bootstrap: str, topic: str, count: int, protocol: str) -> float:
    """Seconds until `count` librdkafka consumers of one group have settled; `protocol` is `classic` or `consumer`."""
    found = _run_module(
        "benches.consumers_load", "settle", bootstrap=bootstrap, topic=topic, members=count, protocol=protocol
    )
    return found["seconds"]


def members(what: str, broker: BrokerProcess, topic: str, **options: float | str) -> dict[str, float]:
    """Run `benches.members_load`; its figures."""
    where: dict[str, float | str] = {"bootstrap": broker.bootstrap, "topic": topic, "pid": broker.pid}
    return _run_module("benches.members_load", what, **where, **options)


def requests(what: str, broker: BrokerProcess, topic: str, **options: float | str) -> dict[str, float]:
    """Run `benches.requests_load`; its figures."""
    where: dict[str, float | str] = {"bootstrap": broker.bootstrap, "topic": topic, "pid": broker.pid}
    return _run_module("benches.requests_load", what, **where, **options)


def _run_module(module: str, what: str, **options: float | str) -> dict[str, float]:
    arguments = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return _run(f"{module} {what}", [sys.executable, "-m", module, what, *arguments])


def _run(title: str, command: list[str]) -> dict[str, float]:
    """What a load generator printed on its last line.

    Raises:
        LoadFailedError: it failed, or took longer than a quarter of an hour.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as expired:
        raise LoadFailedError(f"{title} did not end within {_RUN_LIMIT_S:.0f} s") from expired
    if done.returncode:
        raise LoadFailedError(f"{title} failed:\n{done.stderr[-5000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def seconds_to_first_ack(broker: BrokerProcess, topic: str) -> float:
    """Spawn `broker` and return the seconds until a record of a client that was already trying is acknowledged.

    Raises:
        LoadFailedError: refused, or not within two minutes.
    """
    try:
        acknowledged_at = first_ack(broker.bootstrap, topic, lambda: broker.start(wait=False), broker.is_alive)
    except LoadFailedError as failure:
        raise LoadFailedError(f"{failure}\n{broker.log_tail()}") from None
    return acknowledged_at - broker.spawned_at


def first_ack(bootstrap: str, topic: str, start: Callable[[], object], is_alive: Callable[[], bool]) -> float:
    """Have a client try, then `start` who is to answer it; `time.perf_counter()` at the first acknowledgement.

    Raises:
        LoadFailedError: refused, or not within two minutes, or not while `is_alive`.
    """
    outcome: list[tuple[float, KafkaError | None]] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "reconnect.backoff.ms": 2,
            "reconnect.backoff.max.ms": 5,
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 5,
            "topic.metadata.refresh.fast.interval.ms": 2,
            "topic.metadata.propagation.max.ms": 120_000,  # a cluster makes the topic when enough brokers are there
            "message.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"first", on_delivery=lambda error, _: outcome.append((time.perf_counter(), error)))
    start()
    deadline = time.monotonic() + 120
    while not outcome and is_alive() and time.monotonic() < deadline:
        producer.poll(0.01)
    if not outcome or outcome[0][1] is not None:
        raise LoadFailedError(f"no record was acknowledged by {bootstrap}: {outcome}")
    return outcome[0][0]


def end_offsets(bootstrap: str, topic: str) -> int:
    """The sum of the topic's end offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        total = 0
        for partition in partitions:
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            if found is None:
                raise LoadFailedError(f"{topic}-{partition} did not tell its end offset")
            total += found[1]
        return total
    except KafkaException as error:
        raise LoadFailedError(f"{topic} did not tell its end offsets: {error}") from error
    finally:
        consumer.close()
