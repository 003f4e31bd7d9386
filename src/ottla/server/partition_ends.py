"""The ends of partitions, wherever they are led: what a share group's lag is measured against (KIP-1226)."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from ottla.cluster.image import NO_LEADER
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.server.cluster_member import ClusterMember

LIST_OFFSETS_VERSION: Final = 7
CONSUMER: Final = -1
LATEST: Final = -1


async def partition_ends(
    partitions: Collection[TopicPartition],
    metadata: "MetadataView",
    replicas: "ReplicaManager",
    cluster: "ClusterMember | None",
) -> Mapping[TopicPartition, int | ErrorCode]:
    """The high watermark of each partition, or why it cannot be had. Leaders elsewhere are asked, each once."""
    image = metadata.image
    ends: dict[TopicPartition, int | ErrorCode] = {}
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    for partition in partitions:
        found = image.partition(partition)
        if found is None:
            ends[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif found.leader == NO_LEADER:
            ends[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        elif cluster is not None and found.leader != metadata.broker_id:
            elsewhere.setdefault(found.leader, []).append(partition)
        else:
            ends[partition] = _end_here(partition, replicas)
    if cluster is not None:
        for some in await asyncio.gather(*(_ends_at(leader, led, cluster) for leader, led in elsewhere.items())):
            ends.update(some)
    return ends


def _end_here(partition: TopicPartition, replicas: "ReplicaManager") -> int | ErrorCode:
    try:
        return replicas.leader(*partition).high_watermark
    except OttlaError as error:
        return error.code


async def _ends_at(
    leader: BrokerId, partitions: Collection[TopicPartition], cluster: "ClusterMember"
) -> Mapping[TopicPartition, int | ErrorCode]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=number, timestamp=LATEST))
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
    ends: dict[TopicPartition, int | ErrorCode] = dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
    try:
        answer = await cluster.ask(leader, request, LIST_OFFSETS_VERSION)
    except OttlaError:
        return ends
    found = {
        (topic.name, part.partition_index): ErrorCode(part.error_code) if part.error_code else part.offset
        for topic in answer.topics
        for part in topic.partitions
    }
    return {partition: found.get((partition.topic, partition.partition), end) for partition, end in ends.items()}
