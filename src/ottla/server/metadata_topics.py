"""Topics as Metadata describes them, encoded once for all clients that ask.

After a failover every client asks for its topics at once; a topic of 1,000 partitions takes 3 ms to describe and
encode, and nothing to send again.
"""

from typing import Final

from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, Replica, TopicImage
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.protocol.compiled import encode_part
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import Encoded

LISTENER_ERRORS_SINCE: Final = 6
MAX_VIEWS: Final = 8
"""How many versions and listeners are kept at a time; each takes some 45 bytes a partition."""


class _View:
    """The topics as clients of one listener see them in one version; valid for one set of living replicas."""

    def __init__(self, image: MetadataImage) -> None:
        self._brokers: object = image.brokers
        self._failed: frozenset[Replica] = image.failed_replicas
        self.topics: dict[TopicName, tuple[TopicImage, Encoded]] = {}

    def holds_for(self, image: MetadataImage) -> bool:
        return self._brokers is image.brokers and self._failed is image.failed_replicas


class MetadataTopics:
    """Answers from what was encoded before, as long as topic, brokers and failed replicas are the same objects."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, int], _View] = {}

    def encoded(self, topic: TopicImage, image: MetadataImage, listener: str, version: int) -> Encoded:
        """The topic for clients of `listener`, as it stands in a MetadataResponse of `version`."""
        view = self._views.get((listener, version))
        if view is None or not view.holds_for(image):
            self._views.pop((listener, version), None)
            if len(self._views) >= MAX_VIEWS:
                del self._views[next(iter(self._views))]
            view = self._views[listener, version] = _View(image)
        known = view.topics.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        if len(view.topics) > len(image.topics):  # topics were deleted
            view.topics = {name: entry for name, entry in view.topics.items() if name in image.topics}
        encoded = encode_part(describe(topic, image, listener, version), MetadataResponse, version)
        view.topics[topic.name] = topic, encoded
        return encoded


def describe(topic: TopicImage, image: MetadataImage, listener: str, version: int) -> MetadataResponseTopic:
    """The topic for clients of `listener`; partitions without a reachable leader carry an error."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(topic, partition, image, listener, version) for partition in topic.partitions],
    )


def _partition(
    topic: TopicImage, partition: PartitionImage, image: MetadataImage, listener: str, version: int
) -> MetadataResponsePartition:
    error = partition_error(image.brokers.get(partition.leader), listener)
    if error is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_ERRORS_SINCE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(image.offline_replicas(topic.name, partition)),
    )


def partition_error(leader: BrokerImage | None, listener: str) -> ErrorCode:
    """Why a client of `listener` cannot reach a partition's leader; NONE when it can."""
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if listener in leader.endpoints else ErrorCode.LISTENER_NOT_FOUND
