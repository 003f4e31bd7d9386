"""aiokafka's transactions: its own implementation of the protocol's first generation."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, InvalidTransactionTimeout, OutOfOrderSequenceNumber, ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from tests.compat.factories import NewNameFactory, NewTopicFactory

_LIMIT_S: Final = 30.0


class ChangedMindError(Exception):
    """Leaves a transaction's block early."""


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(_LIMIT_S):
            await story()

    asyncio.run(limited())


def producer(bootstrap: str, transactional_id: str, **settings: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **settings)


async def read_committed(bootstrap: str, topic: str, count: int) -> list[str]:
    """Everything in the first partition once it has so many records. The coordinator answers a commit before the
    partition has its marker, in genuine Kafka, too."""
    found: list[str] = []
    while len(found) < count:  # `run` limits the time
        found = await read(bootstrap, topic)
    return found


async def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Everything in the first partition up to its end, as it is now."""
    place = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation) as reader:
        reader.assign([place])
        reader.seek(place, 0)
        end = (await reader.end_offsets([place]))[place]
        found: list[str] = []
        while await reader.position(place) < end:
            found += [record.value.decode() for record in (await reader.getmany(timeout_ms=200)).get(place, [])]
        return found


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_blocks_commit_or_abort(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, codec: str | None
) -> None:
    topic = new_topic()

    async def story() -> None:
        async with producer(bootstrap, new_name(), compression_type=codec) as writer:
            for number in range(6):
                try:
                    async with writer.transaction():
                        await writer.send_and_wait(topic, f"{number}a".encode())
                        await writer.send_and_wait(topic, f"{number}b".encode())
                        if number % 2:
                            raise ChangedMindError
                except ChangedMindError:
                    pass
        assert await read_committed(bootstrap, topic, 6) == ["0a", "0b", "2a", "2b", "4a", "4b"]
        everything = await read(bootstrap, topic, "read_uncommitted")
        assert everything == [f"{number}{letter}" for number in range(6) for letter in "ab"]

    run(story)


def test_an_open_transaction_is_not_read(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic = new_topic()

    async def story() -> None:
        async with producer(bootstrap, new_name()) as writer:
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"within")
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as plain:
                await plain.send_and_wait(topic, b"after")
            assert await read(bootstrap, topic) == []
            assert await read(bootstrap, topic, "read_uncommitted") == ["within", "after"]
            await writer.commit_transaction()
            assert await read_committed(bootstrap, topic, 2) == ["within", "after"]

    run(story)


def test_a_successor_fences_its_predecessor(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, name = new_topic(), new_name()

    async def story() -> None:
        async with producer(bootstrap, name) as old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"left behind")
            async with producer(bootstrap, name) as new:
                async with new.transaction():
                    await new.send_and_wait(topic, b"of the successor")
                with pytest.raises(ProducerFenced):
                    await old.commit_transaction()
                assert await read_committed(bootstrap, topic, 1) == ["of the successor"]

    run(story)


def test_a_transaction_that_outlives_its_timeout_is_aborted(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic()

    async def story() -> None:
        async with producer(bootstrap, new_name(), transaction_timeout_ms=1000) as writer:
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"too slow")
            place = TopicPartition(topic, 0)
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as reader:
                while (await reader.end_offsets([place]))[place] < 2:  # the record and the marker that aborts it
                    await asyncio.sleep(0.05)
            with pytest.raises((ProducerFenced, OutOfOrderSequenceNumber, IllegalOperation)):
                await writer.commit_transaction()
        assert await read(bootstrap, topic) == []

    run(story)


def test_consume_transform_produce(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    source, sink, group = new_topic(), new_topic(), new_name()
    place = TopicPartition(source, 0)

    async def offset() -> int | None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False) as reader:
            reader.assign([place])
            return await reader.committed(place)

    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as plain:
            for number in range(21):
                await plain.send_and_wait(source, str(number).encode())
        async with (
            AIOKafkaConsumer(
                source,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as reader,
            producer(bootstrap, new_name()) as writer,
        ):
            for number in range(21):
                record = await reader.getone()
                keep = number % 3 != 1
                try:
                    async with writer.transaction():
                        await writer.send(sink, record.value + b"!")
                        next_one = OffsetAndMetadata(record.offset + 1, f"after {number}")
                        await writer.send_offsets_to_transaction({place: next_one}, group)
                        if not keep:
                            raise ChangedMindError
                except ChangedMindError:
                    assert await offset() == number
        expected = [f"{number}!" for number in range(21) if number % 3 != 1]
        assert await read_committed(bootstrap, sink, len(expected)) == expected
        assert await offset() == 21

    run(story)


def test_a_timeout_longer_than_the_broker_allows_is_refused(bootstrap: str, new_name: NewNameFactory) -> None:
    async def story() -> None:
        writer = producer(bootstrap, new_name(), transaction_timeout_ms=900_001)
        try:
            with pytest.raises(InvalidTransactionTimeout):
                await writer.start()
        finally:
            await writer.stop()

    run(story)
