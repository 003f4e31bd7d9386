"""DeleteShareGroupOffsets: forget topics of an empty share group (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: UUID
    error_code: Int16 = 0
    error_message: str | None = None
