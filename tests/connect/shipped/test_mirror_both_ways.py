"""Two clusters that mirror each other, each with a worker of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.testing import Broker, ConnectWorker
from ottla.transactions.events import SendMarkers
from tests.support.connect import values_of
from tests.support.eventually import eventually

GROUP: Final = "readers"


@dataclass(frozen=True)
class Side:
    """A cluster with a topic of its own, whose records the group has read, and a worker that copies the other's."""

    alias: str
    broker: Broker
    topic: str
    records: int

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def fill(self) -> None:
        self.admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result()
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(self.records):
            producer.produce(self.topic, b"%d" % number)
        producer.flush()
        at_end = [ConsumerGroupTopicPartitions(GROUP, [TopicPartition(self.topic, 0, self.records)])]
        self.admin.alter_consumer_group_offsets(at_end)[GROUP].result()

    def mirror(self, other: "Side") -> dict[str, str]:
        return {
            "connector.class": "mirror-source",
            "source.cluster.alias": other.alias,
            "target.cluster.alias": self.alias,
            "source.cluster.bootstrap.servers": other.broker.bootstrap,
            "topics": ".*orders,.*bills",
            "refresh.topics.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
        }

    def offsets(self) -> dict[str, int]:
        """Where the group stands."""
        (answer,) = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
        return {each.topic: each.offset for each in answer.result().topic_partitions}

    def has_copied(self, other: "Side") -> None:
        """Each record is here once, the group has nothing left to read, and nothing of this side has come back."""
        copy = f"{other.alias}.{other.topic}"
        values = eventually(lambda: values_of(self.broker.bootstrap, copy, other.records), timeout_s=60)
        assert values == [b"%d" % number for number in range(other.records)]
        eventually(lambda: self.offsets().get(copy, 0) >= other.records)
        names = self.admin.list_topics(timeout=10).topics
        assert {name for name in names if name.endswith(("orders", "bills"))} == {self.topic, copy}


@dataclass
class Markers:
    """Once released, the commits of mirrors are followed by their markers; until then they are answered and that is
    all.

    withheld: transactional ids whose markers were held back.
    """

    released: threading.Event = field(default_factory=threading.Event)
    withheld: set[str] = field(default_factory=set)


@pytest.fixture
def markers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Markers]:
    """Withholds the markers of mirrors."""
    found, send = Markers(), TransactionCoordinator._send_markers

    def sent_later(coordinator: Any, partition: Any, epoch: Any, message: SendMarkers) -> None:
        if found.released.is_set() or "-from-" not in message.transactional_id:
            send(coordinator, partition, epoch, message)
        else:
            found.withheld.add(message.transactional_id)
            asyncio.get_running_loop().call_later(0.05, sent_later, coordinator, partition, epoch, message)

    monkeypatch.setattr(TransactionCoordinator, "_send_markers", sent_later)
    yield found
    found.released.set()


def test_groups_at_the_end_are_at_the_end_of_the_copies_and_nothing_comes_back(markers: Markers) -> None:
    """They stood at 0: a commit is answered before its markers are written, and nothing came after it."""
    with ExitStack() as running:
        first = Side("a", running.enter_context(Broker()), "orders", 8)
        second = Side("b", running.enter_context(Broker()), "bills", 5)
        both = [(first, second), (second, first)]
        for each in (first, second):
            each.fill()
        for here, there in both:
            worker = running.enter_context(ConnectWorker(here.broker.bootstrap))
            worker.put(f"from-{there.alias}", here.mirror(there))
        eventually(lambda: len(markers.withheld) == len(both), timeout_s=60)
        markers.released.set()
        for here, there in both:
            here.has_copied(there)
