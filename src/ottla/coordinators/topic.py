"""The topic in which a coordinator keeps its state: the coordinator of a key, and this broker's share of the topic.

Keys (groups, transactional ids, ...) are spread over the partitions by a hash; the leader of a partition coordinates
its keys.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, Self

from ottla.coordination.producers import ProducerStateEntry
from ottla.ids import LeaderEpoch, PartitionId, TopicName
from ottla.replication import own_records

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.coordinators.runtime import CoordinatorLog
    from ottla.metadata.view import MetadataView
    from ottla.records.batch import Buffer
    from ottla.replication.manager import ReplicaManager

CreateTopic = Callable[[], Awaitable[None]]
"""Create the topic, unless it is there. Raises an `OttlaError` if that cannot be done."""


class Leader(Protocol):
    """Serves the partitions that are led: a coordinator, or its runtime."""

    def on_leadership(self, partition: PartitionId, epoch: LeaderEpoch) -> None:
        """This broker leads the partition."""
        ...

    def on_resign(self, partition: PartitionId) -> None:
        """This broker no longer leads the partition."""
        ...


NO_NEGATION: Final = 1 << 31
"""The one int that Java cannot take the absolute value of; Kafka counts it as 0."""


class CoordinatorTopic:
    """A coordinator's topic, as this broker sees it."""

    def __init__(self, name: TopicName, log: "CoordinatorLog", create: CreateTopic, partition_count: int) -> None:
        """`partition_count` is how many partitions the topic will have, should it not be there yet."""
        self.name = name
        self.log = log
        self.partition_count = partition_count
        self._create = create

    @classmethod
    def of_broker(
        cls, name: TopicName, metadata: "MetadataView", replicas: "ReplicaManager", partition_count: int
    ) -> Self:
        """The topic of a running broker: its replicas are the log, its metadata say how many partitions there are."""

        async def create() -> None:
            refused = (await metadata.ensure_topics([name]))[name]
            if refused is not None:
                raise refused

        created = cls(name, _LogOfReplicas(name, replicas), create, partition_count)
        created.count_partitions(metadata.image)
        return created

    def partition_for(self, key: str) -> PartitionId:
        """The partition that stands for the key."""
        hashed = java_string_hash(key)
        magnitude = hashed if hashed < NO_NEGATION else (1 << 32) - hashed
        return PartitionId(0 if magnitude == NO_NEGATION else magnitude % self.partition_count)

    def count_partitions(self, image: "MetadataImage") -> None:
        """Spread keys over the partitions that the topic has: it may have been made with another number of them than
        the settings say, by hand or by a broker taken over."""
        topic = image.topics.get(self.name)
        if topic is not None:
            self.partition_count = len(topic.partitions)

    async def ensure(self) -> None:
        """Create the topic if it is not there. Raises an `OttlaError`."""
        await self._create()

    def lead(self, leader: Leader, metadata: "MetadataView", replicas: "ReplicaManager") -> None:
        """Notify `leader` of the partitions that this broker leads, and of every later change."""

        def leadership_changed(partition: PartitionId, epoch: LeaderEpoch | None) -> None:
            if epoch is None:
                leader.on_resign(partition)
            else:
                leader.on_leadership(partition, epoch)

        replicas.on_leadership(self.name, leadership_changed)
        metadata.subscribe(lambda old, new: self.count_partitions(new))


class _LogOfReplicas:
    """The topic on this broker's replicas, as the runtime wants to see it."""

    __slots__ = ("_name", "_replicas")

    def __init__(self, name: TopicName, replicas: "ReplicaManager") -> None:
        self._name = name
        self._replicas = replicas

    async def append_committed(self, partition: PartitionId, batches: bytearray) -> object:
        return await own_records.append_committed(self._replicas, self._name, partition, batches)

    def read_all(self, partition: PartitionId) -> "AsyncIterator[Buffer]":
        return own_records.read_all(self._replicas, self._name, partition)

    def producer(self, partition: PartitionId, producer_id: int) -> ProducerStateEntry | None:
        found = self._replicas.find(self._name, partition)
        entry = None if found is None else found.log.producer_state.producers.get(producer_id)
        if entry is None:
            return None
        return ProducerStateEntry(entry.epoch, entry.coordinator_epoch, entry.transaction_first_offset is not None)


def java_string_hash(text: str) -> int:
    """`String.hashCode()` as an unsigned 32-bit number: over UTF-16 code units, as Java counts."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return value
