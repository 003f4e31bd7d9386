"""PURE. Voters' answers to BeginQuorumEpoch and EndQuorumEpoch: a leader begins, or resigns (KIP-595)."""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import begin_quorum_epoch, end_quorum_epoch
from ottla.quorum import checks, leading
from ottla.quorum.effects import Destination, Reply, Token
from ottla.quorum.replicas import ReplicaKey
from ottla.quorum.requests import partition_of, topics_of
from ottla.quorum.roles import Follower
from ottla.quorum.state import QuorumState


def handle_begin(
    state: QuorumState, token: Token, request: begin_quorum_epoch.BeginQuorumEpochRequest, version: int
) -> None:
    """Follow a leader that announces itself."""
    asked: begin_quorum_epoch.PartitionData | None = partition_of(request.topics)
    refused = _refused(state, request.cluster_id, asked)
    if refused or asked is None:
        state.emit(Reply(token, begin_quorum_epoch.BeginQuorumEpochResponse(error_code=refused, topics=[])))
        return
    error = _follow(state, asked.leader_id, asked.leader_epoch, request.leader_endpoints)
    if error is ErrorCode.NONE and not checks.is_for_own_replica(
        state, ReplicaKey(request.voter_id, asked.voter_directory_id)
    ):
        error = ErrorCode.INVALID_VOTER_KEY
    response = begin_quorum_epoch.BeginQuorumEpochResponse(
        topics=topics_of(
            begin_quorum_epoch.ResponseTopicData,
            begin_quorum_epoch.ResponsePartitionData(
                partition_index=0, error_code=error, leader_id=state.sent_leader_id, leader_epoch=state.epoch
            ),
        ),
        node_endpoints=leading.leader_endpoints(state, begin_quorum_epoch.NodeEndpoint, wanted=version >= 1),
    )
    state.emit(Reply(token, response))


def handle_end(state: QuorumState, token: Token, request: end_quorum_epoch.EndQuorumEpochRequest, version: int) -> None:
    """Take part in the election after a leader that resigns, the earlier the more complete this replica's log is."""
    asked: end_quorum_epoch.PartitionData | None = partition_of(request.topics)
    refused = _refused(state, request.cluster_id, asked)
    if refused or asked is None:
        state.emit(Reply(token, end_quorum_epoch.EndQuorumEpochResponse(error_code=refused, topics=[])))
        return
    error = _follow(state, asked.leader_id, asked.leader_epoch, request.leader_endpoints)
    if error is ErrorCode.NONE and isinstance(state.part, Follower) and state.leader_id == asked.leader_id:
        state.part.deadline = state.now_ms + _backoff_ms(state, asked)
    response = end_quorum_epoch.EndQuorumEpochResponse(
        topics=topics_of(
            end_quorum_epoch.ResponseTopicData,
            end_quorum_epoch.ResponsePartitionData(
                partition_index=0, error_code=error, leader_id=state.sent_leader_id, leader_epoch=state.epoch
            ),
        ),
        node_endpoints=leading.leader_endpoints(state, end_quorum_epoch.NodeEndpoint, wanted=version >= 1),
    )
    state.emit(Reply(token, response))


def _refused(state: QuorumState, cluster_id: str | None, asked: object) -> ErrorCode:
    error = checks.addressing_error(state, cluster_id, asked)
    return error if error or state.own.can_vote else ErrorCode.INVALID_REQUEST


def _follow(state: QuorumState, leader_id: int, epoch: int, endpoints: list[Any]) -> ErrorCode:
    """Adopt the sender as leader; returns the error of the response."""
    error = checks.voter_request_error(state, leader_id, epoch)
    if error is not ErrorCode.NONE:
        return error
    if epoch == state.epoch and state.leader_id not in (None, leader_id):
        state.warn(f"two leaders of epoch {epoch}: {state.leader_id} and {leader_id}; the second is ignored")
        return ErrorCode.INVALID_REQUEST
    checks.adopt(state, checks.LeaderHint(epoch, leader_id, _address(state, leader_id, endpoints)))
    return ErrorCode.NONE


def _address(state: QuorumState, leader_id: int, endpoints: list[Any]) -> Destination | None:
    by_name = {endpoint.name: endpoint for endpoint in endpoints if endpoint.host}
    for name in state.config.listener_names:
        if name in by_name:
            return Destination(leader_id, by_name[name].host, by_name[name].port)
    return checks.known_address(state, leader_id)


def _backoff_ms(state: QuorumState, asked: end_quorum_epoch.PartitionData) -> int:
    """None for the first candidate, for each further one twice that of the one before, the longest for others."""
    candidates = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in asked.preferred_candidates]
    candidates = candidates or [ReplicaKey(node_id) for node_id in asked.preferred_successors]
    longest = state.config.election_backoff_max_ms
    for position, key in enumerate(candidates):
        if checks.is_for_own_replica(state, key) and key.node_id >= 0:
            if not position:
                return 0
            return min(longest, (longest >> (len(candidates) - 1)) << (position - 1))
    return longest
