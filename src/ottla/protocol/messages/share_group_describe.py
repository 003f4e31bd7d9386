"""ShareGroupDescribe: state, epochs and members of share groups (KIP-932). Version 0 was never stable."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]


@struct
class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[Member]
    authorized_operations: Int32 = -0x8000_0000


@struct
class Member(Struct):
    member_id: str
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: Assignment


@struct
class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


@struct
class TopicPartitions(Struct):
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]
