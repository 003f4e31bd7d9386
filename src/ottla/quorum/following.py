"""PURE. Followers and observers: fetches, truncation where logs diverge, snapshots (KIP-595, KIP-630).

A replica that can vote fetches again only when its log is synced: its fetch offset is its word that it has all before.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import CorruptMessage, ErrorCode, UnsupportedForMessageFormat
from ottla.ids import uuid_to_text
from ottla.protocol.messages import fetch, fetch_snapshot
from ottla.protocol.schema import Message
from ottla.quorum import checks, leading
from ottla.quorum.effects import AppendFetched, Destination, DropSnapshot, InstallSnapshot, WriteSnapshot
from ottla.quorum.links import Outbound
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey
from ottla.quorum.requests import (
    add_voter_request,
    fetch_request,
    fetch_snapshot_request,
    partition_of,
    remove_voter_request,
    update_voter_request,
    vote_request,
)
from ottla.quorum.roles import FetchingSnapshot, Follower, Unattached
from ottla.quorum.state import QuorumState
from ottla.records.batch import BatchHeader, is_intact, iter_batches

LOST_AFTER: Final = 3
"""So many requests in a row that fail within the fetch timeout: nobody listens there."""


def poll_unattached(state: QuorumState, part: Unattached) -> None:
    """Look for a leader, and begin an election when none is found in time."""
    if not state.begins_elections:
        part.deadline = None
    elif part.deadline is None:
        part.deadline = state.election_timeout()
    if part.deadline is not None and not state.is_shutting_down:
        if state.now_ms >= part.deadline:
            state.become_prospective()
            return
        state.wake(part.deadline)
    _fetch_from_any(state)


def poll_follower(state: QuorumState, follower: Follower) -> None:
    """Fetch; a replica that begins elections, and has not fetched in time, begins to ask for one."""
    if state.is_shutting_down:
        return
    if state.begins_elections:
        _hurry(state, follower)
        if state.now_ms >= follower.deadline:
            state.become_prospective()
            return
        state.wake(follower.deadline)
    if state.now_ms >= follower.report_at and state.links.is_ready(follower.leader, state.now_ms):
        if _report_to_leader(state, follower):
            return
        follower.report_at = state.now_ms + state.config.fetch_timeout_ms
    if not state.links.is_idle or (state.own.can_vote and not state.is_synced):
        return
    if state.now_ms < follower.rests_until:
        state.wake(follower.rests_until)
        return
    if not state.links.is_ready(follower.leader, state.now_ms):
        state.wake(state.links.retry_at(follower.leader))
        _fetch_from_any(state)
    elif follower.snapshot is not None:
        state.send(follower.leader, fetch_snapshot_request(state, follower.snapshot))
    else:
        state.send(follower.leader, fetch_request(state))


def rest(state: QuorumState, follower: Follower) -> None:
    """Fetch nothing for a while: what has come could not be kept."""
    follower.snapshot = None
    follower.rests_until = state.now_ms + state.config.fetch_timeout_ms // 2


def _hurry(state: QuorumState, follower: Follower) -> None:
    """Do not wait for the fetch timeout when the leader's node refuses connections: its process has ended.

    A leader that only this replica cannot reach keeps the pre-votes of the others, so this is tried once in a while.
    """
    is_allowed = state.hurried_at is None or state.now_ms - state.hurried_at >= 2 * state.config.fetch_timeout_ms
    if is_allowed and state.links.failures(follower.leader) >= LOST_AFTER:
        state.hurried_at = state.now_ms
        follower.deadline = min(follower.deadline, state.short_timeout())


def _report_to_leader(state: QuorumState, follower: Follower) -> bool:
    """Send what the leader should know of this replica: its present addresses, or that it wants to be a voter."""
    history = state.history
    found = history.voters.get(state.own_id)
    has_levels = history.kraft_version > 0
    if has_levels and state.own.can_vote and found is not None and not state.is_voter:
        state.warn(
            f"the voter {state.own_id} has the directory {uuid_to_text(found.key.directory_id)}, and this node has "
            f"{uuid_to_text(state.own.key.directory_id)}: it has no vote. Give one of two nodes a node.id of its own; "
            "or, if this node's disk was replaced, remove the voter and add it again"
        )
    if state.is_voter:
        if found == state.own_voter or (not has_levels and follower.has_reported):
            return False
        request: Message = update_voter_request(state)
    elif has_levels and state.own.can_vote and state.config.auto_join:
        request = add_voter_request(state) if found is None else remove_voter_request(state, found.key)
    else:
        return False
    if not state.links.is_idle:
        return False
    follower.report_at = state.now_ms + state.config.fetch_timeout_ms
    return state.send(follower.leader, request) is not None


def _fetch_from_any(state: QuorumState) -> None:
    """Ask a node that may know the leader, one at a time."""
    if not state.links.is_idle or (state.own.can_vote and not state.is_synced):
        return
    known = bootstrap(state)
    ready = [to for to in known if state.links.is_ready(to, state.now_ms)]
    if ready:
        state.send(ready[state.random_below(len(ready))], fetch_request(state))
        return
    for to in known:
        state.wake(state.links.retry_at(to))


def bootstrap(state: QuorumState) -> list[Destination]:
    """The nodes that a replica without a leader asks for it."""
    own = {(endpoint.host, endpoint.port) for endpoint in state.own.endpoints}
    named = [Destination(None, host, port) for host, port in state.config.bootstrap_servers if (host, port) not in own]
    voters = [state.destination_of(voter) for voter in state.history.voters if voter.key.node_id != state.own_id]
    return named or [address for address in voters if address is not None]


def on_fetch(state: QuorumState, outbound: Outbound, response: fetch.FetchResponse) -> bool:
    """Take a leader's answer; returns whether it was of use."""
    found: fetch.PartitionData | None = partition_of(response.responses)
    if response.error_code or found is None:
        return leading.report(state, outbound, response.error_code)
    leader = found.current_leader or fetch.LeaderIdAndEpoch()
    hint = checks.hint_of(state, leader.leader_id, leader.leader_epoch, response.node_endpoints)
    _raise(state, hint)
    settled = checks.settle(state, found.error_code, hint)
    if settled is not None:
        return settled
    follower = state.part
    if not isinstance(follower, Follower) or outbound.log_end != state.end.offset:
        return True
    if not _take(state, follower, found):
        return False
    _has_fetched(state, follower)
    return True


