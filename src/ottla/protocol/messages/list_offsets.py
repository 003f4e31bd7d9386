"""ListOffsets: the offset at a timestamp, or at one of the special places that negative timestamps name.

-1 the end, -2 the start, -3 the record with the largest timestamp, -4 the start of what is held locally, -5 the end
of what is in tiered storage, -6 the first that is not there yet.

     2  isolation level                            7  timestamp -3 (KIP-734)
     4  leader epochs (KIP-320)                     8  timestamp -4 (KIP-405)
     5  OFFSET_NOT_AVAILABLE                        9  timestamp -5 (KIP-1005)
     6  flexible                                   10  a time limit, for offsets in tiered storage (KIP-1075)
                                               11  timestamp -6 (KIP-1023)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Message):
    replica_id: Int32
    isolation_level: Int8 = since(2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


@struct
class ListOffsetsTopic(Struct):
    name: str
    partitions: list[ListOffsetsPartition]


@struct
class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64


@message(ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6)
class ListOffsetsResponse(Message):
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


@struct
class ListOffsetsTopicResponse(Struct):
    name: str
    partitions: list[ListOffsetsPartitionResponse]


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)
