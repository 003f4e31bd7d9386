"""ShareFetch: acquire records of a share group, and acknowledge earlier ones (KIP-932).

The response lists the acquired ranges of records. Version 0 was never stable.

2  strict record limits (KIP-1206), renewal of acquisition locks (KIP-1222)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64, Records
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.SHARE_FETCH, versions=(1, 2), flexible=0)
class ShareFetchRequest(Message):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFF_FFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = since(2, default=0, ignorable=True)
    is_renew_ack: bool = since(2, default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class FetchTopic(Struct):
    topic_id: UUID
    partitions: list[FetchPartition]


@struct
class FetchPartition(Struct):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@struct
class ForgottenTopic(Struct):
    topic_id: UUID
    partitions: list[Int32]


@message(ApiKey.SHARE_FETCH, versions=(1, 2), flexible=0)
class ShareFetchResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class ShareFetchableTopicResponse(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    acknowledge_error_code: Int16
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: list[AcquiredRecords]


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


@struct
class AcquiredRecords(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
