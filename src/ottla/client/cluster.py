"""The brokers of a cluster and the leaders of its partitions, as several brokers report them; blocking.

A broker that has just started, or is cut off from the others, knows less than they do: what one denies, or reports with
an older epoch than is known, is asked of the next.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.client.errors import BrokerUnavailable, ClientError
from ottla.client.pool import Connections
from ottla.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message

METADATA_VERSION: Final = 10
"""Has the ids of topics (KIP-516); an older broker is asked in the newest version that it has."""
NO_EPOCH: Final = -1

Partition = tuple[str, int]
"""Topic and number; any NamedTuple of these will do."""


class Leader(NamedTuple):
    """The leader of a partition, its epoch, the id of the topic, and the broker that reported it.

    Older brokers have no epochs (NO_EPOCH) and no ids (NULL_UUID).
    """

    address: Address
    epoch: int
    topic_id: UUID
    reported_by: Address


class TopicMissing(BrokerUnavailable):
    """None of the brokers that answer knows the topic at the moment."""


class TopicGone(Exception):
    """The topic that was meant no longer exists; the message names the ones that exist."""


class Cluster:
    """Connections to one cluster, and the leaders that were reported last. For one thread at a time."""

    def __init__(self, bootstrap: Collection[Address], connect: Callable[[Address], Connection]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._connections = Connections(connect, dropped=self._forget_leaders_at)
        self._brokers: tuple[Address, ...] = ()
        self._leaders: dict[Partition, Leader] = {}
        self._epochs: dict[Partition, tuple[UUID, int]] = {}
        self._wrong: dict[Address, None] = {}  # brokers that reported a wrong leader, the last one last

    # -- leaders -------------------------------------------------------------------------------------------------------

    def leader(self, partition: Partition, topic_id: UUID) -> Connection | None:
        """A connection to the leader of the partition; None if it has none at the moment.

        `topic_id` is NULL_UUID if unknown. Raises `ClientError`; `TopicGone` if the topic has another id.
        """
        found = self._leaders.get(partition)
        if found is None:
            name, _ = partition
            topic = self.topics((name,)).get(name)
            if topic is not None and _is_unknown(topic):
                raise TopicMissing(f"there is no topic '{name}'")
            found = self._leaders.get(partition)
        if found is None:
            return None
        if NULL_UUID not in (topic_id, found.topic_id) and topic_id != found.topic_id:
            self.forget_leader(partition)
            raise TopicGone("was deleted and made again")
        return self._connections.to(found.address)

    def known_leader(self, partition: Partition) -> Leader | None:
        """The leader that was reported last."""
        return self._leaders.get(partition)

    def forget_leader(self, partition: Partition) -> None:
        """Ask again the next time, and the broker that reported this leader last: it may be cut off from the others."""
        leader = self._leaders.pop(partition, None)
        if leader is not None:
            self._wrong.pop(leader.reported_by, None)
            self._wrong[leader.reported_by] = None

    def topics(self, names: Collection[str]) -> dict[str, Any]:
        """These topics as brokers report them (`MetadataResponseTopic`); the leaders of their partitions are noted.

        A topic that one broker denies, reports with older epochs, or without a leader, is asked of the next. Raises
        `ClientError` if none answers.
        """
        found: dict[str, Any] = {}
        left = set(names)
        topics = [MetadataRequestTopic(name=name) for name in names]
        for address, answer in self._answers(MetadataRequest(topics=topics, allow_auto_topic_creation=False)):
            unsure = self._note(answer, address)
            for topic in answer.topics:
                if topic.name not in found or not _is_unknown(topic):
                    found[topic.name] = topic
                if not _is_unknown(topic) and topic.name not in unsure:
                    left.discard(topic.name)
            if not left:
                break
        return found

    def names(self, expected: Collection[str] = ()) -> set[str]:
        """The names of all topics, from as many brokers as it takes to know the `expected`. Raises `ClientError`."""
        found: set[str] = set()
        for _, answer in self._answers(MetadataRequest(topics=None, allow_auto_topic_creation=False)):
            found.update(topic.name for topic in answer.topics)
            if found.issuperset(expected):
                break
        return found

    def _note(self, answer: Any, reported_by: Address) -> set[str]:
        """Note the leaders, unless newer ones are known; returns the topics of which other brokers may know more."""
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._brokers = tuple(brokers.values())
        unsure = set()
        for topic in answer.topics:
            for each in topic.partitions:
                partition = topic.name, each.partition_index
                topic_id, epoch = self._epochs.get(partition, (NULL_UUID, NO_EPOCH))
                if NULL_UUID != topic_id == topic.topic_id and each.leader_epoch < epoch:
                    unsure.add(topic.name)
                    continue
                self._epochs[partition] = topic.topic_id, each.leader_epoch
                if each.leader_id in brokers:
                    address = brokers[each.leader_id]
                    self._leaders[partition] = Leader(address, each.leader_epoch, topic.topic_id, reported_by)
                else:
                    self._leaders.pop(partition, None)
                    unsure.add(topic.name)
        return unsure

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask_each(self, requests: Mapping[Address, Message], newest: int) -> dict[Address, Any]:
        """See `Connections.ask_each`."""
        return self._connections.ask_each(requests, newest)

    def drop(self, connection: Connection) -> None:
        """Forget a connection that failed, or whose answers are no longer wanted, and what is led there."""
        self._connections.drop(connection)

    def _answers(self, request: MetadataRequest) -> Iterator[tuple[Address, Any]]:
        """The answers of one broker after the other, of those that were wrong lately last.

        Raises `ClientError` if none answers.
        """
        problem: ClientError | None = BrokerUnavailable("no broker is named")
        addresses = dict.fromkeys((*self._connections, *self._bootstrap, *self._brokers))
        trusted = [address for address in addresses if address not in self._wrong]
        for address in (*trusted, *(address for address in self._wrong if address in addresses)):
            answer = self.ask_each({address: request}, METADATA_VERSION)[address]
            if isinstance(answer, ClientError):
                problem = problem and answer
                continue
            problem = None
            yield address, answer
        if problem is not None:
            raise problem

    def _forget_leaders_at(self, address: Address) -> None:
        for partition, leader in list(self._leaders.items()):
            if leader.address == address:
                self.forget_leader(partition)


def _is_unknown(topic: Any) -> bool:
    return bool(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
