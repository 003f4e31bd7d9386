"""Vote: ask a voter of the metadata quorum for its vote (KIP-595).

0  flexible
1  the voter asked, directory ids, the leader's address in the answer (KIP-853)
2  pre-votes, which nobody stores (KIP-996)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.VOTE, versions=(0, 2), flexible=0)
class VoteRequest(Message):
    """`voter_id` is the receiver, the other fields describe the replica that would lead."""

    cluster_id: str | None
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[TopicData]


@struct
class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    """`last_offset` is the end of the sender's log, `last_offset_epoch` the epoch of the record before."""

    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: UUID = since(1, default=NULL_UUID, ignorable=True)
    voter_directory_id: UUID = since(1, default=NULL_UUID, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: bool = since(2, default=False)


@message(ApiKey.VOTE, versions=(0, 2), flexible=0)
class VoteResponse(Message):
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
    vote_granted: bool


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16
