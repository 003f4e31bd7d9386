"""What was acknowledged is there: after SIGKILL at random moments, on a full disk, and when there is room again."""

import os
import random
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import Record, encode_batch

TOPIC = "acknowledged"
PARTITIONS = 2
Place = tuple[int, int]
"""Partition and offset."""


class Writer:
    """Produces numbered records without pause, and notes where the acknowledged ones are."""

    def __init__(self, bootstrap: str, *, idempotent: bool) -> None:
        self.acknowledged: dict[int, Place] = {}
        self.failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 5000,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) < 500:
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._noting(number)
                )
                number += 1
            self._producer.poll(0 if number % 50 else 0.005)

    def _noting(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error)
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.acknowledged[number] = (partition, offset)

        return delivered

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


class Watcher:
    """Consumes all the time, and notes what it sees where."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[Place, bytes] = {}
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "watcher",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while not self._stop.is_set():
            for message in consumer.consume(500, timeout=0.05):
                if message.error() is None:
                    place, value = placed(message)
                    assert self.seen.setdefault(place, value) == value, "a record has changed under a reader"
        consumer.close()

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def placed(message: Message) -> tuple[Place, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return (partition, offset), value


def read_all(bootstrap: str, partitions: int = PARTITIONS) -> dict[Place, bytes]:
    """Everything in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: dict[Place, bytes] = {}
    try:
        for partition in range(partitions):
            start, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)
            consumer.assign([TopicPartition(TOPIC, partition, start)])
            position = start
            while position < end:
                for message in consumer.consume(1000, timeout=0.1):
                    assert message.error() is None, message.error()
                    place, value = placed(message)
                    found[place] = value
                    position = place[1] + 1
    finally:
        consumer.close()
    return found


def create(bootstrap: str, partitions: int = PARTITIONS, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(TOPIC, partitions, config=settings)])[TOPIC].result(20)


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_sigkill_at_random_moments_loses_nothing_acknowledged(tmp_path: Path, idempotent: bool) -> None:
    moments = random.Random(7 if idempotent else 8)
    properties = {"log.flush.offset.checkpoint.interval.ms": "300", "log.initial.task.delay.ms": "0"}
    with OttlaProcess(tmp_path, properties=properties) as broker:
        create(broker.bootstrap, segment_bytes=str(1 << 20), segment_ms="700")
        with Watcher(broker.bootstrap) as watcher:
            with Writer(broker.bootstrap, idempotent=idempotent) as writer:
                for _ in range(6):
                    before = len(writer.acknowledged)
                    eventually(lambda before=before: len(writer.acknowledged) > before)
                    time.sleep(moments.uniform(0.0, 0.6))
                    broker.kill()
                    broker.start()
            stored = read_all(broker.bootstrap)
            eventually(lambda: len(watcher.seen) == len(stored))
    assert writer.failures == []
    assert len(writer.acknowledged) > 500
    lost = {number for number, place in writer.acknowledged.items() if stored.get(place) != b"%d" % number}
    assert not lost, f"{len(lost)} of {len(writer.acknowledged)} acknowledged records are lost, {sorted(lost)[:5]} ..."
    vanished = {place for place, value in watcher.seen.items() if stored.get(place) != value}
    assert not vanished, f"a consumer was given records that are gone: {sorted(vanished)[:5]} ..."
    for partition in range(PARTITIONS):
        offsets = sorted(offset for at, offset in stored if at == partition)
        assert offsets == list(range(len(offsets)))
        if idempotent:
            numbers = [int(stored[partition, offset]) for offset in offsets]
            assert numbers == sorted(set(numbers)), "once each, and in order"


# --- a full disk -------------------------------------------------------------------------------------------------


class Disk:
    """A place for the data with little room, and a way to make more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def limit(self, broker: OttlaProcess) -> None:
        """Called when the broker runs."""

    def make_room(self, broker: OttlaProcess) -> None:
        raise NotImplementedError


class SmallFiles(Disk):
    """The operating system refuses to let the broker's files grow, new ones to the size of one batch; works for
    everyone, everywhere on Linux."""

    def limit(self, broker: OttlaProcess) -> None:
        self._before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (64 << 10, self._before[1]))

    def make_room(self, broker: OttlaProcess) -> None:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, self._before)


class SmallDisk(Disk):
    """A filesystem of its own with 12 MB, 4 of which are taken by a file that can go."""

    def limit(self, broker: OttlaProcess) -> None:
        self._ballast = self.path / "ballast"
        self._ballast.write_bytes(bytes(4 << 20))

    def make_room(self, broker: OttlaProcess) -> None:
        self._ballast.unlink()


def _mount(path: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(path)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        if not _mount(Path(directory)):
            return False
        subprocess.run(["umount", directory], check=True)
        return True


@contextmanager
def small(kind: type[Disk], directory: Path) -> Iterator[Disk]:
    directory.mkdir()
    if kind is not SmallDisk:
        yield kind(directory)
        return
    assert _mount(directory)
    try:
        yield kind(directory)
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def produce(bootstrap: str, number: int) -> tuple[ErrorCode, int]:
    """One batch of 100 KB with acks=all: error and offset."""
    record = Record(0, int(time.time() * 1000), None, b"%08d" % number + bytes(100_000))
    data = PartitionProduceData(index=0, records=bytes(encode_batch([record])))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    answer = ask(bootstrap, request, 9).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), int(answer.base_offset)


@pytest.mark.parametrize("kind", [SmallFiles, SmallDisk] if _can_mount() else [SmallFiles])
def test_a_full_disk_refuses_writers_serves_readers_and_recovers(tmp_path: Path, kind: type[Disk]) -> None:
    with small(kind, tmp_path / "disk") as disk, OttlaProcess(disk.path) as broker:
        create(broker.bootstrap, partitions=1, retention_ms="-1", segment_bytes=str(64 << 20))
        acknowledged: dict[int, int] = {}
        for number in range(15):
            code, offset = produce(broker.bootstrap, number)
            assert code is ErrorCode.NONE
            acknowledged[offset] = number
        disk.limit(broker)
        refused = 0
        for number in range(15, 200):
            code, offset = produce(broker.bootstrap, number)
            if code is ErrorCode.NONE:
                acknowledged[offset] = number
                continue
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
            if refused == 5:
                break
        assert refused == 5, "the disk never got full"
        assert len(acknowledged) > 10

        def numbers() -> dict[int, int]:
            return {offset: int(value[:8]) for (_, offset), value in read_all(broker.bootstrap, 1).items()}

        assert numbers() == acknowledged, "readers go on, and see what was acknowledged"
        disk.make_room(broker)
        for number in range(1000, 1010):
            code, offset = produce(broker.bootstrap, number)
            assert code is ErrorCode.NONE
            assert offset == len(acknowledged)
            acknowledged[offset] = number
        assert numbers() == acknowledged
        broker.kill()
        broker.start()
        assert numbers() == acknowledged
        assert "Traceback" not in broker.log_text()
