"""ConsumerGroupHeartbeat: join, stay in and leave a group of the new protocol (KIP-848).

One request does the work of four: it carries what the member wants and owns, the answer what it is assigned. Null
means "as before". Epoch 0 joins, -1 leaves, -2 leaves for a while as a static member.

    1  subscription by regular expression; members make their own id (KIP-1082)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = since(1, default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


@struct
class TopicPartitions(Struct):
    topic_id: UUID
    partitions: list[Int32]


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Message):
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
