"""OffsetCommit: store the positions of a group.

Generation -1 with an empty member id commits from outside the group. The field for the generation carries the member
epoch in groups of the new protocol.

     2  retention time (gone with 5)
     6  leader epoch of the committed offset (KIP-320)
     7  static members (KIP-345)
     8  flexible
     9  usable with the new group protocol: STALE_MEMBER_EPOCH (KIP-848)
    10  topic ids instead of names (KIP-848)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8)
class OffsetCommitRequest(Message):
    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str
    group_instance_id: str | None = since(7, default=None)
    retention_time_ms: Int64 = since(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitRequestTopic(Struct):
    name: str = since(until=9, default="", ignorable=True)
    topic_id: UUID = since(10, default=NULL_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    committed_metadata: str | None


@message(ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8)
class OffsetCommitResponse(Message):
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetCommitResponseTopic(Struct):
    name: str = since(until=9, default="", ignorable=True)
    topic_id: UUID = since(10, default=NULL_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = 0
