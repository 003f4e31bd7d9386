"""`__consumer_offsets`: Kafka's tools read what Ottla wrote, and Ottla goes on from what Kafka wrote."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.tool_server import kafka_tool

ONE_PARTITION = {"offsets.topic.num.partitions": "1"}
STATIC = {"group.instance.id": "inst", "partition.assignment.strategy": "cooperative-sticky"}


def create_topic(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
    eventually(lambda: "t" in admin.list_topics(timeout=10).topics)


def member(bootstrap: str, group: str, **config: Any) -> Consumer:
    """In the group, with both partitions of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **config})
    consumer.subscribe(["t"])

    def has_all() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    eventually(has_all)
    return consumer


def commit(bootstrap: str, group: str, offset: int) -> None:
    """Without being a member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(admin: AdminClient, group: str) -> dict[int, tuple[int, str]]:
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {at.partition: (at.offset, at.metadata or "") for at in future.result(20).topic_partitions}


def state_of(admin: AdminClient, group: str) -> str:
    name: str = admin.describe_consumer_groups([group])[group].result(20).state.name
    return name


def live_through(broker: BrokerProcess) -> None:
    """A group with a static member and commits, a group that is only a name for offsets, one that was deleted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    create_topic(admin)
    consumer = member(broker.bootstrap, "readers", **STATIC)
    offsets = [TopicPartition("t", 0, 5, metadata="so far"), TopicPartition("t", 1, 6)]
    consumer.commit(offsets=offsets, asynchronous=False)
    commit(broker.bootstrap, "simple", 9)
    commit(broker.bootstrap, "deleted", 1)
    admin.delete_consumer_groups(["deleted"])["deleted"].result(20)
    consumer.close()  # a static member does not leave


def printed_by_formatter(bootstrap: str, formatter: str) -> list[Any]:
    """What the console consumer prints of `__consumer_offsets`; it ends when nothing has come for a while."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", "__consumer_offsets", "--from-beginning"]
    arguments += ["--formatter", f"org.apache.kafka.tools.consumer.{formatter}", "--timeout-ms", "2000"]
    decoder = json.JSONDecoder()
    text = kafka_tool("ConsoleConsumer", *arguments, check=False).stdout
    found = []
    while text.strip():
        record, end = decoder.raw_decode(text)
        found.append(record)
        text = text[end:].lstrip()
    return found


def test_kafkas_tools_print_what_ottla_wrote(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path, properties=ONE_PARTITION) as ottla:
        live_through(ottla)
        offsets = printed_by_formatter(ottla.bootstrap, "OffsetsMessageFormatter")
        groups = printed_by_formatter(ottla.bootstrap, "GroupMetadataMessageFormatter")
        (segment,) = ottla.log_dir.glob("__consumer_offsets-0/*.log")
        ottla.stop()
    found = [(record["key"]["data"], record["value"] and record["value"]["data"]["offset"]) for record in offsets]
    assert found == [
        ({"group": "readers", "topic": "t", "partition": 0}, 5),
        ({"group": "readers", "topic": "t", "partition": 1}, 6),
        ({"group": "simple", "topic": "t", "partition": 0}, 9),
        ({"group": "deleted", "topic": "t", "partition": 0}, 1),
        ({"group": "deleted", "topic": "t", "partition": 0}, None),
    ]
    ours = [record for record in groups if not record["key"]["data"]["group"].startswith("console-consumer")]
    assert [record["key"]["data"]["group"] for record in ours] == ["readers", "deleted"]
    readers = ours[0]["value"]["data"]
    assert (readers["generation"], readers["protocol"], readers["members"][0]["groupInstanceId"]) == (
        1,
        "cooperative-sticky",
        "inst",
    )
    assert ours[1]["value"] is None
    dump = kafka_tool("DumpLogSegments", "--files", str(segment), "--offsets-decoder").stdout
    assert '"assignedPartitions":[{"topic":"t","partitions":[0,1]}]' in dump
    assert dump.count("payload: <DELETE>") == 2
    assert set(re.findall(r"isvalid: (\w+)", dump)) == {"true"}


def transfer(bootstrap: str, transactional_id: str, offset: int, finish: Callable[[Producer], None]) -> None:
    """Commit an offset of the group "transfers" within a transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "transfers"})
    try:
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"out", partition=0)
        where = [TopicPartition("t", 0, offset)]
        producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), 20)
        finish(producer)
    finally:
        consumer.close()


def test_ottla_goes_on_with_the_groups_of_a_kafka_directory(tmp_path: Path) -> None:
    settings = {**ONE_PARTITION, "transaction.state.log.num.partitions": "1"}
    with GenuineKafka(tmp_path, properties=settings) as kafka:
        live_through(kafka)
        transfer(kafka.bootstrap, "one", 11, lambda producer: producer.commit_transaction(20))
        transfer(kafka.bootstrap, "two", 12, lambda producer: producer.abort_transaction(20))
        log_dir = kafka.log_dir
        kafka.stop()
        with OttlaProcess(properties={**ONE_PARTITION, "log.dirs": str(log_dir)}) as ottla:
            admin = AdminClient({"bootstrap.servers": ottla.bootstrap})
            groups = {group.group_id for group in admin.list_consumer_groups().result(20).valid}
            assert groups == {"readers", "simple", "transfers"}
            assert committed(admin, "readers") == {0: (5, "so far"), 1: (6, "")}
            assert committed(admin, "simple")[0][0] == 9
            assert committed(admin, "transfers")[0][0] == 11
            assert state_of(admin, "readers") == "STABLE"
            back = member(ottla.bootstrap, "readers", **STATIC)
            assert [at.offset for at in back.committed([TopicPartition("t", 0), TopicPartition("t", 1)], 20)] == [5, 6]
            assert "rebalance" not in ottla.log_text()  # the static member took its place again
            back.close()


def test_what_was_committed_survives_a_killed_broker(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path, properties=ONE_PARTITION) as ottla:
        admin = AdminClient({"bootstrap.servers": ottla.bootstrap})
        create_topic(admin)
        consumer = member(ottla.bootstrap, "readers")
        for offset in range(50):
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        ottla.restart(kill=True)
        assert committed(admin, "readers") == {0: (49, "")}
        assert state_of(admin, "readers") == "STABLE"
        consumer.commit(offsets=[TopicPartition("t", 1, 7)], asynchronous=False)  # the member goes on unharmed
        assert committed(admin, "readers") == {0: (49, ""), 1: (7, "")}
        consumer.close()
