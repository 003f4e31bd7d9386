"""CreatePartitions: add partitions to topics (KIP-195).

2  flexible
3  THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool


@struct
class CreatePartitionsTopic(Struct):
    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


@message(ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]


@struct
class CreatePartitionsTopicResult(Struct):
    name: str
    error_code: Int16 = 0
    error_message: str | None = None