def _raise(state: QuorumState, hint: checks.LeaderHint) -> None:
    """Report this replica's epoch to a leader of an earlier one, by a pre-vote: the next leader has a greater one.

    A voter does so by its elections. An observer that has voted for a replica that was not elected in the end, or was
    none at all, would wait forever.
    """
    part = state.part
    if hint.leader_id is None or hint.address is None or hint.epoch >= state.epoch or not state.own.can_vote:
        return
    if isinstance(part, Unattached) and state.now_ms >= part.raised_at + 2 * state.config.fetch_timeout_ms:
        part.raised_at = state.now_ms
        state.send(hint.address, vote_request(state, ReplicaKey(hint.leader_id), pre_vote=True))


def _has_fetched(state: QuorumState, follower: Follower) -> None:
    follower.has_fetched = True
    follower.deadline = state.contact_until = state.now_ms + state.config.fetch_timeout_ms


def _take(state: QuorumState, follower: Follower, found: fetch.PartitionData) -> bool:
    if found.diverging_epoch is not None and found.diverging_epoch.epoch >= 0:
        return _truncate(state, OffsetAndEpoch(found.diverging_epoch.end_offset, found.diverging_epoch.epoch))
    if found.snapshot_id is not None and (found.snapshot_id.epoch >= 0 or found.snapshot_id.end_offset >= 0):
        return _begin_snapshot(state, follower, OffsetAndEpoch(found.snapshot_id.end_offset, found.snapshot_id.epoch))
    if not _append(state, found.records or b""):
        return False
    if found.high_watermark >= 0:
        state.advance(min(found.high_watermark, state.end.offset))
    return True


def _committed(state: QuorumState) -> int:
    return max(state.high_watermark or 0, state.log.start_offset)


