"""The Java share consumer (KIP-932): own programs, and the tools that come with Kafka."""

import json

from confluent_kafka import Producer
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.share_groups import prepare_coordinator, set_group, topic_id
from tests.support.share_workers import Handled, ShareWorkers
from tests.support.tool_server import kafka_tool


def produce(bootstrap: str, topic: str, count: int, *, keys: int = 4, partitions: int = 1, batch: int = 10) -> None:
    """Values 0, 1, 2 ... in batches of about `batch` records."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1_000, "batch.num.messages": batch})
    for number in range(count):
        producer.produce(topic, str(number), key=f"k{number % keys}", partition=number % partitions)
    assert producer.flush(20) == 0


def new_group(bootstrap: str, new_name: NewNameFactory, topic: str, **settings: str) -> str:
    group = new_name()
    set_group(bootstrap, group, share_auto_offset_reset="earliest", **settings)
    prepare_coordinator(bootstrap, group, topic_id(bootstrap, topic))
    return group


def offsets(handled: list[Handled]) -> list[tuple[int, int]]:
    return sorted((one.partition, one.offset) for one in handled)


def test_members_share_the_records_of_one_partition(
    bootstrap: str, new_name: NewNameFactory, new_topic: NewTopicFactory
) -> None:
    topic = new_topic(2)
    group = new_group(bootstrap, new_name, topic)
    produce(bootstrap, topic, 400, partitions=2)
    with ShareWorkers(bootstrap, group, topic, members=4, max_poll_records=10, fast_ms=1, records=400) as workers:
        handled = workers.finish()
    assert not workers.refused()
    # What Java's client has failed by itself, since it had no session, comes again (`ShareWorkers.refused`).
    failed = {int(words[1]) for words in workers.said("refused")}
    again = [one for one in handled if one.delivery_count > 1]
    assert {one.partition for one in again} <= failed, (again, workers.lines)
    first = offsets([one for one in handled if one.delivery_count == 1])
    assert first == [(partition, offset) for partition in range(2) for offset in range(200)], workers.lines
    assert len({one.member for one in handled}) > 1
    assert workers.confirmed() <= set(offsets(handled))


def test_released_records_come_again_and_rejected_ones_do_not(
    bootstrap: str, new_name: NewNameFactory, new_topic: NewTopicFactory
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 20)
    group = new_group(bootstrap, new_name, topic)
    with ShareWorkers(bootstrap, group, topic, outcome="release", commit="sync", records=20) as workers:
        handled = workers.finish()
    assert sorted((one.offset, one.delivery_count) for one in handled) == [
        (offset, delivery) for offset in range(20) for delivery in (1, 2)
    ]
    group = new_group(bootstrap, new_name, topic)
    with ShareWorkers(bootstrap, group, topic, outcome="reject", commit="sync", records=20) as workers:
        assert [one.delivery_count for one in workers.finish()] == [1] * 20
    produce(bootstrap, topic, 5)
    with ShareWorkers(bootstrap, group, topic, outcome="accept", commit="sync", records=5) as workers:
        assert offsets(workers.finish()) == [(0, offset) for offset in range(20, 25)]
        assert workers.confirmed() == {(0, offset) for offset in range(20, 25)}


def test_what_a_vanished_member_held_goes_to_another(
    bootstrap: str, new_name: NewNameFactory, new_topic: NewTopicFactory
) -> None:
    """At once: the records' locks, of 30 s, end with the connection."""
    topic = new_topic(1)
    group = new_group(bootstrap, new_name, topic)
    produce(bootstrap, topic, 10)
    with ShareWorkers(bootstrap, group, topic, outcome="vanish") as workers:
        assert len(workers.finish()) == 1
    with ShareWorkers(bootstrap, group, topic, records=10) as workers:
        assert offsets(workers.finish(25)) == [(0, offset) for offset in range(10)]


def test_kafkas_own_share_consumers(bootstrap: str, new_name: NewNameFactory, new_topic: NewTopicFactory) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 30)
    group = new_group(bootstrap, new_name, topic)
    common = ("--bootstrap-server", bootstrap, "--topic", topic)
    printed = kafka_tool("ConsoleShareConsumer", *common, "--group", group, "--max-messages", "30").stdout
    assert sorted(int(line) for line in printed.splitlines() if line.isdigit()) == list(range(30))
    group = new_group(bootstrap, new_name, topic)
    told = kafka_tool("VerifiableShareConsumer", *common, "--group-id", group, "--max-messages", "30").stdout
    events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= 30
    assert sum(event["count"] for event in events if event["name"] == "offsets_acknowledged") >= 30
    assert all(event.get("success", True) for event in events)
