"""DeleteShareGroupState: a group coordinator has state of share partitions removed (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest(Message):
    group_id: str
    topics: list[DeleteStateData]


@struct
class DeleteStateData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition: Int32


@message(ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse(Message):
    results: list[DeleteStateResult]


@struct
class DeleteStateResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@struct
class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None
