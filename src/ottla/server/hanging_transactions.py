"""Aborts hanging transactions, the one kind of marker that administrators may have written (KIP-664).

A transaction hangs if it is open in a partition and no coordinator has it under way: it would never end. A marker
is written only for such a transaction, with the epochs in the partition's own state, and never to commit. In a cluster,
where a coordinator may be moving during the query, the transaction must also be older than any may become.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.cluster.image import NO_LEADER, TRANSACTION_STATE_TOPIC
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, TopicPartition
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.transactions.states import AT_REST

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordination.markers import TransactionMarker
    from ottla.coordinators.markers import LocalMarkers
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.log.producer_state import ProducerEntry
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.server.cluster_member import ClusterMember
    from ottla.slices import Slices

LIST_TRANSACTIONS_VERSION: Final = 0
NOT_UNDER_WAY: Final = frozenset(state.label for state in AT_REST) | {"Dead"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that write markers."""

    config: "BrokerConfig"
    clock: "Clock"
    metadata: "MetadataView"
    replicas: "ReplicaManager"
    markers: "LocalMarkers"
    transactions: "TransactionCoordinator"
    slices: "Slices"
    cluster: "ClusterMember | None"


async def abort_hanging(
    marker: "TransactionMarker", partitions: Sequence[TopicPartition], parts: Parts
) -> Mapping[TopicPartition, ErrorCode]:
    """Abort the producer's transaction in each partition where it hangs.

    CLUSTER_AUTHORIZATION_FAILED: the request was to commit it. INVALID_TXN_STATE: it is not open there, or a
    coordinator has it under way. INVALID_PRODUCER_EPOCH: it is of another epoch. COORDINATOR_NOT_AVAILABLE: a
    coordinator that might have it cannot be asked.
    """
    if marker.committed:
        return dict.fromkeys(partitions, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    outcomes: dict[TopicPartition, ErrorCode] = {}
    open_there: dict[TopicPartition, ProducerEntry] = {}
    for partition in partitions:
        await parts.slices.pause()
        try:
            open_there[partition] = _open_transaction(marker, partition, parts)
        except OttlaError as refused:
            outcomes[partition] = refused.code
    if not open_there:
        return outcomes
    begun = {partition: producer_state.transaction_first_offset for partition, producer_state in open_there.items()}
    try:
        if await _is_under_way(marker.producer_id, parts):
            return outcomes | dict.fromkeys(open_there, ErrorCode.INVALID_TXN_STATE)
    except OttlaError:
        return outcomes | dict.fromkeys(open_there, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for partition, first_offset in begun.items():
        try:
            producer_state = _open_transaction(marker, partition, parts)
        except OttlaError as refused:
            outcomes[partition] = refused.code
            continue
        if producer_state.transaction_first_offset != first_offset:  # another one has begun since
            outcomes[partition] = ErrorCode.INVALID_TXN_STATE
            continue
        abort = marker._replace(coordinator_epoch=max(producer_state.coordinator_epoch, 0))
        outcomes |= await parts.markers.send(abort, [partition])
    return outcomes


def _open_transaction(marker: "TransactionMarker", topic_partition: TopicPartition, parts: Parts) -> "ProducerEntry":
    partition = parts.replicas.leader(topic_partition.topic, topic_partition.partition)
    found = partition.log.producer_state.producers.get(marker.producer_id)
    if found is None or found.transaction_first_offset is None:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "the producer has no open transaction there")
    age_ms = parts.clock.now_ms() - found.last_timestamp_ms
    if parts.cluster is not None and age_ms < parts.config.transaction_max_timeout_ms:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "the transaction is younger than transaction.max.timeout.ms")
    if found.epoch != marker.producer_epoch:
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, f"the open transaction is of epoch {found.epoch}")
    return found


async def _is_under_way(producer_id: int, parts: Parts) -> bool:
    """Whether any coordinator will end a transaction of this producer. Raises OttlaError if one cannot be asked."""
    leaders: set[BrokerId] = set()
    topic = parts.metadata.image.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is not None:
        leaders = {partition.leader for partition in topic.partitions}
    if NO_LEADER in leaders:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a partition of transactions' states has no leader")
    listings = await parts.transactions.list_transactions(
        states=(), producer_ids=(producer_id,), longer_than_ms=-1, id_pattern=None
    )
    if any(listing.transaction.state not in AT_REST for listing in listings):
        return True
    if parts.cluster is None:
        return False
    others = leaders - {parts.config.node_id}
    found = await asyncio.gather(*(_has_under_way(leader, producer_id, parts.cluster) for leader in others))
    return any(found)


async def _has_under_way(leader: BrokerId, producer_id: int, cluster: "ClusterMember") -> bool:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[producer_id])
    answer = await cluster.ask(leader, request, LIST_TRANSACTIONS_VERSION)
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code), f"broker {leader} cannot list its transactions")
    return any(known.transaction_state not in NOT_UNDER_WAY for known in answer.transaction_states)
