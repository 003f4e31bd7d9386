"""DescribeQuorum: leader, voters and observers of the metadata quorum (KIP-595).

1  when replicas last fetched and were last caught up (KIP-836)
2  directory ids, nodes and their listeners, error messages (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Message):
    topics: list[TopicData]


@struct
class TopicData(Struct):
    topic_name: str
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32


@message(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0)
class DescribeQuorumResponse(Message):
    error_code: Int16 = 0
    error_message: str | None = since(2, default="", ignorable=True)
    topics: list[ResponseTopicData]
    nodes: list[Node] = since(2, default_factory=list)


@struct
class ResponseTopicData(Struct):
    topic_name: str
    partitions: list[ResponsePartitionData]


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = since(2, default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: UUID = since(2, default=NULL_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


@struct
class Node(Struct):
    node_id: Int32
    listeners: list[Listener]


@struct
class Listener(Struct):
    name: str
    host: str
    port: UInt16
