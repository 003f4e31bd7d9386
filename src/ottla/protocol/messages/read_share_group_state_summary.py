"""ReadShareGroupStateSummary: start offsets of share partitions, without the delivery states (KIP-932).

1  how many records from the start on are done with (KIP-1226)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest(Message):
    group_id: str
    topics: list[ReadStateSummaryData]


@struct
class ReadStateSummaryData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


@message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse(Message):
    results: list[ReadStateSummaryResult]


@struct
class ReadStateSummaryResult(Struct):
    topic_id: UUID
    partitions: list[PartitionResult]


@struct
class PartitionResult(Struct):
    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)
