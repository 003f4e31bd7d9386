"""OffsetDelete: forget committed offsets of a group (KIP-496)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.OFFSET_DELETE, versions=(0, 0))
class OffsetDeleteRequest(Message):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


@message(ApiKey.OFFSET_DELETE, versions=(0, 0))
class OffsetDeleteResponse(Message):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic]


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str
    partitions: list[OffsetDeleteResponsePartition]


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = 0
