"""PURE. What the quorum's state machine wants done. The host carries effects out in the order of the list.

An input is given only after all effects of the input before have been carried out: sent requests are on their way
(not answered), appended batches are in the log (not synced), and what has to be durable is durable:

| durable before the next effect | why |
|---|---|
| `SaveElection` | a vote is never cast twice in an epoch |
| `Truncate` | what was truncated must not come back under what is appended over it |
| `InstallSnapshot` | the log behind the snapshot is given up for it |

Appended batches are synced in the host's own time; it reports that by `QuorumMachine.synced`. A host that cannot carry
out an effect on its files ends the machine: its state is ahead of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from ottla.protocol.schema import Message
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import OffsetAndEpoch, VoterSet

Token: TypeAlias = Hashable
"""The host's name for a request that waits for its response."""


class Role(Enum):
    """A replica's part in its epoch. Observers are unattached or followers."""

    UNATTACHED = "unattached"
    """Knows no leader; may have cast its vote."""
    PROSPECTIVE = "prospective"
    """Asks whether an election would be won (pre-vote)."""
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """Was the leader, or may have been before it was restarted, and waits for the next one."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The address of a request; `node_id` is None for a bootstrap server, whose id is not known."""

    node_id: int | None
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SaveElection:
    """Replace the content of `quorum-state`. Durable before the next effect."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request in the newest version that both sides know.

    Ends in exactly one `QuorumMachine.answered(id, ...)` or `failed(id, ...)`: failed after `timeout_ms`, when the
    connection breaks, and with `unsupported=True` where the peer has no version that carries the request.
    """

    id: int
    to: Destination
    request: Message
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request that was given to `QuorumMachine.handle`."""

    token: Token
    response: Message


@dataclass(frozen=True, slots=True)
class ReplyRecords:
    """Answer a Fetch: `response` with the log's whole batches from `offset` on as its only partition's `records`.

    `max_bytes` limits them, except that the first batch is whole. Unsynced records are sent, too.
    """

    token: Token
    response: FetchResponse
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplySnapshot:
    """Answer a FetchSnapshot: `response` with the snapshot's bytes from `position` on as its `unaligned_records`."""

    token: Token
    response: FetchSnapshotResponse
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """`value` in the version of `ottla.quorum.control_records`."""

    type: int
    value: Message


@dataclass(frozen=True, slots=True)
class Append:
    """Append one batch of the leader's: records, or control records (see `control_records.encode_control_batch`)."""

    base_offset: int
    epoch: int
    records: Sequence[bytes] | Sequence[ControlRecord]


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append whole batches from the leader as they are. Their offsets follow the log's end; checksums are right."""

    base_offset: int
    batches: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Truncate:
    """Remove all records from `offset` on. Durable before the next effect."""

    offset: int


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Write a piece of a snapshot that is being fetched. At position 0 it replaces what was fetched of it before."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The fetched snapshot is complete: check it, make it durable, then empty the log, which begins after it.

    A snapshot that turns out damaged is deleted, the log left alone, and reported by
    `QuorumMachine.snapshot_failed` as the next input. All that was delivered from the log before is void.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Delete what was fetched of a snapshot: it will not be completed."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Advance:
    """All records before `high_watermark` are committed. Never goes back while the process runs."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """This replica's role, the epoch or its leader changed.

    `epoch_start` is, on a leader, the offset of the control record that opens its epoch: all records of former epochs
    are committed once the high watermark is greater. Else None.
    """

    role: Role
    epoch: int
    leader_id: int | None
    leader: Destination | None
    epoch_start: int | None = None


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The newest voters in the log, committed or not: they count from their append on."""

    voters: VoterSet
    kraft_version: int


@dataclass(frozen=True, slots=True)
class Warn:
    """Something an operator should know, to be logged; the same text may come again and again."""

    text: str


Effect: TypeAlias = (
    SaveElection
    | Send
    | Reply
    | ReplyRecords
    | ReplySnapshot
    | Append
    | AppendFetched
    | Truncate
    | WriteSnapshot
    | InstallSnapshot
    | DropSnapshot
    | Advance
    | RoleChanged
    | VotersChanged
    | Warn
)
