"""DescribeLogDirs: log directories of a broker, and the size and lag of the replicas in them (KIP-113).

2  flexible
3  an error for the whole answer
4  size of the volume and what is left of it (KIP-827)
5  whether new replicas stay out of the directory (KIP-1066)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None


@struct
class DescribableLogDirTopic(Struct):
    topic: str
    partitions: list[Int32]


@message(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible=2)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


@struct
class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: bool = since(5, default=False, ignorable=True)


@struct
class DescribeLogDirsTopic(Struct):
    name: str
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool
