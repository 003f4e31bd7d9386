"""WriteShareGroupState: a leader stores delivery states of share partitions at their coordinator (KIP-932).

1  how many records from the start on are done with (KIP-1226)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1), flexible=0)
class WriteShareGroupStateRequest(Message):
    group_id: str
    topics: list[WriteStateData]


@struct
class WriteStateData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)
    state_batches: list[StateBatch]


@struct
class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse(Message):
    results: list[WriteStateResult]


@struct
class WriteStateResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@struct
class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None
