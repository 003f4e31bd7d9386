"""Producers that were silent for too long: forgotten by genuine Kafka and by Ottla alike, and answered alike."""

from collections.abc import Iterator
from typing import Final

import pytest
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.transaction_stories import Pair, Producer, Teller, compare

from ottla.protocol.messages import describe_producers as dp
from ottla.protocol.messages import describe_transactions as dt

_NOT_FOUND: Final = 105
"""TRANSACTIONAL_ID_NOT_FOUND"""

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "producer.id.expiration.ms": "1500",
    "producer.id.expiration.check.interval.ms": "200",
}


@pytest.fixture(scope="module")
def expiring_pair() -> Iterator[Pair]:
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        for broker in (genuine, ottla):
            Teller(broker.bootstrap).ready()
        yield Pair(genuine.bootstrap, ottla.bootstrap)


def forgotten(teller: Teller, name: str) -> None:
    """Wait until the transaction coordinator has forgotten the transactional id."""
    request = dt.DescribeTransactionsRequest(transactional_ids=[name])
    eventually(lambda: ask(teller.bootstrap, request, 0).transaction_states[0].error_code == _NOT_FOUND)


def unremembered(teller: Teller, topic: str) -> None:
    """Wait until a partition knows no producer any more."""
    request = dp.DescribeProducersRequest(topics=[dp.TopicRequest(name=topic, partition_indexes=[0])])
    eventually(lambda: not ask(teller.bootstrap, request, 0).topics[0].partitions[0].active_producers)


@pytest.mark.parametrize("version", [3, 5])
def test_a_transactional_id_that_was_not_used(expiring_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name, topic = f"expires-{version}", f"expired-{version}"
        teller.create(topic)
        writer = teller.new(name)
        teller.add("adds", writer, [(topic, 0)])
        teller.send("a record", writer, (topic, 0), 0)
        teller.end("commits", writer, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        forgotten(teller, name)
        teller.transaction(name)
        teller.add("adds in vain", writer, [(topic, 0)])
        teller.add_group("adds a group in vain", writer, "g")
        teller.commit_offsets("commits offsets in vain", writer, "g", [(topic, 0, 1)], 5)
        teller.send("a record in vain", writer, (topic, 0), 1)
        teller.send("a record in vain, implicitly", writer, (topic, 0), 1, version=12)
        teller.end("ends in vain", writer, commit=True, version=version)
        again = teller.init("asks with what it had", writer, version)
        if again.id < 0:
            again = teller.new(name)
        teller.add("adds again", again, [(topic, 0)])
        teller.send("a record again", again, (topic, 0), 0)
        teller.end("commits again", again, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        teller.log(topic)

    compare(expiring_pair, story)


def test_an_open_transaction_is_kept(expiring_pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("kept")
        teller.new("silent")
        writer = teller.new("kept")
        teller.add("adds", writer, [("kept", 0)])
        teller.send("a record", writer, ("kept", 0), 0)
        forgotten(teller, "silent")
        teller.transaction("kept")
        teller.producers("kept")
        teller.end("commits", writer, commit=True)
        teller.transaction("kept", until=lambda state: state == "CompleteCommit")
        teller.log("kept")

    compare(expiring_pair, story)


def test_a_partition_forgets_a_producer(expiring_pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("forgets")
        place = ("forgets", 0)

        def send(what: str, sequence: int, epoch: int = 0) -> None:
            teller.send(what, Producer(None, 4242, epoch), place, sequence, transactional=False, version=9)

        send("first", 0)
        send("second", 1)
        teller.producers("forgets")
        unremembered(teller, "forgets")
        send("goes on where it was", 2)
        send("goes on", 3)
        send("a gap", 9)
        unremembered(teller, "forgets")
        send("after a gap nobody remembers", 11)
        send("an epoch before", 0, epoch=-1)
        teller.log("forgets")

    compare(expiring_pair, story)
