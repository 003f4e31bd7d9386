"""UpdateRaftVoter: a voter reports its addresses and the levels of kraft.version that it supports (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), flexible=0)
class UpdateRaftVoterRequest(Message):
    """`current_leader_epoch` is -1 where the sender does not know it."""

    cluster_id: str | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: UUID
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


@struct
class Listener(Struct):
    name: str
    host: str
    port: UInt16


@struct
class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


@message(ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: CurrentLeader | None = since(tag=0, default=None, optional=True)


@struct
class CurrentLeader(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str
    port: Int32
