"""OffsetFetch: the committed positions of a group, since version 8 of several groups.

 2  null asks for all topics; an error for the whole answer
 5  leader epochs (KIP-320)
 6  flexible
 7  a reader may insist on stable offsets, with no transaction pending (KIP-447)
 8  several groups at once (KIP-709)
 9  member id and epoch of the new group protocol (KIP-848)
10  topic ids instead of names (KIP-848)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6)
class OffsetFetchRequest(Message):
    group_id: str = since(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = since(until=7, default_factory=list, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = since(8, default_factory=list)
    require_stable: bool = since(7, default=False)


@struct
class OffsetFetchRequestTopic(Struct):
    name: str
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: str
    member_id: str | None = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@struct
class OffsetFetchRequestTopics(Struct):
    name: str = since(until=9, default="", ignorable=True)
    topic_id: UUID = since(10, default=NULL_UUID, ignorable=True)
    partition_indexes: list[Int32]


@message(ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6)
class OffsetFetchResponse(Message):
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = since(until=7, default_factory=list)
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = since(8, default_factory=list)


@struct
class OffsetFetchResponseTopic(Struct):
    name: str
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
    metadata: str | None
    error_code: Int16 = 0


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics(Struct):
    name: str = since(until=9, default="", ignorable=True)
    topic_id: UUID = since(10, default=NULL_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: str | None
    error_code: Int16 = 0
