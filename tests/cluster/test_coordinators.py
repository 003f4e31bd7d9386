"""Coordinators of groups and transactions: they are on all brokers, and move when theirs dies."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as At

from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.steady_producer import SteadyProducer
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
