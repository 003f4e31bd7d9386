"""ShareGroupHeartbeat: join, stay in and leave a share group (KIP-932). Version 0 was never stable."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


@struct
class TopicPartitions(Struct):
    topic_id: UUID
    partitions: list[Int32]
