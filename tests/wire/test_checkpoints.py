"""What bounds the work of a start after a crash: recovery points are written down while records pour in."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.eventually import eventually

from ottla.replication import maintenance
from ottla.testing import Broker


def recovery_points(directory: Path) -> dict[str, int]:
    """`topic-partition` to the offset that the checkpoint file has, over all log directories below `directory`."""
    points = {}
    for file in directory.rglob("recovery-point-offset-checkpoint"):
        for line in file.read_text().splitlines()[2:]:
            topic, partition, offset = line.split()
            points[f"{topic}-{partition}"] = int(offset)
    return points


def test_recovery_points_are_written_when_much_was_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BYTES_PER_CHECKPOINT", 1_000_000)
    with Broker(directory=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("orders", b"x" * 10_000, partition=0)
            assert producer.flush(20) == 0

        produce(20)
        assert recovery_points(tmp_path).get("orders-0", 0) == 0, "200 kB are no reason to write"
        produce(100)
        eventually(lambda: recovery_points(tmp_path).get("orders-0", 0) == 120, timeout_s=10)
