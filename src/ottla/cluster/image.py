"""PURE. The cluster's metadata at one moment: an immutable value, replaced as a whole by every change."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition

NO_LEADER: Final = BrokerId(-1)
NOT_YET_LED: Final = -1

GROUP_METADATA_TOPIC: Final = TopicName("__consumer_offsets")
TRANSACTION_STATE_TOPIC: Final = TopicName("__transaction_state")
SHARE_GROUP_STATE_TOPIC: Final = TopicName("__share_group_state")
INTERNAL_TOPICS: Final = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC))


class ResourceType(IntEnum):
    """What a setting belongs to, as numbered in the config requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
    USER = -2
    """What a user logs in with, and a user's quotas. No config request reads or changes it: it has secrets."""
    CLIENT = -3
    """The quotas of a client id. Like those of the next two, only requests about quotas read and change them."""
    USER_CLIENT = -4
    """The quotas of a client id of a user; `ottla.quotas.entities` makes its name."""
    IP = -5
    """The quotas of an address."""


SECURITY_PROTOCOL_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
)
"""The security protocols of listeners, by their numbers in requests and records."""

CLUSTER_DEFAULT: Final = ""
"""Name of the BROKER resource whose settings hold for every broker."""


class PartitionImage(NamedTuple):
    """The replicas and the leader of a partition."""

    partition: PartitionId
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    """The first is the preferred leader."""
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    """Grows with every change of leader or in-sync replicas; `NOT_YET_LED` until there has been a leader."""
    adding: tuple[BrokerId, ...] = ()
    """The replicas that a reassignment adds."""
    removing: tuple[BrokerId, ...] = ()
    """The replicas that a reassignment removes at its end (KIP-455)."""
    last_known_leader: BrokerId = NO_LEADER
    """The leader before `leader`, until that one has confirmed: it has all committed records on its
    disk, and may lead again though it is not in sync (ADR 15)."""
    departed: tuple[BrokerId, ...] = ()
    """Replicas that have left the in-sync set, the latest first."""
    eligible_count: int = 0
    """How many of the first of `departed` still have all that is committed, since nothing has been committed without
    them: they left when fewer than `min.insync.replicas` remained (KIP-966's eligible leader replicas)."""
    begins_anew: bool = False
    """Was its leader elected although it has no data, by an operator's decision?"""

    @property
    def eligible(self) -> tuple[BrokerId, ...]:
        """Replicas that are not in sync and may lead all the same, if the disks of those in sync are lost."""
        return self.departed[: self.eligible_count]

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody leads it and no replica is in sync: with `eligible.leader.replicas.version` 1, the last one in
        sync becomes eligible when its broker goes, and `last_known_leader` is the last leader."""
        return self.leader == NO_LEADER and not self.isr

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas as they shall be when the reassignment is through."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_reassigned(self) -> bool:
        """Is a reassignment under way?"""
        return bool(self.adding or self.removing)


class TopicImage(NamedTuple):
    """A topic; `partitions[n]` is partition n."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]

    @property
    def replication_factor(self) -> int:
        """That of its first partition."""
        return len(self.partitions[0].replicas)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class BrokerImage(NamedTuple):
    """A broker that is alive."""

    broker_id: BrokerId
    epoch: int
    """Grows with every start of the broker."""
    rack: str | None
    endpoints: Mapping[str, tuple[str, int]]
    """Listener name to advertised host and port."""
    confirms_leadership: bool = False
    """Does it confirm that it leads, when it is elected? Kafka's brokers do not."""
    security_protocols: Mapping[str, str] = MappingProxyType({})
    """Listener name to security protocol; PLAINTEXT for a listener that it does not name."""


INITIAL_FEATURES: Final[Mapping[str, int]] = MappingProxyType(
    {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}
)
"""The feature levels of a cluster in which none was changed."""

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
"""The feature of clusters under a quorum of controllers, whose level decides about eligible leader replicas."""

Replica = tuple[BrokerId, TopicName, PartitionId]

_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class MetadataImage(NamedTuple):
    """Everything at once. Mappings in it are never changed in place."""

    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerImage]
    topics: Mapping[TopicName, TopicImage]
    topics_by_id: Mapping[TopicId, TopicImage]
    configs: Mapping[tuple[ResourceType, str], Mapping[str, str]]
    features: Mapping[str, int] = INITIAL_FEATURES
    """Finalized levels, those above 0."""
    features_epoch: int = 0
    """Grows with every change of a feature level."""
    failed_replicas: frozenset[Replica] = frozenset()
    """Replicas in failed log directories, as reported to the controller; the store does not hold them."""
    full_replicas: frozenset[Replica] = frozenset()
    """Those of them that are intact, in log directories that are only full: so under a quorum of controllers."""

    @property
    def elects_eligible(self) -> bool:
        """Whether an eligible leader replica leads as soon as no replica in sync is alive, as in Kafka 4 (KIP-966)."""
        return self.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0

    def config(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Settings that were set for this resource itself; empty when there are none."""
        return self.configs.get((resource_type, name), _NO_CONFIGS)

    def topic_config(self, name: TopicName) -> Mapping[str, str]:
        """Settings that were set for a topic itself."""
        return self.configs.get((ResourceType.TOPIC, name), _NO_CONFIGS)

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """The partition, or None if there is no such topic or partition."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def offline_replicas(self, topic: TopicName, partition: PartitionImage) -> tuple[BrokerId, ...]:
        """Those replicas of a topic's partition whose broker is not alive, or whose log directory has failed."""
        return tuple(
            broker
            for broker in partition.replicas
            if broker not in self.brokers or (broker, topic, partition.partition) in self.failed_replicas
        )


def empty_image(cluster_id: str) -> MetadataImage:
    """A cluster of nothing."""
    return MetadataImage(cluster_id, NO_LEADER, {}, {}, {}, {})
