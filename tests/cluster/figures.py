"""Figures of restarts and of a full disk, with real processes: `python -m tests.cluster.figures restarts|full-disk`.

`restarts`: three rolling restarts that wait for nothing, under transactions: how long each broker takes to end, and the
longest transaction. `full-disk`: one of three log directories (a tmpfs, so as root) fills up under idempotent
producers: the longest pause of each partition, and what was written twice. Both take about a minute.
"""

import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from os import urandom
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer

from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

LOOPS = 3
PRODUCERS = 8
SECONDS = 60.0
PARTITIONS = 6
VALUE_BYTES = 2000
DISK = "24m"
SETTINGS = {"zookeeper_session_timeout_ms": "6000", "replica_lag_time_max_ms": "30000"}


def restarts(cluster: OttlaCluster) -> None:
    with cluster:
        cluster.create("t", PARTITIONS)
        with TransactionalLoad(cluster.bootstrap, "t", PRODUCERS) as load:
            eventually(lambda: len(load.committed()) > 200, timeout_s=60)
            for _ in range(LOOPS):
                for producer in load.producers:
                    producer.longest_s = 0.0
                took = []
                for broker in cluster.brokers.values():
                    began = time.monotonic()
                    broker.stop()
                    took.append(f"{time.monotonic() - began:.2f} s")
                    broker.start(wait=False)
                before = len(load.committed())
                eventually(lambda before=before: len(load.committed()) > before + 300, timeout_s=100)
                problems = sum(len(producer.problems) for producer in load.producers)
                print(f"SIGTERM {took}; longest transaction {load.longest_s():.2f} s; {problems} errors so far")
        report(cluster, load.committed())


def full_disk(cluster: OttlaCluster) -> None:
    directory = cluster.brokers[1].log_dir
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "ottla", str(directory)], check=True)
    try:
        with cluster:
            fill(cluster)
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(cluster: OttlaCluster) -> None:
    cluster.create("t", PARTITIONS)
    led = {number: part.leader for number, part in cluster.partitions("t").items()}
    acknowledged: list[bytes] = []
    times: dict[int, list[float]] = defaultdict(list)
    failures: Counter[str] = Counter()

    def answered(partition: int, value: bytes) -> Callable[[KafkaError | None, Message], None]:
        def take(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures[error.name()] += 1
            else:
                times[partition].append(time.monotonic())
                acknowledged.append(value)

        return take

    producers = [
        Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0})
        for _ in range(2)
    ]
    began, number = time.monotonic(), 0
    while time.monotonic() < began + SECONDS:
        for partition in range(PARTITIONS):
            value = b"%d." % number + urandom(VALUE_BYTES)
            number += 1
            producers[number % 2].produce("t", value, partition=partition, on_delivery=answered(partition, value))
        for producer in producers:
            producer.poll(0.009)
    ended = time.monotonic()
    for producer in producers:
        producer.flush(60)
    for partition in range(PARTITIONS):
        moments = [began, *sorted(times[partition]), ended]
        longest, at = max((later - earlier, earlier - began) for earlier, later in pairwise(moments))
        print(f"partition {partition}, led by {led[partition]}: longest pause {longest:.2f} s, at {at:.0f} s")
    lines = len(cluster.brokers[1].log_text().splitlines())
    print(f"failed: {dict(failures)}; lines in the log of the full broker: {lines}")
    report(cluster, acknowledged)


def report(cluster: OttlaCluster, acknowledged: list[bytes]) -> None:
    found = Counter(read_all(cluster.bootstrap, "t", len(acknowledged)))
    lost = sum(value not in found for value in acknowledged)
    twice = sum(times > 1 for times in found.values())
    print(f"acknowledged {len(acknowledged)}, lost {lost}, twice {twice}")


def main() -> None:
    run = {"restarts": restarts, "full-disk": full_disk}[sys.argv[1]]
    with ZooKeeperServer() as zookeeper:
        run(OttlaCluster(f"{zookeeper.connect}/{uuid4()}", **SETTINGS))


if __name__ == "__main__":
    main()
