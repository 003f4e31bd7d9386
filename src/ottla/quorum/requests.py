"""PURE. The requests that replicas send each other, each about the one partition of the metadata log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from ottla.protocol.messages import (
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.add_raft_voter import Listener as AddedListener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey
from ottla.quorum.roles import FetchingSnapshot
from ottla.quorum.state import SUPPORTED_KRAFT_VERSIONS, QuorumState

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = UUID(int=1)
P = TypeVar("P")
T_co = TypeVar("T_co", covariant=True)


class _TopicClass(Protocol[P, T_co]):
    def __call__(self, *, topic_name: str, partitions: list[P]) -> T_co: ...


def topics_of(topic_class: _TopicClass[P, T_co], partition: P) -> list[T_co]:
    """The topics of a request or response about the metadata log alone."""
    return [topic_class(topic_name=TOPIC, partitions=[partition])]


def partition_of(topics: Sequence[Any]) -> Any | None:
    """The partition of a request or response that names the metadata log alone; None for all others."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    names = {getattr(topic, field, None) for field in ("topic_name", "topic", "name", "topic_id")}
    index = next(
        getattr(partition, field)
        for field in ("partition_index", "partition", "index")
        if getattr(partition, field, None) is not None
    )
    return partition if index == 0 and names & {TOPIC, TOPIC_ID} else None


def vote_request(state: QuorumState, voter: ReplicaKey, *, pre_vote: bool) -> vote.VoteRequest:
    return vote.VoteRequest(
        cluster_id=state.own.cluster_id,
        voter_id=voter.node_id,
        topics=topics_of(
            vote.TopicData,
            vote.PartitionData(
                partition_index=0,
                replica_epoch=state.epoch,
                replica_id=state.own_id,
                replica_directory_id=state.own.key.directory_id,
                voter_directory_id=voter.directory_id,
                last_offset_epoch=state.end.epoch,
                last_offset=state.end.offset,
                pre_vote=pre_vote,
            ),
        ),
    )


def begin_request(state: QuorumState, voter: ReplicaKey) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=state.own.cluster_id,
        voter_id=voter.node_id,
        topics=topics_of(
            begin_quorum_epoch.TopicData,
            begin_quorum_epoch.PartitionData(
                partition_index=0,
                voter_directory_id=voter.directory_id,
                leader_id=state.own_id,
                leader_epoch=state.epoch,
            ),
        ),
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=name, host=host, port=port)
            for name, host, port in state.own.endpoints
        ],
    )


def end_request(state: QuorumState, successors: list[ReplicaKey]) -> end_quorum_epoch.EndQuorumEpochRequest:
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=state.own.cluster_id,
        topics=topics_of(
            end_quorum_epoch.TopicData,
            end_quorum_epoch.PartitionData(
                partition_index=0,
                leader_id=state.own_id,
                leader_epoch=state.epoch,
                preferred_successors=[key.node_id for key in successors],
                preferred_candidates=[
                    end_quorum_epoch.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
                    for key in successors
                ],
            ),
        ),
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in state.own.endpoints
        ],
    )


def fetch_request(state: QuorumState) -> fetch.FetchRequest:
    """A fetch of what follows this replica's log."""
    config = state.config
    known = state.high_watermark
    return fetch.FetchRequest(
        cluster_id=state.own.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=state.own_id),
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=0,
        max_bytes=config.fetch_max_bytes,
        topics=[
            fetch.FetchTopic(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partitions=[
                    fetch.FetchPartition(
                        partition=0,
                        current_leader_epoch=state.epoch,
                        fetch_offset=state.end.offset,
                        last_fetched_epoch=state.end.epoch,
                        partition_max_bytes=0,
                        replica_directory_id=state.own.key.directory_id,
                        high_watermark=-1 if known is None else known,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
    )


def fetch_snapshot_request(state: QuorumState, fetching: FetchingSnapshot) -> fetch_snapshot.FetchSnapshotRequest:
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=state.own.cluster_id,
        replica_id=state.own_id,
        max_bytes=state.config.snapshot_fetch_max_bytes,
        topics=[
            fetch_snapshot.TopicSnapshot(
                name=TOPIC,
                partitions=[
                    fetch_snapshot.PartitionSnapshot(
                        partition=0,
                        current_leader_epoch=state.epoch,
                        snapshot_id=snapshot_id(fetching.id),
                        position=fetching.position,
                        replica_directory_id=state.own.key.directory_id,
                    )
                ],
            )
        ],
    )


def snapshot_id(snapshot: OffsetAndEpoch) -> fetch_snapshot.SnapshotId:
    return fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)


def update_voter_request(state: QuorumState) -> update_raft_voter.UpdateRaftVoterRequest:
    """This voter's present addresses and levels of kraft.version."""
    low, high = SUPPORTED_KRAFT_VERSIONS
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=state.own.cluster_id,
        current_leader_epoch=state.epoch,
        voter_id=state.own_id,
        voter_directory_id=state.own.key.directory_id,
        listeners=[
            update_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in state.own.endpoints
        ],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )


def add_voter_request(state: QuorumState) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=state.own.cluster_id,
        timeout_ms=state.config.request_timeout_ms,
        voter_id=state.own_id,
        voter_directory_id=state.own.key.directory_id,
        listeners=[AddedListener(name=name, host=host, port=port) for name, host, port in state.own.endpoints],
        ack_when_committed=False,
    )


def remove_voter_request(state: QuorumState, voter: ReplicaKey) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=state.own.cluster_id, voter_id=voter.node_id, voter_directory_id=voter.directory_id
    )
