"""Groups of KIP-848 in `__consumer_offsets`: Kafka reads what Ottla wrote, and Ottla goes on from what Kafka wrote."""

import re
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.tool_server import kafka_tool

ONE_PARTITION = {"offsets.topic.num.partitions": "1"}
GROUP = "readers"


def member(bootstrap: str, instance: str, partitions: int, **config: Any) -> Consumer:
    """A static member that reads so many partitions of the topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "group.instance.id": instance}
    consumer = Consumer({**settings, "group.protocol": "consumer", "enable.auto.commit": False, **config})
    consumer.subscribe(["t"])

    def has_its_share() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == partitions

    eventually(has_its_share)
    return consumer


def live_through(bootstrap: str) -> list[int]:
    """One member that commits and leaves for a while; the partitions it had."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 3, 1)])["t"].result(20)
    eventually(lambda: "t" in admin.list_topics(timeout=10).topics)
    consumer = member(bootstrap, "one", 3)
    consumer.commit(offsets=[TopicPartition("t", 1, 7)], asynchronous=False)
    partitions = sorted(at.partition for at in consumer.assignment())
    consumer.close()
    return partitions


def described(admin: AdminClient) -> tuple[str, int] | None:
    """The group's type and how many members it has; None while the coordinator reads its log."""
    try:
        group = admin.describe_consumer_groups([GROUP])[GROUP].result(20)
    except KafkaException:
        return None
    return group.type.name, len(group.members)


def test_ottla_goes_on_with_consumer_groups_of_a_kafka_directory(tmp_path: Path) -> None:
    with GenuineKafka(tmp_path, properties=ONE_PARTITION) as kafka:
        assert live_through(kafka.bootstrap) == [0, 1, 2]
        log_dir = kafka.log_dir
        kafka.stop()
        with OttlaProcess(properties={**ONE_PARTITION, "log.dirs": str(log_dir)}) as ottla:
            admin = AdminClient({"bootstrap.servers": ottla.bootstrap})
            eventually(lambda: described(admin) == ("CONSUMER", 1))
            back = member(ottla.bootstrap, "one", 3)
            assert [at.offset for at in back.committed([TopicPartition("t", 1)], 20)] == [7]
            # It took its own place, and topics whose hash is as Kafka wrote it are no reason for a rebalance.
            assert "is back as" in ottla.log_text()
            assert not re.search(r"group readers: (epoch|assignment) \d", ottla.log_text())
            back.close()


def test_kafkas_tools_print_consumer_groups_that_ottla_wrote(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path, properties=ONE_PARTITION) as ottla:
        live_through(ottla.bootstrap)
        (segment,) = ottla.log_dir.glob("__consumer_offsets-0/*.log")
        ottla.stop()
    dump = kafka_tool("DumpLogSegments", "--files", str(segment), "--offsets-decoder").stdout
    for printed in (
        '"data":{"instanceId":"one","rackId":null,"clientId":"rdkafka"',
        '"subscribedTopicNames":["t"]',
        '"classicMemberMetadata":null',
        '"topicPartitions":[{"topicId":"',
        '"partitions":[0,1,2]}]}',
        '"data":{"memberEpoch":2,"previousMemberEpoch":0,"state":0,',
        '"data":{"memberEpoch":-2,',
        '"data":{"assignmentEpoch":2,"assignmentTimestamp":',
    ):
        assert printed in dump, printed
    assert re.search(r'"data":\{"epoch":2,"metadataHash":-?[1-9]\d*\}', dump)
    assert set(re.findall(r"isvalid: (\w+)", dump)) == {"true"}
