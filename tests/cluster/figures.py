"""Figures of a cluster in trouble, with real processes: `python -m tests.cluster.figures restarts|full-disk|rejoin`.

`restarts`: three rolling restarts that wait for nothing, under transactions: how long each broker takes to end, and the
longest transaction. `full-disk`: one of three log directories (a tmpfs, so as root) fills up under idempotent
producers: the longest pause of each partition, and what was written twice. Both take about a minute. `rejoin`: a leader
of many partitions, with a synced record in each that no other broker has, loses its session and comes back when others
lead: how long its event loop was held up while it cut its logs.
"""

import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from os import urandom
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.bystander import bystander
from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.stories import batch, list_offsets
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

LOOPS = 3
PRODUCERS = 8
SECONDS = 60.0
PARTITIONS = 6
VALUE_BYTES = 2000
DISK = "24m"
REJOINING = (300, 800)
FETCH_WAIT_S = 1.5
SYNC_S = 0.7
EVERY_S = 0.005
SETTINGS: dict[str, Any] = {"zookeeper_session_timeout_ms": "6000", "replica_lag_time_max_ms": "30000"}


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


def rejoin(cluster: OttlaCluster) -> None:
    with cluster:
        for partitions in REJOINING:
            cut_back(cluster, f"t{partitions}", partitions)


def cut_back(cluster: OttlaCluster, topic: str, partitions: int) -> None:
    first, *others = cluster.brokers.values()
    wanted = NewTopic(topic, partitions, replica_assignment=[[1, 2, 3]] * partitions)
    admin = cluster.admin()
    admin.create_topics([wanted])[topic].result(60)
    eventually(lambda: len(cluster.partitions(topic)) == partitions, timeout_s=60)
    write_each(first, topic, partitions, acks=-1)
    with bystander(first, EVERY_S) as seen:
        for broker in others:
            broker.pause()
        time.sleep(FETCH_WAIT_S)  # nobody fetches now
        write_each(first, topic, partitions, acks=1)
        time.sleep(SYNC_S)
        first.pause()
        for broker in others:
            broker.resume()
        eventually(lambda: all_led_by(others[0], topic, {2, 3}), timeout_s=120, interval_s=0.5)
        first.resume()
        seen.lap()  # ends with the answer that had to wait meanwhile
        began = time.monotonic()
        eventually(lambda: all_in_sync(others[0], topic), timeout_s=120, interval_s=0.2)
        took_s = time.monotonic() - began
        suffered = seen.lap()
    ends = ask(others[0].bootstrap, list_offsets([(topic, number, -1) for number in range(partitions)]), 7).topics[0]
    kept = sum(part.offset > 1 for part in ends.partitions)
    print(
        f"{partitions} partitions: in sync again after {took_s:.1f} s, "
        f"longest answer meanwhile {suffered.worst_s * 1000:.0f} ms of {suffered.answers}, "
        f"{partitions - kept} records cut"
    )


def write_each(broker: OttlaProcess, topic: str, partitions: int, acks: int) -> None:
    """One record in each partition."""
    records = bytes(batch(b"v" * 100))
    data = [PartitionProduceData(index=number, records=records) for number in range(partitions)]
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )

    def accepted() -> bool:
        (answer,) = ask(broker.bootstrap, request, 9).responses
        return not any(part.error_code for part in answer.partition_responses)

    eventually(accepted, timeout_s=60)


def all_in_sync(broker: OttlaProcess, topic: str) -> bool:
    """Whether `broker` says that every partition has three replicas in sync."""
    return all(len(part.isrs) == 3 for part in partitions_at(broker, topic))


def all_led_by(broker: OttlaProcess, topic: str, leaders: set[int]) -> bool:
    """Whether `broker` says so."""
    return all(part.leader in leaders for part in partitions_at(broker, topic))


def partitions_at(broker: OttlaProcess, topic: str) -> list[PartitionMetadata]:
    """As one broker sees them: another one may not know yet that it no longer leads."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    return list(admin.list_topics(topic, timeout=20).topics[topic].partitions.values())


def report(cluster: OttlaCluster, acknowledged: list[bytes]) -> None:
    found = Counter(read_all(cluster.bootstrap, "t", len(acknowledged)))
    lost = sum(value not in found for value in acknowledged)
    twice = sum(times > 1 for times in found.values())
    print(f"acknowledged {len(acknowledged)}, lost {lost}, twice {twice}")


def main() -> None:
    run = {"restarts": restarts, "full-disk": full_disk, "rejoin": rejoin}[sys.argv[1]]
    with ZooKeeperServer() as zookeeper:
        run(OttlaCluster(f"{zookeeper.connect}/{uuid4()}", **SETTINGS))


if __name__ == "__main__":
    main()
