"""AddRaftVoter: make an observer of the metadata quorum a voter (KIP-853). Sent, and not served.

1  answer as soon as the change is written, rather than committed, if asked
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0)
class AddRaftVoterRequest(Message):
    """`timeout_ms` is the most that the leader waits for the new voter to catch up."""

    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: UUID
    listeners: list[Listener]
    ack_when_committed: bool = since(1, default=True)


@struct
class Listener(Struct):
    name: str
    host: str
    port: UInt16


@message(ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible=0)
class AddRaftVoterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None
