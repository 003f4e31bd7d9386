"""Compaction end to end: a broker with clients that write, read and change settings while it compacts."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.support.eventually import eventually
from tests.support.tool_server import kafka_tool

from ottla.testing import Broker

TOPIC = "keys"
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
QUICK = {"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "200"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(directory=tmp_path / "data", config=QUICK) as broker:
        yield broker


def create(broker: Broker, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {**COMPACTED, **{name.replace("_", "."): value for name, value in settings.items()}}
    admin.create_topics([NewTopic(TOPIC, 1, config=config)])[TOPIC].result(10)


def change(broker: Broker, topic: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    set_ = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def commit(broker: Broker, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    for offset in offsets:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def producer(broker: Broker, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 5, **settings})


def put(client: Producer, *records: tuple[str, str | None]) -> None:
    for key, value in records:
        client.produce(TOPIC, key=key, value=value)
    assert client.flush(10) == 0


def close_segment(client: Producer) -> None:
    """Records of a later time begin a new segment, which this one record is in."""
    time.sleep(0.25)
    put(client, ("~", "end"))


def read_all(broker: Broker, **settings: object) -> list[Message]:
    """All records from the beginning up to the end, as a consumer gets them."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False, **settings}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[Message] = []
        while consumer.position([TopicPartition(TOPIC, 0)])[0].offset < end:
            message = consumer.poll(5)
            assert message is not None, "the end was not reached"
            assert message.error() is None
            found.append(message)
        return found
    finally:
        consumer.close()


def parts(message: Message) -> tuple[int, str, str | None]:
    """Offset, key and value."""
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    assert key is not None
    return offset, key.decode(), None if value is None else value.decode()


def state(messages: list[Message]) -> list[tuple[int, str, str | None]]:
    return [parts(message) for message in messages]


def cleaned_up_to(broker: Broker) -> int:
    """What the cleaner's checkpoint says."""
    path = broker.directory / "cleaner-offset-checkpoint"
    if not path.exists():
        return 0
    return {line.split()[0]: int(line.split()[2]) for line in path.read_text().splitlines()[2:]}.get(TOPIC, 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_newest_record_of_each_key_is_left(broker: Broker, codec: str) -> None:
    create(broker)
    client = producer(broker, **{"compression.type": codec, "enable.idempotence": True})
    for number in range(5):
        put(client, *((f"k{key}", f"{number} {'x' * 50}") for key in range(20)))
    put(client, ("k3", None))
    close_segment(client)
    eventually(lambda: cleaned_up_to(broker) == 101)
    left = state(read_all(broker))
    assert left == [
        *((80 + key, f"k{key}", f"4 {'x' * 50}") for key in range(20) if key != 3),
        (100, "k3", None),
        (101, "~", "end"),
    ]
    put(client, ("k1", "again"))  # the idempotent producer's sequence goes on
    assert state(read_all(broker))[-1] == (102, "k1", "again")


def test_a_reader_goes_on_while_the_log_is_compacted_under_it(broker: Broker) -> None:
    create(broker)
    client = producer(broker)
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    seen: dict[str, str | None] = {}
    offsets: list[int] = []
    newest: dict[str, str | None] = {}

    def note(message: Message) -> None:
        assert message.error() is None
        offset, key, value = parts(message)
        offsets.append(offset)
        seen[key] = value

    for number in range(12):
        records: list[tuple[str, str | None]] = [(f"k{key}", f"{number}") for key in range(30)]
        put(client, *records)
        newest.update(records)
        close_segment(client)
        for message in reader.consume(25, timeout=1):
            note(message)
    newest["~"] = "end"

    def at_the_end() -> bool:
        for message in reader.consume(500, timeout=0.2):
            note(message)
        return seen == newest and reader.position([TopicPartition(TOPIC, 0)])[0].offset == 12 * 31

    eventually(at_the_end)
    reader.close()
    assert offsets == sorted(set(offsets))
    eventually(lambda: cleaned_up_to(broker) == 12 * 31 - 1)
    assert {key: value for _, key, value in state(read_all(broker))} == newest
    assert len(read_all(broker)) <= 33


def test_turning_compaction_on_and_off_takes_effect_at_once(broker: Broker) -> None:
    create(broker, cleanup_policy="delete", retention_ms="-1")
    client = producer(broker)
    put(client, ("a", "1"), ("a", "2"))
    close_segment(client)
    time.sleep(0.3)
    assert len(read_all(broker)) == 3
    change(broker, TOPIC, **{"cleanup.policy": "compact"})
    eventually(lambda: cleaned_up_to(broker) == 2)
    assert state(read_all(broker)) == [(1, "a", "2"), (2, "~", "end")]


def test_compact_and_delete_does_both(broker: Broker) -> None:
    create(broker, cleanup_policy="compact,delete")
    client = producer(broker)
    put(client, ("a", "1"), ("a", "2"))
    close_segment(client)
    eventually(lambda: cleaned_up_to(broker) == 2)
    assert state(read_all(broker))[0] == (1, "a", "2")
    change(broker, TOPIC, **{"retention.ms": "1"})
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    eventually(lambda: reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)[0] >= 2)
    reader.close()


