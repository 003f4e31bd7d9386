"""What bounds the work of a start after a crash: recovery points are written down while records pour in."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import stories
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.replication import maintenance
from ottla.testing import Broker

EARLIEST, LATEST = -2, -1


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


def test_deleted_records_stay_deleted_when_the_broker_is_killed() -> None:
    """Soon after the request, not only after `log.flush.start.offset.checkpoint.interval.ms`, which is a minute."""
    with OttlaProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})  # its requests end with it
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(20)
        batch = stories.batch(*(b"%d" % number for number in range(10)))
        for _ in range(2):
            (produced,) = ask(broker.bootstrap, stories.produce([("orders", 0, batch)]), 9).responses
            assert produced.partition_responses[0].error_code == 0
        part = DeleteRecordsPartition(partition_index=0, offset=4)
        topics = [DeleteRecordsTopic(name="orders", partitions=[part])]
        deletion = DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
        (deleted,) = ask(broker.bootstrap, deletion, 2).topics
        assert (deleted.partitions[0].error_code, deleted.partitions[0].low_watermark) == (0, 4)
        starts = broker.log_dir / "log-start-offset-checkpoint"
        eventually(lambda: starts.exists() and "orders 0 4" in starts.read_text().splitlines(), timeout_s=20)
        broker.restart(kill=True)
        ends = []
        for end in (EARLIEST, LATEST):
            (found,) = ask(broker.bootstrap, stories.list_offsets([("orders", 0, end)]), 7).topics
            ends.append(found.partitions[0].offset)
        assert ends == [4, 20]
        (refused,) = ask(broker.bootstrap, stories.fetch([("orders", 0, 3)]), 12).responses
        assert refused.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
