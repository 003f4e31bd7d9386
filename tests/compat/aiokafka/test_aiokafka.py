"""aiokafka: its own protocol code, producer, groups and admin client, all on asyncio."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError, for_code
from aiokafka.structs import OffsetAndMetadata
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.compat.samples import Sample, samples
from tests.support.eventually import eventually


async def produce(bootstrap: str, topic: str, records: list[Sample], partition: int = 0, **settings: Any) -> list[int]:
    """Send all, wait until all can be consumed; the offsets."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **{"acks": "all", **settings}) as producer:
        sent = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=[(name, value) for name, value in record.headers],
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        return [(await future).offset for future in sent]


def numbered(count: int) -> list[Sample]:
    return [Sample(None, str(number).encode(), (), 1_000_000 + number) for number in range(count)]


@contextlib.asynccontextmanager
async def consumer(bootstrap: str, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer that begins at the beginning and commits only when told."""
    client = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=1000,
        heartbeat_interval_ms=300,
        session_timeout_ms=6000,
        **settings,
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def drain(client: AIOKafkaConsumer, count: int, timeout_s: float = 60.0) -> list[ConsumerRecord[Any, Any]]:
    """The next `count` records."""
    async with asyncio.timeout(timeout_s):
        return [await client.getone() for _ in range(count)]


async def until(question: Callable[[], bool]) -> None:
    """Wait until `question` is answered with yes, while the loop goes on serving the members."""
    await asyncio.to_thread(eventually, question)


def as_sample(record: ConsumerRecord[Any, Any]) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back_as_they_went(
    bootstrap: str, new_topic: NewTopicFactory, codec: str | None, idempotent: bool
) -> None:
    topic = new_topic()
    sent = samples(120, null_headers=False)

    async def run() -> None:
        offsets = await produce(bootstrap, topic, sent, compression_type=codec, enable_idempotence=idempotent)
        assert offsets == list(range(len(sent)))
        async with consumer(bootstrap, topic) as reader:
            assert [as_sample(record) for record in await drain(reader, len(sent))] == sent

    asyncio.run(run())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks(bootstrap: str, new_topic: NewTopicFactory, acks: int | str) -> None:
    topic = new_topic()

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            for number in range(50):
                await producer.send(topic, b"%d" % number)
        async with consumer(bootstrap, topic) as reader:
            assert [record.value for record in await drain(reader, 50)] == [b"%d" % n for n in range(50)]

    asyncio.run(run())


def test_a_message_too_large_is_refused(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"max.message.bytes": "10000"})
    with pytest.raises(MessageSizeTooLargeError):
        asyncio.run(produce(bootstrap, topic, [Sample(None, b"x" * 20_000, (), 1_000)]))


def test_positions_seeks_and_times(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0)

    async def run() -> None:
        await produce(bootstrap, topic, numbered(100), max_batch_size=500)
        async with consumer(bootstrap) as reader:
            reader.assign([where])
            assert await reader.beginning_offsets([where]) == {where: 0}
            assert await reader.end_offsets([where]) == {where: 100}
            found = await reader.offsets_for_times({where: 1_000_042})
            assert found[where].offset == 42
            assert (await reader.offsets_for_times({where: 9_000_000}))[where] is None
            reader.seek(where, 90)
            assert [record.offset for record in await drain(reader, 10)] == list(range(90, 100))
            await reader.seek_to_beginning(where)
            assert (await drain(reader, 1))[0].offset == 0
            await reader.seek_to_end(where)
            assert await reader.position(where) == 100

    asyncio.run(run())


@pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_members_come_and_go(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, assignor: type
) -> None:
    topic, group = new_topic(4), new_name()
    settings = {"group_id": group, "partition_assignment_strategy": (assignor,)}

    async def run() -> None:
        async with consumer(bootstrap, topic, **settings) as first:
            await until(lambda: len(first.assignment()) == 4)
            async with consumer(bootstrap, topic, **settings) as second:
                await until(lambda: (len(first.assignment()), len(second.assignment())) == (2, 2))
                assert first.assignment().isdisjoint(second.assignment())
            await until(lambda: len(first.assignment()) == 4)

    asyncio.run(run())


def test_a_static_member_returns_to_its_place(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(4), new_name()

    async def run() -> None:
        async with consumer(bootstrap, topic, group_id=group, group_instance_id="one") as first:
            async with consumer(bootstrap, topic, group_id=group, group_instance_id="two") as second:
                await until(lambda: (len(first.assignment()), len(second.assignment())) == (2, 2))
                held = second.assignment()
            async with consumer(bootstrap, topic, group_id=group, group_instance_id="two") as again:
                await until(lambda: len(again.assignment()) == 2)
                assert again.assignment() == held
                assert len(first.assignment()) == 2

    asyncio.run(run())


def test_commits_are_kept_and_read_back(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(), new_name()
    where = TopicPartition(topic, 0)

    async def run() -> None:
        await produce(bootstrap, topic, numbered(30))
        async with consumer(bootstrap, topic, group_id=group) as first:
            await drain(first, 10)
            await first.commit({where: OffsetAndMetadata(10, "ten")})
        async with consumer(bootstrap, topic, group_id=group) as second:
            assert await second.committed(where) == 10
            assert [record.offset for record in await drain(second, 20)] == list(range(10, 30))
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            assert (await admin.list_consumer_group_offsets(group))[where] == OffsetAndMetadata(10, "ten")
            assert (group, "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups([group])
            assert described.groups[0][1:3] == (group, "Empty")
        finally:
            await admin.close()

    asyncio.run(run())


def test_many_partitions_at_once(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(50)

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            futures = [await producer.send(topic, b"%d" % p, partition=p) for p in range(50)]
            await asyncio.gather(*futures)
        async with consumer(bootstrap, topic) as reader:
            assert {int(record.value) for record in await drain(reader, 50)} == set(range(50))

    asyncio.run(run())


def test_administration(bootstrap: str, new_name: NewNameFactory) -> None:
    topic = new_name()

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            created = await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000000"})])
            assert [for_code(entry[1]).errno for entry in created.topic_errors] == [0]
            again = await admin.create_topics([NewTopic(topic, 2, 1)])
            assert for_code(again.topic_errors[0][1]) is TopicAlreadyExistsError
            assert topic in await admin.list_topics()
            await admin.create_partitions({topic: NewPartitions(3)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert values["retention.ms"] == "5000000"
            await produce(bootstrap, topic, numbered(10), partition=2)
            where = TopicPartition(topic, 2)
            assert await admin.delete_records({where: RecordsToDelete(before_offset=4)}) == {where: 4}
            cluster = await admin.describe_cluster()
            assert [broker["node_id"] for broker in cluster["brokers"]] == [1]
            await admin.delete_topics([topic])
            async with asyncio.timeout(10):
                while True:
                    if topic not in await admin.list_topics():
                        break
                    await asyncio.sleep(0.05)
        finally:
            await admin.close()

    asyncio.run(run())
