"""ShareAcknowledge: accept, release, reject or renew acquired records of a share group (KIP-932).

Version 0 was never stable.

2  renewal of acquisition locks (KIP-1222)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest(Message):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: bool = since(2, default=False)
    topics: list[AcknowledgeTopic]


@struct
class AcknowledgeTopic(Struct):
    topic_id: UUID
    partitions: list[AcknowledgePartition]


@struct
class AcknowledgePartition(Struct):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@message(ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = since(2, default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
