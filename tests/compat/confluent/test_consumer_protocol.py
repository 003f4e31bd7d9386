"""librdkafka in consumer groups of KIP-848, and on the way there from the classic protocol and back."""

import time
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.compat.confluent.clients import consumer, drain, numbered, produce
from tests.compat.confluent.members import Member, closing, poll_until
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

NEW = {"group.protocol": "consumer"}


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def type_of(bootstrap: str, group: str) -> ConsumerGroupType:
    client = admin(bootstrap)
    listed = client.list_consumer_groups().result(10)
    (found,) = [entry for entry in listed.valid if entry.group_id == group]
    return found.type


def configure(bootstrap: str, group: str, **settings: str) -> None:
    """Set a group's own settings; `_` stands for a dot."""
    edits = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=edits)
    client = admin(bootstrap)
    client.incremental_alter_configs([resource])[resource].result(10)


def poll_for(members: Iterable[Member], question: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Poll all until `question` is answered with yes."""
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, [(member.partitions, len(member.values)) for member in members]
        for member in members:
            member.poll()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, assignor: str
) -> None:
    topic, group, client = new_topic(6), new_name(), admin(bootstrap)
    settings = {**NEW, "group.remote.assignor": assignor}
    first = Member(bootstrap, group, topic, **settings)
    with closing(first):
        poll_until([first], [6])
        second = Member(bootstrap, group, topic, **settings)
        with closing(second):
            poll_until([first, second], [3, 3])
            described = client.describe_consumer_groups([group])[group].result(10)
            assert described.type == ConsumerGroupType.CONSUMER
            assert described.state == ConsumerGroupState.STABLE
            assert described.partition_assignor == assignor
            held = {member.member_id: len(member.assignment.topic_partitions) for member in described.members}
            assert sorted(held.values()) == [3, 3]
            targets = [member.target_assignment for member in described.members]
            assert all(target is not None and len(target.topic_partitions) == 3 for target in targets)
        poll_until([first], [6])


def test_nobody_stops_for_a_newcomer(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(6), new_name()
    first = Member(bootstrap, group, topic, **NEW)
    with closing(first):
        poll_until([first], [6])
        second = Member(bootstrap, group, topic, **NEW)
        with closing(second):
            poll_until([first, second], [3, 3])
            revoked = [partitions for what, partitions in first.events if what == "revoked"]
            assert [len(partitions) for partitions in revoked] == [3], first.events
            assert first.partitions == set(range(6)) - revoked[0]
            assert second.partitions == revoked[0]
            assert not [event for event in first.events + second.events if event[0] == "lost"]


def test_more_members_than_partitions(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(2), new_name()
    members = [Member(bootstrap, group, topic, **NEW) for _ in range(3)]
    with closing(*members):
        poll_until(members, [0, 1, 1])


def test_commits_are_kept_and_read_back(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(2), new_name()
    for partition in (0, 1):
        produce(bootstrap, topic, numbered(50), partition)
    first = consumer(bootstrap, group, **NEW)
    first.subscribe([topic])
    messages = drain(first, 60)
    committed = first.commit(asynchronous=False) or []
    assert sum(partition.offset for partition in committed) == 60
    first.close()
    second = consumer(bootstrap, group, **NEW)
    second.subscribe([topic])
    rest = drain(second, 40)
    assert len({(message.partition(), message.offset()) for message in messages + rest}) == 100
    second.close()


def test_a_subscription_by_expression_finds_topics_made_later(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, client = new_topic(), admin(bootstrap)
    member = Member(bootstrap, new_name(), f"^{topic}.*", **NEW)
    with closing(member):
        poll_for([member], lambda: {part.topic for part in member.client.assignment()} == {topic})
        later = f"{topic}-later"
        client.create_topics([NewTopic(later, 1, 1)])[later].result(10)
        poll_for([member], lambda: {part.topic for part in member.client.assignment()} == {topic, later}, 40)


def test_a_bad_expression_is_refused(bootstrap: str, new_name: NewNameFactory) -> None:
    """It is one for librdkafka, but RE2 knows no references to what was matched before."""
    reader = consumer(bootstrap, new_name(), **NEW)
    try:
        reader.subscribe([r"^(bad)\1"])
        with pytest.raises(KafkaException, match=r"regular expression is not valid"):
            drain(reader, 1, timeout_s=15)
    finally:
        reader.close()


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(4), new_name()
    first = Member(bootstrap, group, topic, **{"group.instance.id": "first", **NEW})
    second = Member(bootstrap, group, topic, **{"group.instance.id": "second", **NEW})
    with closing(first):
        try:
            poll_until([first, second], [2, 2])
            held, events = second.partitions, len(first.events)
        finally:
            second.client.close()
        again = Member(bootstrap, group, topic, **{"group.instance.id": "second", **NEW})
        with closing(again):
            poll_until([first, again], [2, 2])
            assert again.partitions == held
            assert len(first.events) == events, "the other member was disturbed"


def test_the_groups_own_settings_hold(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    group, client = new_name(), admin(bootstrap)
    configure(bootstrap, group, consumer_session_timeout_ms="50000")
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    eventually(
        lambda: client.describe_configs([resource])[resource].result(10)["consumer.session.timeout.ms"].value == "50000"
    )
    with pytest.raises(KafkaException, match=r"must be less than or equal to group\.consumer\.max.session.timeout.ms"):
        configure(bootstrap, group, consumer_session_timeout_ms="60001")


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group, client = new_topic(2), new_name(), admin(bootstrap)
    produce(bootstrap, topic, numbered(10))
    member = Member(bootstrap, group, topic, **{"client.id": "describer", "client.rack": "r1", **NEW})
    with closing(member):
        poll_until([member], [2])
        member.client.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
        (only,) = client.describe_consumer_groups([group])[group].result(10).members
        assert only.client_id == "describer"
        assert {part.partition for part in only.assignment.topic_partitions} == {0, 1}
        listed = client.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(10)
        assert group in {entry.group_id for entry in listed.valid}
        listed = client.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(10)
        assert group not in {entry.group_id for entry in listed.valid}
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            client.delete_consumer_groups([group])[group].result(10)

    listed = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(10)
    assert group in {entry.group_id for entry in listed.valid}
    target = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 0)])
    client.alter_consumer_group_offsets([target])[group].result(10)
    read = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    assert {part.partition: part.offset for part in read.topic_partitions or []} == {0: 3, 1: 0}
    client.delete_consumer_groups([group])[group].result(10)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        client.delete_consumer_groups([group])[group].result(10)


@pytest.mark.timeout(180)
def test_members_keep_what_they_have_while_the_broker_is_killed_and_comes_back(broker: BrokerProcess) -> None:
    with type(broker)(properties={**broker.properties, "offsets.topic.num.partitions": "1"}) as own:
        client = admin(own.bootstrap)
        client.create_topics([NewTopic("orders", 4, 1)])["orders"].result(10)
        members = [Member(own.bootstrap, "readers", "orders", **NEW) for _ in range(2)]
        with closing(*members):
            poll_until(members, [2, 2], timeout_s=40)
            held, events = [member.partitions for member in members], [len(member.events) for member in members]
            own.restart(kill=True)
            for partition in range(4):
                produce(own.bootstrap, "orders", numbered(10), partition)
            poll_for(members, lambda: sum(len(member.values) for member in members) == 40, 40)
            for member in members:
                member.client.commit(asynchronous=False)
            assert [member.partitions for member in members] == held
            assert [len(member.events) for member in members] == events
            described = client.describe_consumer_groups(["readers"])["readers"].result(10)
            assert described.state == ConsumerGroupState.STABLE


@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.soak), "cooperative-sticky"])
def test_a_live_group_moves_to_the_new_protocol_and_back(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, strategy: str
) -> None:
    topic, group = new_topic(4), new_name()
    old = {"partition.assignment.strategy": strategy, "enable.auto.commit": True, "auto.commit.interval.ms": 100}
    new = {**NEW, "enable.auto.commit": True, "auto.commit.interval.ms": 100}
    everybody: list[Member] = []
    sent = 0

    def enter(settings: dict[str, object]) -> Member:
        everybody.append(Member(bootstrap, group, topic, **settings))
        return everybody[-1]

    def work(members: list[Member], sizes: list[int]) -> None:
        """Settle, and read what is produced then: all of it, and each partition by one member."""
        nonlocal sent
        poll_until(members, sizes)
        before = sum(len(member.values) for member in everybody)
        for partition in range(4):
            produce(bootstrap, topic, numbered(10), partition)
        sent += 40
        poll_for(members, lambda: sum(len(member.values) for member in everybody) >= before + 40)
        assert len(everybody) == len(set(map(id, everybody)))

    first, second = enter(old), enter(old)
    with closing(first, second):
        work([first, second], [2, 2])
        assert type_of(bootstrap, group) == ConsumerGroupType.CLASSIC
        third = enter(new)
        with closing(third):
            work([first, second, third], [1, 1, 2])
            assert type_of(bootstrap, group) == ConsumerGroupType.CONSUMER
            first.client.close()
            fourth = enter(new)
            with closing(fourth):
                work([second, third, fourth], [1, 1, 2])
                second.client.close()
                work([third, fourth], [2, 2])
                assert type_of(bootstrap, group) == ConsumerGroupType.CONSUMER
                fifth = enter(old)
                with closing(fifth):
                    work([third, fourth, fifth], [1, 1, 2])
                    third.client.close()
                    fourth.client.close()
                    work([fifth], [4])
                    assert type_of(bootstrap, group) == ConsumerGroupType.CLASSIC
    assert sum(len(member.values) for member in everybody) >= sent
    client = admin(bootstrap)
    read = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    assert sum(part.offset for part in read.topic_partitions or []) == sent
