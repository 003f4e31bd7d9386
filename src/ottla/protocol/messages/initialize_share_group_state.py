"""InitializeShareGroupState: a group coordinator has state of share partitions created (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest(Message):
    group_id: str
    topics: list[InitializeStateData]


@struct
class InitializeStateData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@message(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse(Message):
    results: list[InitializeStateResult]


@struct
class InitializeStateResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@struct
class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None
