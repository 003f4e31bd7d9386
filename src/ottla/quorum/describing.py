"""PURE. DescribeQuorum: the leader's view of voters and observers (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages import describe_quorum
from ottla.protocol.primitives import NULL_UUID
from ottla.quorum.effects import Reply, Token
from ottla.quorum.leader_state import LeaderState, Progress
from ottla.quorum.replicas import ReplicaKey
from ottla.quorum.requests import partition_of, topics_of
from ottla.quorum.state import QuorumState


def handle_describe(
    state: QuorumState, token: Token, request: describe_quorum.DescribeQuorumRequest, version: int
) -> None:
    """Answer with the state of all replicas; only the leader knows it."""
    if partition_of(request.topics) is None:
        state.emit(Reply(token, _unknown_partitions(request)))
        return
    if not isinstance(state.part, LeaderState):
        topics = topics_of(describe_quorum.ResponseTopicData, _error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        state.emit(Reply(token, describe_quorum.DescribeQuorumResponse(topics=topics)))
        return
    state.emit(Reply(token, _description(state, state.part, version)))


def _unknown_partitions(request: describe_quorum.DescribeQuorumRequest) -> describe_quorum.DescribeQuorumResponse:
    return describe_quorum.DescribeQuorumResponse(
        topics=[
            describe_quorum.ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _error(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _error(index: int, error: ErrorCode) -> describe_quorum.ResponsePartitionData:
    return describe_quorum.ResponsePartitionData(
        partition_index=index,
        error_code=error,
        error_message=error.name,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


def _description(state: QuorumState, leader: LeaderState, version: int) -> describe_quorum.DescribeQuorumResponse:
    leader.forget_idle_observers(state.now_ms)
    voters = [
        _own(state, leader)
        if voter.is_replica(state.own.key)
        else _replica(state, voter.key, leader.progress[voter.key.node_id])
        for voter in leader.voters
    ]
    observers = [_replica(state, key, progress) for key, progress in leader.observers.items()]
    if not leader.voters.includes(state.own.key):
        observers.append(_own(state, leader))
    if version < 2:  # which has no place for it, nor for nodes
        for replica in (*voters, *observers):
            replica.replica_directory_id = NULL_UUID
    partition = describe_quorum.ResponsePartitionData(
        partition_index=0,
        leader_id=state.own_id,
        leader_epoch=state.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=voters,
        observers=observers,
    )
    return describe_quorum.DescribeQuorumResponse(
        topics=topics_of(describe_quorum.ResponseTopicData, partition),
        nodes=_nodes(leader) if version >= 2 else [],
    )


def _nodes(leader: LeaderState) -> list[describe_quorum.Node]:
    return [
        describe_quorum.Node(
            node_id=voter.key.node_id,
            listeners=[
                describe_quorum.Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints
            ],
        )
        for voter in leader.voters
    ]


def _own(state: QuorumState, leader: LeaderState) -> describe_quorum.ReplicaState:
    return describe_quorum.ReplicaState(
        replica_id=state.own_id,
        replica_directory_id=leader.own.key.directory_id,
        log_end_offset=state.end.offset,
        last_fetch_timestamp=state.wall_ms,
        last_caught_up_timestamp=state.wall_ms,
    )


def _replica(state: QuorumState, key: ReplicaKey, progress: Progress) -> describe_quorum.ReplicaState:
    return describe_quorum.ReplicaState(
        replica_id=key.node_id,
        replica_directory_id=key.directory_id,
        log_end_offset=-1 if progress.end is None else progress.end,
        last_fetch_timestamp=_wall(state, progress.fetched_at),
        last_caught_up_timestamp=_wall(state, progress.caught_up_at),
    )


def _wall(state: QuorumState, monotonic_ms: int | None) -> int:
    """A time of the monotonic clock as milliseconds since the epoch; -1 for none."""
    return -1 if monotonic_ms is None else state.wall_ms - (state.now_ms - monotonic_ms)
