"""ElectLeaders: make the preferred replicas leaders (KIP-183), or whichever is alive (KIP-460).

1  election type; an error for the whole answer
2  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Message):
    election_type: Int8 = since(1, default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000


@struct
class TopicPartitions(Struct):
    topic: str
    partitions: list[Int32]


@message(ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2)
class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult]


@struct
class ReplicaElectionResult(Struct):
    topic: str
    partition_result: list[PartitionResult]


@struct
class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16 = 0
    error_message: str | None = None
