"""PURE. How fast replicas that have to catch up are copied, so that a move leaves room for clients (KIP-73).

    spent   |########--------|   is repaid at the rate, and may be one second of it
            0    allowed     held back until some is repaid

Which replicas that is about stands in `leader.` and `follower.replication.throttled.replicas` of their topics, how fast
in the settings of the brokers that end in `.replication.throttled.rate`. Both sides hold back on their own: a leader
what it gives, a follower what it asks for. Replicas in sync are never held back, but what they copy counts.

Source: Kafka 3.9, `ReplicationQuotaManager`, which forgets what was spent ten seconds ago; here all of it is repaid.
"""

from typing import Final

from ottla.cluster.image import MetadataImage, ResourceType
from ottla.ids import BrokerId, TopicName, TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
ALL: Final = "*"
BURST_S: Final = 1.0


class ByteRate:
    """Bytes per second that may be spent, on the average. Times are seconds on a clock that never goes back."""

    __slots__ = ("_bytes_per_s", "_spent", "_updated_at")

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._spent = 0.0
        self._updated_at = 0.0

    def change(self, bytes_per_s: int, now: float) -> None:
        """Another rate holds from now on, also for what has not been repaid yet."""
        self._repay(now)
        self._bytes_per_s = bytes_per_s

    def spend(self, size: int, now: float) -> None:
        """So many bytes are on their way, allowed or not."""
        self._repay(now)
        self._spent += size

    def wait_s(self, now: float) -> float:
        """How long to wait before more is spent; 0 if it may be at once, infinity at a rate of 0."""
        self._repay(now)
        excess = self._spent - self._bytes_per_s * BURST_S
        if excess <= 0:
            return 0.0
        return excess / self._bytes_per_s if self._bytes_per_s else float("inf")

    def _repay(self, now: float) -> None:
        self._spent = max(0.0, self._spent - self._bytes_per_s * max(0.0, now - self._updated_at))
        self._updated_at = max(self._updated_at, now)


class Throttle:
    """One side of a broker, leader or follower: its rate, and the replicas it is for."""

    __slots__ = ("_partitions", "rate")

    def __init__(self) -> None:
        self.rate = ByteRate(0)
        self._partitions: dict[TopicName, frozenset[int] | None] = {}
        """By topic, None for all."""

    @property
    def is_idle(self) -> bool:
        """Is it for no replica at all?"""
        return not self._partitions

    def is_for(self, topic_partition: TopicPartition) -> bool:
        """Is this broker's replica of the partition to be throttled?"""
        if self.is_idle:
            return False
        topic, number = topic_partition
        some = self._partitions.get(topic, frozenset())
        return some is None or number in some

    def wait_s(self, topic_partition: TopicPartition, now: float) -> float:
        """How long a replica that is not in sync is to be held back; 0 for not at all."""
        return self.rate.wait_s(now) if self.is_for(topic_partition) else 0.0

    def spend(self, topic_partition: TopicPartition, size: int, now: float) -> None:
        """So many bytes of this partition go from a leader to a follower."""
        if size and self.is_for(topic_partition):
            self.rate.spend(size, now)

    def set_partitions(self, partitions: dict[TopicName, frozenset[int] | None]) -> None:
        """The partitions by topic, None for all of a topic."""
        self._partitions = partitions


class Throttles:
    """Both sides of a broker; nothing is held back until rates are set and topics are read."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self.leader = Throttle()
        self.follower = Throttle()

    def read_topics(self, image: MetadataImage) -> None:
        """Which replicas the settings of topics name now."""
        for throttle, setting in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            throttle.set_partitions(
                {
                    TopicName(name): throttled_partitions(values[setting], self._broker_id)
                    for (resource_type, name), values in image.configs.items()
                    if resource_type is ResourceType.TOPIC and values.get(setting)
                }
            )


def throttled_partitions(text: str, broker_id: BrokerId) -> frozenset[int] | None:
    """The partitions whose replicas on this broker such a setting names (`0:1,3:1`); None for all (`*`)."""
    if text.strip() == ALL:
        return None
    pairs = [word.strip().partition(":") for word in text.split(",")]
    return frozenset(int(partition) for partition, _, broker in pairs if broker == str(broker_id))
