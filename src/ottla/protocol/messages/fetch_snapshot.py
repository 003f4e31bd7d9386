"""FetchSnapshot: read a piece of a snapshot of the metadata log (KIP-630).

0  flexible
1  the reader's directory id, the leader's address in the answer (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Int64, Records, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.FETCH_SNAPSHOT, versions=(0, 1), flexible=0)
class FetchSnapshotRequest(Message):
    cluster_id: str | None = since(tag=0, default=None)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFF_FFFF
    topics: list[TopicSnapshot]


@struct
class TopicSnapshot(Struct):
    name: str
    partitions: list[PartitionSnapshot]


@struct
class PartitionSnapshot(Struct):
    """`position` is that of the first byte wanted."""

    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: UUID = since(1, tag=0, default=NULL_UUID, ignorable=True)


@struct
class SnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


@message(ApiKey.FETCH_SNAPSHOT, versions=(0, 1), flexible=0)
class FetchSnapshotResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = since(1, tag=0, default_factory=list)


@struct
class ResponseTopicSnapshot(Struct):
    name: str
    partitions: list[ResponsePartitionSnapshot]


@struct
class ResponsePartitionSnapshot(Struct):
    """`size` is that of the whole snapshot; the records may begin and end within a batch."""

    index: Int32
    error_code: Int16 = 0
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch | None = since(tag=0, default=None, optional=True)
    size: Int64
    position: Int64
    unaligned_records: Records


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16
