"""OffsetForLeaderEpoch: where a leader epoch ended, so that a follower or consumer can tell where logs diverge.

KIP-101 and KIP-279 for followers, KIP-320 for consumers.

    2  current leader epoch, for fencing
    3  replica id; the default -2 is a consumer that may look past the high watermark
    4  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message):
    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


@struct
class OffsetForLeaderTopic(Struct):
    topic: str
    partitions: list[OffsetForLeaderPartition]


@struct
class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: str
    partitions: list[EpochEndOffset]


@struct
class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
