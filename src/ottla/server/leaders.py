"""Where clients find partitions that they look for at the wrong broker, or at one further away than needed."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicId, TopicName
from ottla.server.context import RequestContext
from ottla.server.endpoints import address_of

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.replication.partition import Partition

MOVED: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""Errors that come with the name and address of the leader (KIP-951)."""

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def leader_of(metadata: "MetadataView", topic: str | UUID, partition: int) -> PartitionImage | None:
    """The partition, if it has a leader, as far as this broker knows."""
    image = metadata.image
    known = image.topics_by_id.get(TopicId(topic)) if isinstance(topic, UUID) else image.topics.get(TopicName(topic))
    if known is None or not 0 <= partition < len(known.partitions):
        return None
    found = known.partitions[partition]
    return None if found.leader == NO_LEADER else found


def endpoints_of(
    metadata: "MetadataView", brokers: Iterable[int], context: RequestContext
) -> Iterator[tuple[BrokerId, str, int, str | None]]:
    """Number, host, port and rack of the live ones of these brokers, as the client is to dial them."""
    image = metadata.image
    for broker_id in sorted(brokers):
        broker = image.brokers.get(BrokerId(broker_id))
        address = None if broker is None else address_of(broker, context)
        if broker is not None and address is not None:
            yield broker.broker_id, *address, broker.rack


def nearer_replica(
    config: "BrokerConfig", metadata: "MetadataView", partition: "Partition", rack: str
) -> BrokerId | None:
    """A follower that is in sync and in the consumer's rack, where the leader is not (KIP-392).

    None if there is none, or unless `replica.selector.class` asks for it. Of several, the one that has come furthest.
    """
    in_sync = partition.in_sync
    if in_sync is None or config.replica_selector_class != RACK_AWARE:
        return None
    brokers = metadata.image.brokers
    here = brokers.get(partition.leader)
    if here is not None and here.rack == rack:
        return None
    near = [
        (follower.end_offset, replica)
        for replica, follower in in_sync.followers.items()
        if replica in in_sync.isr and replica in brokers and brokers[replica].rack == rack
    ]
    return max(near)[1] if near else None
