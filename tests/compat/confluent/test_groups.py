"""librdkafka in consumer groups of the classic protocol."""

import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.compat.confluent.clients import consumer, drain, numbered, produce
from tests.compat.confluent.members import Member, closing, poll_until
from tests.compat.factories import NewNameFactory, NewTopicFactory


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def test_one_gets_all_two_share_a_fifth_stays_idle(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(4), new_name()
    members = [Member(bootstrap, group, topic)]
    with closing(members[0]):
        poll_until(members, [4])
        members.append(Member(bootstrap, group, topic))
        with closing(members[1]):
            poll_until(members, [2, 2])
            members += [Member(bootstrap, group, topic) for _ in range(3)]
            with closing(*members[2:]):
                poll_until(members, [0, 1, 1, 1, 1])


def test_two_groups_each_see_every_record(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic = new_topic(4)
    first = [Member(bootstrap, group, topic) for group in [new_name()] * 2]
    second = [Member(bootstrap, group, topic) for group in [new_name()]]
    with closing(*first, *second):
        poll_until(first, [2, 2])
        poll_until(second, [4])
        for partition in range(4):
            produce(bootstrap, topic, numbered(25), partition)
        deadline = time.monotonic() + 20
        expected = sorted(b"%d" % number for number in range(25) for _ in range(4))
        while time.monotonic() < deadline:
            for member in (*first, *second):
                member.poll()
            if all(sum(len(m.values) for m in group) >= 100 for group in (first, second)):
                break
        for group in (first, second):
            assert sorted(value for member in group for value in member.values) == expected


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, strategy: str
) -> None:
    topic, group = new_topic(6), new_name()
    settings = {"partition.assignment.strategy": strategy}
    first = Member(bootstrap, group, topic, **settings)
    with closing(first):
        poll_until([first], [6])
        second = Member(bootstrap, group, topic, **settings)
        with closing(second):
            poll_until([first, second], [3, 3])
        poll_until([first], [6])


def test_cooperative_members_keep_what_they_hold(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(6), new_name()
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    first = Member(bootstrap, group, topic, **settings)
    with closing(first):
        poll_until([first], [6])
        second = Member(bootstrap, group, topic, **settings)
        with closing(second):
            poll_until([first, second], [3, 3])
            revoked = set().union(*(parts for what, parts in first.events if what == "revoked"))
            assert len(revoked) == 3, f"only half had to move: {first.events}"
            assert not [event for event in first.events + second.events if event[0] == "lost"]


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(4), new_name()
    settings = {"session.timeout.ms": 20_000}
    first = Member(bootstrap, group, topic, **{"group.instance.id": "first", **settings})
    second = Member(bootstrap, group, topic, **{"group.instance.id": "second", **settings})
    with closing(first):
        try:
            poll_until([first, second], [2, 2])
            held, events = second.partitions, len(first.events)
        finally:
            second.client.close()  # a static member leaves nothing behind but its place
        again = Member(bootstrap, group, topic, **{"group.instance.id": "second", **settings})
        with closing(again):
            poll_until([first, again], [2, 2])
            assert again.partitions == held
            assert len(first.events) == events, "the other member was disturbed"


def test_a_silent_member_is_put_out(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(2), new_name()
    idle = Member(bootstrap, group, topic, **{"max.poll.interval.ms": 6000})
    busy = Member(bootstrap, group, topic)
    with closing(idle, busy):
        poll_until([idle, busy], [1, 1])
        poll_until([busy], [2])  # only `busy` polls from here on


def test_commits_are_kept_and_read_back(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(2), new_name()
    for partition in (0, 1):
        produce(bootstrap, topic, numbered(50), partition)
    first = consumer(bootstrap, group)
    first.subscribe([topic])
    messages = drain(first, 60)
    committed = first.commit(asynchronous=False) or []
    assert sum(partition.offset for partition in committed) == 60
    first.close()

    second = consumer(bootstrap, group)
    second.subscribe([topic])
    rest = drain(second, 40)
    seen = {(message.partition(), message.offset()) for message in messages + rest}
    assert len(seen) == 100
    second.commit(offsets=[TopicPartition(topic, 0, 7, metadata="seven")], asynchronous=False)
    (read,) = second.committed([TopicPartition(topic, 0)], timeout=10)
    assert (read.offset, read.metadata) == (7, "seven")
    second.close()


def test_commits_without_membership(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(), new_name()
    lone = consumer(bootstrap, group)
    (unset,) = lone.committed([TopicPartition(topic, 0)], timeout=10)
    assert unset.offset == -1001  # librdkafka's OFFSET_INVALID: nothing committed
    lone.commit(offsets=[TopicPartition(topic, 0, 42)], asynchronous=False)
    (read,) = lone.committed([TopicPartition(topic, 0)], timeout=10)
    assert read.offset == 42
    lone.close()


def test_a_subscription_by_pattern_finds_new_topics(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic()
    member = Member(bootstrap, new_name(), f"^{topic}$", **{"topic.metadata.refresh.interval.ms": 500})
    with closing(member):
        poll_until([member], [1])


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group, client = new_topic(2), new_name(), admin(bootstrap)
    produce(bootstrap, topic, numbered(10))
    member = Member(bootstrap, group, topic, **{"client.id": "describer"})
    with closing(member):
        poll_until([member], [2])
        member.client.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
        described = client.describe_consumer_groups([group])[group].result(10)
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        (only,) = described.members
        assert only.client_id == "describer"
        assert {part.partition for part in only.assignment.topic_partitions} == {0, 1}
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            client.delete_consumer_groups([group])[group].result(10)

    listed = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(10)
    assert group in {entry.group_id for entry in listed.valid}
    target = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 0)])
    client.alter_consumer_group_offsets([target])[group].result(10)
    read = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    assert {part.partition: part.offset for part in read.topic_partitions or []} == {0: 3, 1: 0}

    client.delete_consumer_groups([group])[group].result(10)
    listed = client.list_consumer_groups().result(10)
    assert group not in {entry.group_id for entry in listed.valid}
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        client.delete_consumer_groups([group])[group].result(10)


def test_seek_in_an_assigned_group_is_obeyed(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(20))
    reader: Consumer = consumer(bootstrap, new_name())
    reader.subscribe([topic])
    drain(reader, 20)
    reader.seek(TopicPartition(topic, 0, 15))
    assert [message.offset() for message in drain(reader, 5)] == [15, 16, 17, 18, 19]
    reader.close()
