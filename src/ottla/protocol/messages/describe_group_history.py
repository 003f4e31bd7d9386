"""DescribeGroupHistory: why a group has rebalanced, and what moved. Ottla's own, not Kafka's.

ApiVersions names it only to clients that call themselves `ottla`: see `ottla.server.handlers.api_versions`.
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DESCRIBE_GROUP_HISTORY, versions=(0, 0), flexible=0)
class DescribeGroupHistoryRequest(Message):
    group_ids: list[str]


@message(ApiKey.DESCRIBE_GROUP_HISTORY, versions=(0, 0), flexible=0)
class DescribeGroupHistoryResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[GroupHistory]


@struct
class GroupHistory(Struct):
    """`rebalances` since the broker coordinates the group, the oldest first; only so many are kept."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str
    rebalances: list[Rebalance]


@struct
class Rebalance(Struct):
    """`moved_partitions` counts all that changed hands, `moves` names the largest of the moves."""

    timestamp_ms: Int64
    epoch: Int32
    protocol: str
    assignor: str
    reasons: list[str]
    member_count: Int32
    moved_partitions: Int32
    moves: list[Move]


@struct
class Move(Struct):
    """Partitions that went from one member to another; null for a missing previous or next owner."""

    topic: str
    partitions: list[Int32]
    source_member_id: str | None = None
    target_member_id: str | None = None
