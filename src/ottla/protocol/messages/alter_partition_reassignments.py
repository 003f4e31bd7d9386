"""AlterPartitionReassignments: move partitions to other brokers; null replicas cancel a move (KIP-455).

1  whether the number of replicas may change (KIP-860)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = since(1, default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignableTopic(Struct):
    name: str
    partitions: list[ReassignablePartition]


@struct
class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = None


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = since(1, default=True, ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse]


@struct
class ReassignableTopicResponse(Struct):
    name: str
    partitions: list[ReassignablePartitionResponse]


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None
