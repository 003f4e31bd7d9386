"""RemoveRaftVoter: make a voter of the metadata quorum an observer (KIP-853). Flexible. Sent, and not served."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, message


@message(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest(Message):
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: UUID


@message(ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None