def _truncate(state: QuorumState, diverging: OffsetAndEpoch) -> bool:
    """Remove the records that the leader does not have. Returns False where these are committed: it must not be."""
    local = state.log.end_of_epoch(diverging.epoch)
    to = OffsetAndEpoch(min(local.offset, diverging.offset), local.epoch) if local.epoch == diverging.epoch else local
    if to.offset < _committed(state) or diverging.offset < 0:
        state.warn(
            f"the leader of epoch {state.epoch} lacks committed records from offset {to.offset} on: this replica does "
            "not follow it; a majority of the voters may have lost their disks"
        )
        return False
    if to.offset >= state.end.offset:
        return False
    state.truncate(to)
    return True


def _begin_snapshot(state: QuorumState, follower: Follower, snapshot: OffsetAndEpoch) -> bool:
    """Fetch a snapshot from now on, unless it lacks records that this replica knows to be committed."""
    if snapshot.epoch < 0 or snapshot.offset <= _committed(state):
        state.warn(f"the leader of epoch {state.epoch} offers the snapshot {snapshot}, which is of no use here")
        return False
    follower.snapshot = FetchingSnapshot(snapshot)
    return True


def _append(state: QuorumState, records: bytes | memoryview) -> bool:
    """Append the batches that follow this replica's log; those from the first wrong one on are left out."""
    if not len(records):
        return True
    view = memoryview(records)
    base, end, size = state.end.offset, state.end, 0
    try:
        for header in iter_batches(view, allow_partial_end=True):
            if not _follows(view, header, end, state.epoch):
                break
            if header.is_control:
                state.history.read(view, header)
            end, size = OffsetAndEpoch(header.next_offset, header.leader_epoch), header.end_position
    except (CorruptMessage, UnsupportedForMessageFormat) as error:
        state.warn(f"records from the leader of epoch {state.epoch} at offset {end.offset} are damaged: {error}")
    if not size:
        state.history.truncate(base)
        return False
    state.history.truncate(end.offset)
    state.emit(AppendFetched(base, view[:size]))
    state.end = end
    state.note_voters()
    return True


def _follows(view: memoryview, header: BatchHeader, end: OffsetAndEpoch, epoch: int) -> bool:
    """Whether a batch is whole and continues a log that ends at `end`."""
    return (
        header.base_offset == end.offset
        and header.last_offset_delta >= 0
        and end.epoch <= header.leader_epoch <= epoch
        and is_intact(view, header)
    )


def on_fetch_snapshot(state: QuorumState, outbound: Outbound, response: fetch_snapshot.FetchSnapshotResponse) -> bool:
    """Take a piece of the snapshot; returns whether it was of use."""
    found: fetch_snapshot.ResponsePartitionSnapshot | None = partition_of(response.topics)
    if response.error_code or found is None:
        return leading.report(state, outbound, response.error_code)
    leader = found.current_leader or fetch_snapshot.LeaderIdAndEpoch(leader_id=-1, leader_epoch=0)
    hint = checks.hint_of(state, leader.leader_id, leader.leader_epoch, response.node_endpoints)
    gone = found.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
    settled = checks.settle(state, ErrorCode.NONE if gone else found.error_code, hint)
    if settled is not None:
        return settled
    follower = state.part
    if not isinstance(follower, Follower) or follower.snapshot is None:
        return True
    if gone or not _take_piece(state, follower, follower.snapshot, found):
        state.emit(DropSnapshot(follower.snapshot.id))
        follower.snapshot = None
        return False
    _has_fetched(state, follower)
    return True


def _take_piece(
    state: QuorumState,
    follower: Follower,
    fetching: FetchingSnapshot,
    found: fetch_snapshot.ResponsePartitionSnapshot,
) -> bool:
    data = found.unaligned_records
    is_wanted = OffsetAndEpoch(found.snapshot_id.end_offset, found.snapshot_id.epoch) == fetching.id
    end = fetching.position + len(data)
    if not is_wanted or found.position != fetching.position or not len(data) or end > found.size:
        return False
    state.emit(WriteSnapshot(fetching.id, fetching.position, data))
    fetching.position = end
    if end == found.size:
        follower.snapshot = None
        state.installing = fetching.id
        state.emit(InstallSnapshot(fetching.id))
    return True
