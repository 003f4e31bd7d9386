"""BeginQuorumEpoch: announce a newly elected leader to the voters (KIP-595).

1  flexible; the voter addressed and its directory id, the leader's addresses (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.BEGIN_QUORUM_EPOCH, versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest(Message):
    cluster_id: str | None
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint] = since(1, default_factory=list, ignorable=True)


@struct
class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32
    voter_directory_id: UUID = since(1, default=NULL_UUID, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


@struct
class LeaderEndpoint(Struct):
    name: str
    host: str
    port: UInt16


@message(ApiKey.BEGIN_QUORUM_EPOCH, versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse(Message):
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
