"""Genuine Kafka and Ottla, side by side, for the stories of transactions."""

from collections.abc import Iterator
from typing import Final

import pytest
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.transaction_stories import Pair, Teller

SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.max.timeout.ms": "100000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offset.metadata.max.bytes": "10",
}


@pytest.fixture(scope="session")
def transactional_pair() -> Iterator[Pair]:
    """Both with the topics of their coordinators made, and a topic called `other-topic`."""
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        for broker in (genuine, ottla):
            teller = Teller(broker.bootstrap)
            teller.create("other-topic", 2)
            teller.ready()
        yield Pair(genuine.bootstrap, ottla.bootstrap)
