"""Fetch: read record batches from partitions, as a consumer or as a follower.

Partitions are served in the order asked for. Since version 7 a session remembers them, so that a request only names
what changed (KIP-227).

     4  isolation level, aborted transactions      13  topic ids instead of names (KIP-516)
     5  log start offsets                          14  OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405)
     7  fetch sessions (KIP-227)                   15  a follower's epoch beside its id (KIP-903)
     9  current leader epoch (KIP-320)             16  the new leader's address in the answer (KIP-951)
    10  zstd may be returned (KIP-110)             17  a follower's directory id (KIP-853)
    11  rack; preferred replica (KIP-392)          18  the high watermark a follower knows (KIP-1166)
    12  flexible; diverging epochs (KIP-595)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int8, Int16, Int32, Int64, Records
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.FETCH, versions=(4, 18), flexible=12)
class FetchRequest(Message):
    cluster_id: str | None = since(12, tag=0, default=None, ignorable=True)
    replica_id: Int32 = since(until=14, default=-1)
    replica_state: ReplicaState | None = since(15, tag=1, default=None, optional=True)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFF_FFFF
    isolation_level: Int8 = 0
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, default_factory=list)
    rack_id: str = since(11, default="", ignorable=True)


@struct
class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@struct
class FetchTopic(Struct):
    topic: str = since(until=12, default="", ignorable=True)
    topic_id: UUID = since(13, default=NULL_UUID, ignorable=True)
    partitions: list[FetchPartition]


@struct
class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: UUID = since(17, tag=0, default=NULL_UUID, ignorable=True)
    high_watermark: Int64 = since(18, tag=1, default=0x7FFF_FFFF_FFFF_FFFF, ignorable=True)


@struct
class ForgottenTopic(Struct):
    topic: str = since(until=12, default="", ignorable=True)
    topic_id: UUID = since(13, default=NULL_UUID, ignorable=True)
    partitions: list[Int32]


@message(ApiKey.FETCH, versions=(4, 18), flexible=12)
class FetchResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = since(16, tag=0, default_factory=list)


@struct
class FetchableTopicResponse(Struct):
    topic: str = since(until=12, default="", ignorable=True)
    topic_id: UUID = since(13, default=NULL_UUID, ignorable=True)
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = since(12, tag=0, default=None, optional=True)
    current_leader: LeaderIdAndEpoch | None = since(12, tag=1, default=None, optional=True)
    snapshot_id: SnapshotId | None = since(12, tag=2, default=None, optional=True)
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records | None


@struct
class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
