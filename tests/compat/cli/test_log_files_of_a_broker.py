"""`ottla log` on the files of the broker under test, while it runs."""

import json
import shutil
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually


def test_records_in_the_files_are_those_produced(
    ottla: OttlaProgram, broker: BrokerProcess, new_topic: NewTopicFactory
) -> None:
    topic = new_topic()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        ottla("produce", topic, "-k", ":", "--compression", codec, stdin=f"{codec}:{'x' * 500}\n" * 2)
    directory = broker.log_dir / f"{topic}-0"
    dumped = [
        json.loads(line) for line in ottla("log", "dump", "--records", "--json", str(directory)).stdout.splitlines()
    ]
    consumed = [json.loads(line) for line in ottla("consume", topic, "-e", "--json").stdout.splitlines()]
    shared = ("topic", "partition", "offset", "timestamp_ms", "headers", "key", "value")
    assert [{name: row[name] for name in shared} for row in dumped] == consumed
    codecs = [line.split("\t")[5] for line in ottla("log", "dump", str(directory)).stdout.splitlines()]
    assert codecs == ["none", "gzip", "snappy", "lz4", "zstd"]


def test_a_running_brokers_partition_is_intact_and_a_flipped_bit_is_found(
    ottla: OttlaProgram, broker: BrokerProcess, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(1, **{"index.interval.bytes": "100"})
    for _ in range(5):
        ottla("produce", topic, stdin="".join(f"{n} {'x' * 50}\n" for n in range(200)))
    directory = broker.log_dir / f"{topic}-0"
    report = ottla.json("log", "verify", "--records", str(directory))
    assert (report["records"], report["damaged"]) == (1000, 0)

    copy = tmp_path / directory.name
    shutil.copytree(directory, copy)
    (segment,) = copy.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    found = ottla("log", "verify", str(copy), code=1)
    assert found.stdout.startswith(f"{segment}\t0\tdamage\t")


def test_committed_offsets_can_be_spelled_out(
    ottla: OttlaProgram, broker: BrokerProcess, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(), new_name()
    ottla("produce", topic, stdin="a\nb\n")
    ottla("consume", topic, "-g", group, "-e")
    directories = [str(path) for path in sorted(broker.log_dir.glob("__consumer_offsets-*"))]

    def commits() -> list[int]:
        lines = ottla("log", "dump", "--decode", "--json", *directories).stdout.splitlines()
        decoded = [json.loads(line) for line in lines]
        return [
            row["fields"]["offset"]
            for row in decoded
            if row["kind"] == "OffsetCommitted" and row["fields"]["group_id"] == group
        ]

    assert eventually(commits)[-1] == 2


def test_transactions_can_be_spelled_out(
    ottla: OttlaProgram, broker: BrokerProcess, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, name, group = new_topic(), new_name(), new_name()
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    consumer = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": group})
    try:
        member = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], member, 30)
        producer.commit_transaction(30)
    finally:
        consumer.close()

    def rows(of_topic: str) -> list[dict[str, Any]]:
        directories = [str(path) for path in sorted(broker.log_dir.glob(f"{of_topic}-*"))]
        lines = ottla("log", "dump", "--decode", "--json", *directories).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def states() -> list[str]:
        found = [row["fields"] for row in rows("__transaction_state") if row["kind"] == "TransactionChanged"]
        return [each["transaction"]["state"] for each in found if each["transactional_id"] == name]

    eventually(lambda: states()[-1:] == ["COMPLETE_COMMIT"])
    assert list(dict.fromkeys(states())) == ["EMPTY", "ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT"]
    of_offsets = rows("__consumer_offsets")
    commits = [row["fields"] for row in of_offsets if row["kind"] == "OffsetCommitted"]
    (committed,) = [fields for fields in commits if fields["group_id"] == group]
    assert committed["offset"] == 1
    ends = [row["fields"] for row in of_offsets if row["kind"] == "EndTransaction"]
    assert "COMMIT" in {end["type"] for end in ends if end["producer"] == committed["producer"]}
