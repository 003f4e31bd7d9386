"""Questions about topics to real brokers, without Spark."""

from uuid import UUID

import pytest
from confluent_kafka import Producer

from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import SourceError, UnknownTopicError
from ottla.spark.metadata import TopicMetadata, metadata_queries
from ottla.spark.metadata_queries import MetadataQueries
from ottla.spark.offsets import EARLIEST, LATEST, Partition
from ottla.spark.selection import Assigned, Pattern, Topics
from tests.pipeline.conftest import TopicFactory
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

WITH_LIBRARY = ("socket.keepalive.enable", "true")
"""A setting that is the client library's alone, so that it is what asks."""


def settings(bootstrap: str, *others: tuple[str, str]) -> ClientSettings:
    return (("bootstrap.servers", bootstrap), *others)


@pytest.mark.parametrize("others", [(), (WITH_LIBRARY,)])
def test_partitions_ids_and_offsets(
    bootstrap: str, new_topic: TopicFactory, others: tuple[tuple[str, str], ...]
) -> None:
    topic = new_topic(3)
    first, second, third = (Partition(topic.name, number) for number in range(3))
    for millis in (1_000, 2_000, 3_000):
        topic.send([str(millis)], partition=1, timestamp=millis)
    topic.send(["a", "b", "c"], partition=2)
    topic.trim(2, partition=2)

    metadata = TopicMetadata(settings(bootstrap, *others))
    layout = metadata.layout(Topics((topic.name,)))
    assert layout.partitions == [first, second, third]
    assert layout.ids[topic.name] != UUID(int=0)
    assert metadata.layout(Assigned((second,))) == ([second], layout.ids)
    assert metadata.layout(Pattern(f"{topic.name[:-1]}.")) == layout
    with pytest.raises(UnknownTopicError, match=f"'assign' names {topic.name}-3"):
        metadata.layout(Assigned((Partition(topic.name, 3),)))
    with pytest.raises(UnknownTopicError, match=f"topic 'no-{topic.name}' does not exist on the brokers at"):
        metadata.layout(Topics((f"no-{topic.name}",)))

    assert metadata.earliest(layout.partitions) == {first: 0, second: 0, third: 2}
    assert metadata.latest(layout.partitions) == {first: 0, second: 3, third: 3}
    assert metadata.at_time([first, second], 1_500) == {first: -1, second: 1}
    assert metadata.at_time([second], -1) == {second: 0}


def test_what_is_read_ends_before_an_open_transaction(bootstrap: str, new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send(["a"])
    partition = Partition(topic.name, 0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic.name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic.name, b"b")
    producer.flush(60)
    assert TopicMetadata(settings(bootstrap)).latest([partition]) == {partition: 2}
    committed = TopicMetadata(settings(bootstrap, ("isolation.level", "read_committed")))
    assert committed.latest([partition]) == {partition: 1}
    producer.abort_transaction(60)
    eventually(lambda: committed.latest([partition]) == {partition: 3})


def test_a_refusal_is_of_one_partition(bootstrap: str, new_topic: TopicFactory) -> None:
    topic = new_topic()
    there, missing = Partition(topic.name, 0), Partition(topic.name, 7)
    found = metadata_queries(settings(bootstrap)).offsets({there: LATEST, missing: EARLIEST})
    assert found[there] == 0
    assert isinstance(found[missing], UnknownTopicError)


def test_a_broker_answers_as_soon_as_it_is_back(broker: BrokerProcess) -> None:
    """Killed, it comes back with newer leader epochs: a request with the old ones gets no offset."""
    with type(broker)() as own:
        topic = TopicFactory(own.bootstrap)(2)
        topic.send(["a", "b"])
        places = {Partition(topic.name, number): LATEST for number in range(2)}
        asked = metadata_queries(settings(own.bootstrap), 10.0)
        for _ in range(2):
            assert list(asked.offsets(places).values()) == [2, 0]
            own.kill()
            with pytest.raises(SourceError, match="cannot be reached: connection refused"):
                asked.offsets(places)
            own.start()
            # it may be there before it leads its partitions
            eventually(lambda: _is_answered(asked, places), timeout_s=60)


def _is_answered(asked: MetadataQueries, places: dict[Partition, int]) -> bool:
    return [*asked.offsets(places).values()] == [2, 0]
