"""EndQuorumEpoch: a leader of the metadata quorum resigns (KIP-595).

1  flexible; candidates with their directory ids in place of successors, the leader's addresses (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.END_QUORUM_EPOCH, versions=(0, 1), flexible=1)
class EndQuorumEpochRequest(Message):
    cluster_id: str | None
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint] = since(1, default_factory=list, ignorable=True)


@struct
class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    """The first successor (version 0) or candidate (version 1) begins an election at once, the next ones later."""

    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = since(until=0, default_factory=list, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = since(1, default_factory=list, ignorable=True)


@struct
class ReplicaInfo(Struct):
    candidate_id: Int32
    candidate_directory_id: UUID


@struct
class LeaderEndpoint(Struct):
    name: str
    host: str
    port: UInt16


@message(ApiKey.END_QUORUM_EPOCH, versions=(0, 1), flexible=1)
class EndQuorumEpochResponse(Message):
    error_code: Int16 = 0
    topics: list[ResponseTopicData]
    node_endpoints: list[NodeEndpoint] = since(1, tag=0, default_factory=list)


@struct
class ResponseTopicData(Struct):
    topic_name: str
    partitions: list[ResponsePartitionData]


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32
    leader_epoch: Int32


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16
