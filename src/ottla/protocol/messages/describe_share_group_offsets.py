"""DescribeShareGroupOffsets: start offsets of the partitions of share groups (KIP-932).

1  the lag of each partition (KIP-1226)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@struct
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[Int32]


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16 = 0
    error_message: str | None = None


@struct
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = since(1, default=-1, ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = None
