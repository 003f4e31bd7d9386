"""The same records through Ottla's compaction and genuine Kafka's: the same batches and records are left."""

import re
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.stories import at_once
from tests.support.tool_server import kafka_tool

KEEPING, FORGETTING = "keeping-tombstones", "forgetting-tombstones"
TOPICS = {KEEPING: "86400000", FORGETTING: "1"}
PROPERTIES = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "0"}
BEGINNING_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
NOTED = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) .*"
    r"isControl: (\w+) deleteHorizonMs: (Optional\w*)[^ ]* .*CreateTime: (-?\d+) .*compresscodec: (\w+)"
)


def batch(bootstrap: str, hour: int, codec: str, *records: tuple[str, str | None]) -> None:
    """One batch for each topic, of an idempotent producer of its own; records of another hour begin a new segment."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 30,
            "compression.type": codec,
            "sticky.partitioning.linger.ms": 0,
        }
    )
    for topic in TOPICS:
        for number, (key, value) in enumerate(records):
            timestamp = BEGINNING_MS + hour * HOUR_MS + number
            producer.produce(
                topic, key=key, value=value, partition=0, timestamp=timestamp, headers=[("n", str(number))]
            )
    assert producer.flush(20) == 0


def first_half(bootstrap: str) -> None:
    batch(bootstrap, 0, "none", ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"))
    batch(bootstrap, 0, "zstd", ("d", "x" * 200), ("e", "y" * 200), ("b", None))
    batch(bootstrap, 2, "gzip", ("d", "z" * 300), ("f", "1"))
    batch(bootstrap, 2, "none", ("g", None), ("h", "1"), ("g", "back"))
    batch(bootstrap, 4, "lz4", ("f", None), ("h", None), ("i", "w" * 300))
    batch(bootstrap, 4, "snappy", ("i", "v" * 300))
    batch(bootstrap, 6, "none", ("end", "1"))


def second_half(bootstrap: str) -> None:
    batch(bootstrap, 8, "none", ("j", "1"), ("e", "2"), ("c", None))
    batch(bootstrap, 10, "none", ("end", "2"))


def cleaned_up_to(broker: BrokerProcess, topic: str) -> int:
    path = broker.log_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines}.get(topic, 0)


def records(bootstrap: str, topic: str) -> list[object]:
    """Everything a consumer is given."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[object] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            break
        found.append((message.offset(), message.key(), message.value(), message.timestamp(), message.headers()))
    consumer.close()
    return found


def batches(broker: BrokerProcess, topic: str) -> list[tuple[str, ...]]:
    """Headers of the batches in all segments, as Kafka's own tool sees them."""
    files = ",".join(str(path) for path in sorted((broker.log_dir / f"{topic}-0").glob("*.log")))
    dump = kafka_tool("DumpLogSegments", "--files", files).stdout
    assert "isvalid: false" not in dump
    return NOTED.findall(dump)


def live_through(broker: BrokerProcess) -> tuple[dict[str, list[object]], dict[str, list[tuple[str, ...]]]]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": str(HOUR_MS),
        "min.cleanable.dirty.ratio": "0.01",
        "message.timestamp.after.max.ms": str(2**62),
    }
    new = [
        NewTopic(name, 1, 1, config={**settings, "delete.retention.ms": retention})
        for name, retention in TOPICS.items()
    ]
    for future in admin.create_topics(new).values():
        future.result(20)
    first_half(broker.bootstrap)
    for topic in TOPICS:
        eventually(lambda topic=topic: cleaned_up_to(broker, topic) == 16)
    time.sleep(0.1)  # FORGETTING's delete horizon
    second_half(broker.bootstrap)
    for topic in TOPICS:
        eventually(lambda topic=topic: cleaned_up_to(broker, topic) == 20)
    seen = {topic: records(broker.bootstrap, topic) for topic in TOPICS}
    broker.stop()
    return seen, {topic: batches(broker, topic) for topic in TOPICS}


def test_the_same_is_left(tmp_path: Path) -> None:
    with (
        GenuineKafka(tmp_path / "kafka", properties=PROPERTIES) as kafka,
        OttlaProcess(tmp_path / "ottla", properties=PROPERTIES) as ottla,
    ):
        expected, found = at_once(live_through, (kafka, ottla))
    for topic in TOPICS:
        assert found[0][topic] == expected[0][topic], topic
        assert found[1][topic] == expected[1][topic], topic
    assert len(expected[1][KEEPING]) > 5
    assert len(expected[0][KEEPING]) > len(expected[0][FORGETTING]) > 5
