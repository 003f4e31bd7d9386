"""ReadShareGroupState: a leader loads the state of share partitions from their coordinator (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest(Message):
    group_id: str
    topics: list[ReadStateData]


@struct
class ReadStateData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


@message(ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse(Message):
    results: list[ReadStateResult]


@struct
class ReadStateResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@struct
class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


@struct
class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16