def test_a_corrupt_batch_is_named_once_and_kept_while_the_rest_is_compacted(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker, min_compaction_lag_ms="1000")
    client = producer(broker)
    put(client, ("a", "1"), ("a", "2"))
    segment = broker.directory / f"{TOPIC}-0" / "00000000000000000000.log"
    with segment.open("r+b") as file:
        file.seek(65)
        file.write(b"\xff\xff")
    close_segment(client)
    named = eventually(lambda: [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()])
    time.sleep(0.3)
    assert len(named) == 1
    assert f"{TOPIC}-0 has 1 batches" in named[0]
    assert f"{segment} at position 0" in named[0]
    put(client, ("b", "1"))


def test_committed_offsets_survive_the_compaction_of_their_topic(tmp_path: Path) -> None:
    config = {**QUICK, "offsets.topic.num.partitions": "1"}
    directory = tmp_path / "data"
    groups = [f"group-{number}" for number in range(5)]
    with Broker(directory=directory, config=config) as broker:
        create(broker)
        commit(broker, "first", 1)
        change(broker, "__consumer_offsets", **{"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"})
        for group in groups:
            commit(broker, group, *range(60))
        time.sleep(0.15)
        commit(broker, "last", 1)
        log = directory / "__consumer_offsets-0"
        eventually(lambda: sum(path.stat().st_size for path in log.glob("*.log")) < 3_000)
    with Broker(directory=directory, config=config) as broker:
        for group in groups:
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
            assert consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)[0].offset == 59
            consumer.close()


def test_the_log_goes_on_after_a_restart_and_kafka_reads_it(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Broker(directory=directory, config=QUICK) as broker:
        create(broker)
        client = producer(broker, **{"enable.idempotence": True, "compression.type": "zstd"})
        for number in range(10):
            put(client, *((f"k{key}", f"{number}") for key in range(10)), (f"gone{number}", None))
        close_segment(client)
        eventually(lambda: cleaned_up_to(broker) == 110)
        before = state(read_all(broker))
    with Broker(directory=directory, config=QUICK) as broker:
        assert state(read_all(broker)) == before
    log = directory / f"{TOPIC}-0" / "00000000000000000000.log"
    dump = kafka_tool("DumpLogSegments", "--files", str(log), "--print-data-log", "--deep-iteration").stdout
    records = [line for line in dump.splitlines() if line.startswith("| offset:")]
    assert [int(line.split()[2]) for line in records] == [offset for offset, _, _ in before if offset < 110]
    assert all("isvalid: true" in line for line in dump.splitlines() if line.startswith("baseOffset:"))
    assert "deleteHorizonMs: OptionalLong[" in dump
    files = f"{log.with_suffix('.index')},{log.with_suffix('.timeindex')}"
    indexes = kafka_tool("DumpLogSegments", "--index-sanity-check", "--files", files)
    assert "mismatch" not in indexes.stdout.lower()
