"""Coordinators of groups and transactions: they are on all brokers, and move when theirs dies."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as At

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.raw_client import ask
from tests.support.steady_producer import SteadyProducer
from tests.support.streams_member import Member, counting, heartbeat, settle
from tests.support.whole_topic import read_all


def consumer(cluster: OttlaCluster, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "log_level": 0,
            **settings,
        }
    )


@pytest.mark.timeout(240)
def test_a_group_goes_on_from_its_commits_when_its_coordinator_dies(cluster: OttlaCluster) -> None:
    cluster.create("t", partitions=3)
    with SteadyProducer(cluster.bootstrap, "t") as producer:
        producer.until_acknowledged(300)
    member = consumer(cluster, "g")
    member.subscribe(["t"])
    read: list[bytes] = []

    def read_some(count: int) -> bool:
        messages = [message for message in member.consume(count, timeout=0.5) if not message.error()]
        read.extend(message.value() or b"" for message in messages)
        return bool(messages)

    eventually(lambda: read_some(100), timeout_s=40)
    member.commit(asynchronous=False)
    coordinator = cluster.leader("__consumer_offsets", cluster.partition_of_group("g"))
    cluster.brokers[coordinator].kill()
    cluster.until_led_by("t", set(cluster.brokers) - {coordinator})

    def reads_all() -> bool:
        read_some(100)
        return len(read) >= len(producer.acknowledged)

    eventually(reads_all, timeout_s=60, interval_s=0)

    def commits() -> bool:
        try:
            member.commit(asynchronous=False)
        except KafkaException:
            return False
        return True

    eventually(commits, timeout_s=30)
    member.close()
    assert set(read) == {value for _, value in producer.acknowledged}

    other = consumer(cluster, "g")
    committed = eventually(lambda: other.committed([At("t", number) for number in range(3)], timeout=30))
    other.close()
    assert sum(at.offset for at in committed) == len(read)


@pytest.mark.timeout(240)
def test_transactions_end_in_partitions_of_all_brokers_whoever_dies(cluster: OttlaCluster) -> None:
    cluster.create("t", partitions=3)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "x",
            "transaction.timeout.ms": 20_000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    committed: set[bytes] = set()
    aborted: set[bytes] = set()

    def transact(number: int, *, commit: bool) -> None:
        values = [f"{number}-{partition}".encode() for partition in range(3)]
        producer.begin_transaction()
        for partition, value in enumerate(values):
            producer.produce("t", value, partition=partition)
        if commit:
            producer.commit_transaction(60)
            committed.update(values)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
            aborted.update(values)

    for number in range(5):
        transact(number, commit=number % 2 == 0)
    coordinator = cluster.leader("__transaction_state", cluster.partition_of_group("x"))
    cluster.brokers[coordinator].kill()
    for number in range(5, 10):
        try:
            transact(number, commit=number % 2 == 0)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            assert error.txn_requires_abort() or error.retriable(), error
            producer.abort_transaction(60)
    found = read_all(cluster.bootstrap, "t", len(committed))
    assert set(found) >= committed
    assert not set(found) & aborted
    assert len(found) == len(set(found))


@pytest.mark.timeout(240)
def test_a_streams_group_goes_on_with_its_tasks_when_its_coordinator_dies(cluster: OttlaCluster) -> None:
    """The coordinator is not the controller, which creates the group's internal topics all the same."""
    cluster.create("t", partitions=2)
    controller = cluster.admin().list_topics(timeout=10).controller_id

    def coordinated_elsewhere() -> tuple[str, int] | None:
        request = FindCoordinatorRequest(coordinator_keys=[f"words-{number}" for number in range(20)])
        for found in ask(cluster.bootstrap.split(",")[-1], request, 4).coordinators:
            if not found.error_code and found.node_id != controller:
                return found.key, int(found.node_id)
        return None

    def joins(member: Member) -> bool:
        """Not while the coordinator reads its log."""
        request = heartbeat(member.who, group, 0, counting(group, "t"))
        answer = ask(member.bootstrap, request, 0)
        if answer.error_code:
            return False
        member.hear(answer)
        return True

    def moved_to(node: int) -> bool:
        """The members know where to go; is the group there?"""
        for member in members:
            member.bootstrap = cluster.brokers[node].bootstrap
        describe = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        return not ask(cluster.brokers[node].bootstrap, describe, 0).groups[0].error_code

    group, first = eventually(coordinated_elsewhere, timeout_s=30)
    members = [Member(cluster.brokers[first].bootstrap, group, who) for who in ("one", "two")]
    eventually(lambda: joins(members[0]), timeout_s=30)
    members[1].join(counting(group, "t"))
    settle(*members, tasks=4)
    had = [(member.epoch, member.active) for member in members]
    cluster.brokers[first].kill()
    bootstraps = [broker.bootstrap for number, broker in cluster.brokers.items() if number != first]

    def successor() -> int | None:
        (found,) = ask(bootstraps[0], FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
        return None if found.error_code or found.node_id == first else int(found.node_id)

    second = eventually(successor, timeout_s=60)
    eventually(lambda: moved_to(second), timeout_s=30)
    settle(*members, tasks=4)
    assert [(member.epoch, member.active) for member in members] == had, "no rebalance for it"
