"""A log directory that genuine Kafka wrote, served by Ottla in place: nothing of it may be lost."""

from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.compat.genuine.test_same_answers import comparable
from tests.support.eventually import eventually
from tests.support.genuine import KafkaFormattedByOttla
from tests.support.ottla_process import OttlaProcess
from tests.support.quota_stories import REMOVED, alteration, question
from tests.support.quota_stories import SET as QUOTAS
from tests.support.raw_client import ask

from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest

RECORDS = 500


def produce(bootstrap: str, topic: str, count: int, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, **config})
    for number in range(count):
        producer.produce(topic, str(number).encode(), key=str(number % 7).encode(), partition=number % 3)
        producer.poll(0)
    assert producer.flush(20) == 0


def consume(bootstrap: str, group: str, count: int) -> list[tuple[int, int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    found: list[tuple[int, int, bytes]] = []
    try:
        consumer.subscribe(["orders"])
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None, f"{len(found)} of {count} records"
            assert message.error() is None
            found.append(cast(tuple[int, int, bytes], (message.partition(), message.offset(), message.value())))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found)


def topics_of(bootstrap: str) -> dict[str, Any]:
    """Ids, partitions and changed settings of every topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: dict[str, Any] = {}
    for topic in ask(bootstrap, MetadataRequest(topics=None), 12).topics:
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        configs = admin.describe_configs([resource])[resource].result(10)
        own = {name: entry.value for name, entry in configs.items() if entry.source == 1}
        found[topic.name] = (topic.topic_id, len(topic.partitions), own)
    return found


def quotas_of(bootstrap: str) -> list[str]:
    """Sorted; entities whose parts come in another order are the same."""
    return sorted(str(comparable(entry)) for entry in ask(bootstrap, question(), 1).entries)


def test_everything_is_there_after_the_takeover(tmp_path: Path) -> None:
    with KafkaFormattedByOttla(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wanted = [
            NewTopic("orders", 3, 1, config={"retention.ms": "-1", "segment.bytes": "1048576"}),
            NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
            NewTopic("gone", 2, 1),
        ]
        for future in admin.create_topics(wanted).values():
            future.result(20)
        eventually(lambda: set(admin.list_topics(timeout=10).topics) >= {"orders", "compacted", "gone"})
        produce(kafka.bootstrap, "orders", RECORDS)
        admin.delete_topics(["gone"])["gone"].result(20)
        change = ConfigResource(
            ResourceType.TOPIC,
            "compacted",
            incremental_configs=[
                ConfigEntry("min.compaction.lag.ms", "77", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        admin.incremental_alter_configs([change])[change].result(20)
        isolation = ConfigEntry("share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET)
        of_group = ConfigResource(ResourceType.GROUP, "readers", incremental_configs=[isolation])
        admin.incremental_alter_configs([of_group])[of_group].result(20)
        harmless = [each for each in QUOTAS if each[0] != (("user", None), ("client-id", None))]  # of no client here
        for quotas in (harmless, REMOVED):
            ask(kafka.bootstrap, alteration(*quotas), 1)
        written = consume(kafka.bootstrap, "readers", RECORDS)
        kept = eventually(lambda: "2.0" in str(found := quotas_of(kafka.bootstrap)) and found)
        before = eventually(lambda: (found := topics_of(kafka.bootstrap)) and "gone" not in found and found)
        used_id = eventually(
            lambda: (
                ask(
                    kafka.bootstrap, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
                ).producer_id
                + 1
            )
        )
        kafka.stop()
        log_dir = kafka.log_dir

    with OttlaProcess(properties={"log.dirs": str(log_dir)}) as ottla:
        assert topics_of(ottla.bootstrap) == before
        assert quotas_of(ottla.bootstrap) == kept
        admin = AdminClient({"bootstrap.servers": ottla.bootstrap})
        assert (
            admin.describe_configs([of_group])[of_group].result(10)["share.isolation.level"].value == "read_committed"
        )
        assert consume(ottla.bootstrap, "others", RECORDS) == written
        group = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": "readers"})
        partitions = [TopicPartition("orders", number) for number in range(3)]
        committed = {part.partition: part.offset for part in group.committed(partitions, timeout=20)}
        ends = {part.partition: group.get_watermark_offsets(part, timeout=20)[1] for part in partitions}
        group.close()
        assert committed == ends
        assert sum(ends.values()) == RECORDS
        fresh = ask(ottla.bootstrap, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert fresh.producer_id >= used_id
        produce(ottla.bootstrap, "orders", 30)
        ottla.restart(kill=True)
        assert topics_of(ottla.bootstrap) == before
        assert len(consume(ottla.bootstrap, "third", RECORDS + 30)) == RECORDS + 30
