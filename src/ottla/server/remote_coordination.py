"""What coordinators ask of other brokers in a cluster: markers into partitions, and verification before a write.

Each part asks this broker itself where it is the one, and another one by Kafka's own requests where it is not.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.errors import BrokerUnavailable
from ottla.cluster.image import NO_LEADER
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.schema import Message
from ottla.server.peer_versions import PeerVersions

if TYPE_CHECKING:
    from ottla.coordination.markers import TransactionMarker
    from ottla.coordinators.markers import LocalMarkers
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.metadata.view import MetadataView

MARKERS_WITH_LEVEL: Final = 2
"""Version of WriteTxnMarkers that carries the `transaction.version` of a transaction (KIP-1228)."""
MARKERS: Final = 1
ADD_PARTITIONS_VERSION: Final = 5


class Peers(Protocol):
    """Other brokers, as they are asked here."""

    async def ask(self, broker_id: BrokerId, request: Message, version: int) -> Any:
        """Another broker's answer to a request of a version. Raises `BrokerUnavailable`."""
        ...


class ClusterMarkers:
    """Brings the ends of transactions to the leaders of partitions, wherever they are. A `MarkerSender`."""

    def __init__(self, local: "LocalMarkers", metadata: "MetadataView", peers: Peers) -> None:
        self._local = local
        self._metadata = metadata
        self._peers = peers
        self._versions = PeerVersions(MARKERS_WITH_LEVEL, MARKERS)

    async def send(
        self, marker: "TransactionMarker", partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Write the marker to each partition; returns when all that can be is committed."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        outcomes: dict[TopicPartition, ErrorCode] = {}
        image = self._metadata.image
        for topic_partition in partitions:
            found = image.partition(topic_partition)
            if found is None:
                outcomes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif found.leader == NO_LEADER:
                outcomes[topic_partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                by_leader.setdefault(found.leader, []).append(topic_partition)
        for some in await asyncio.gather(*(self._send_to(leader, marker, led) for leader, led in by_leader.items())):
            outcomes |= some
        return outcomes

    async def _send_to(
        self, leader: BrokerId, marker: "TransactionMarker", partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        if leader == self._metadata.broker_id:
            return await self._local.send(marker, partitions)
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.committed,
                    topics=[
                        WritableTxnMarkerTopic(name=name, partition_indexes=list(numbers))
                        for name, numbers in _by_topic(partitions).items()
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
            ]
        )
        version = self._versions.of(self._metadata.image, leader)
        outcomes = dict.fromkeys(partitions, ErrorCode.REQUEST_TIMED_OUT)
        try:
            response = await self._peers.ask(leader, request, version)
        except BrokerUnavailable:
            self._versions.unanswered(self._metadata.image, leader, version)
            return outcomes
        for result in response.markers:
            for topic in result.topics:
                for part in topic.partitions:
                    at = TopicPartition(TopicName(topic.name), PartitionId(part.partition_index))
                    outcomes[at] = ErrorCode(part.error_code)
        return outcomes


class ClusterTransactions:
    """The transaction coordinator of an id, wherever it is, as it is needed before a partition is written to."""

    def __init__(self, local: "TransactionCoordinator", metadata: "MetadataView", peers: Peers) -> None:
        self._local = local
        self._metadata = metadata
        self._peers = peers

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add the partitions to the producer's transaction, or say which of them are in it.

        Raises what the coordinator does, and `ApiError` COORDINATOR_NOT_AVAILABLE when it cannot be reached.
        """
        at = TopicPartition(self._local.topic.name, self._local.partition_for(transactional_id))
        found = self._metadata.image.partition(at)
        if found is None or found.leader == self._metadata.broker_id:
            return await self._local.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=verify_only
            )
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    verify_only=verify_only,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=list(numbers))
                        for name, numbers in _by_topic(partitions).items()
                    ],
                )
            ]
        )
        try:
            response = await self._peers.ask(found.leader, request, ADD_PARTITIONS_VERSION)
        except BrokerUnavailable as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), f"broker {found.leader} adds no partitions")
        return {
            TopicPartition(TopicName(topic.name), PartitionId(part.partition_index)): ErrorCode(
                part.partition_error_code
            )
            for result in response.results_by_transaction
            for topic in result.topic_results
            for part in topic.results_by_partition
        }


def _by_topic(partitions: Collection[TopicPartition]) -> Mapping[TopicName, list[PartitionId]]:
    topics: dict[TopicName, list[PartitionId]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
