"""PURE. The leader: announces itself, serves fetches, moves the high watermark, resigns (KIP-595)."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from ottla.errors import ErrorCode
from ottla.protocol.messages import begin_quorum_epoch, end_quorum_epoch
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.protocol.messages.control_records import Voter as VoterId
from ottla.quorum import checks
from ottla.quorum.control_records import LEADER_CHANGE
from ottla.quorum.effects import ControlRecord
from ottla.quorum.leader_state import LeaderState
from ottla.quorum.links import Outbound
from ottla.quorum.requests import begin_request, end_request, partition_of
from ottla.quorum.roles import Candidate, Resigned
from ottla.quorum.state import QuorumState
from ottla.quorum.voter_history import IN_BOOTSTRAP, kraft_version_record, voters_record

E_co = TypeVar("E_co", covariant=True)
STAY_MS: Final = 5_000
"""How long a leader that is to stop waits for the commit of its own removal."""


class _EndpointClass(Protocol[E_co]):
    def __call__(self, *, node_id: int, host: str, port: int) -> E_co: ...


def become_leader(state: QuorumState, candidate: Candidate) -> None:
    """Lead, and open the epoch with a control record: with its commit, all records of earlier epochs are committed."""
    voters = state.history.voters
    timeout_ms = state.config.fetch_timeout_ms
    check_quorum_ms = timeout_ms * 3 // 2
    leader = LeaderState(
        own=state.own_voter,
        epoch_start=state.end.offset,
        check_quorum_ms=check_quorum_ms,
        check_quorum_at=state.now_ms + check_quorum_ms,
        announce_ms=timeout_ms // 2,
        announce_at=state.now_ms,
        voters=voters,
        own_end=state.synced_end,
    )
    if not state.history.kraft_version:
        leader.reported = voters.with_voter(state.own_voter)
    state.become_leader(leader)
    change = LeaderChangeMessage(
        version=0,
        leader_id=state.own_id,
        voters=[VoterId(voter_id=voter.key.node_id) for voter in voters],
        granting_voters=[VoterId(voter_id=node_id) for node_id in candidate.tally.granting],
    )
    append_control(state, leader, [ControlRecord(LEADER_CHANGE, change), *_voters_at_start(state)])


def _voters_at_start(state: QuorumState) -> list[ControlRecord]:
    """Voters that only the bootstrap checkpoint has, or that lack this leader's present addresses, are written anew."""
    history = state.history
    own = history.voters.get(state.own_id)
    if not history.kraft_version or not state.is_voter or (history.offset != IN_BOOTSTRAP and own == state.own_voter):
        return []
    return [kraft_version_record(history.kraft_version), voters_record(history.voters.with_voter(state.own_voter))]


def append_control(state: QuorumState, leader: LeaderState, records: list[ControlRecord]) -> int:
    """Append control records; new voters count at once. Returns the offset of the last record."""
    state.append_control(records)
    if leader.voters != state.history.voters:
        leader.set_voters(state.history.voters)
    return state.end.offset - 1


def advance(state: QuorumState, leader: LeaderState) -> None:
    """Move the high watermark if a majority of the voters has more; of this log counts only what is synced."""
    leader.own_end = state.synced_end
    if leader.advance() and leader.high_watermark is not None:
        leader.has_advanced = True
        state.advance(leader.high_watermark)


def poll_leader(state: QuorumState, leader: LeaderState) -> None:
    """Announce the leader to voters that do not fetch, and resign when a majority does not."""
    if leader.needs_others and state.now_ms >= leader.check_quorum_at:
        state.warn(
            f"no majority of the voters {sorted(leader.voters.ids)} has fetched for {leader.check_quorum_ms} ms: "
            f"this leader of epoch {state.epoch} resigns"
        )
        leader.should_resign = True
    if leader.should_resign or (state.is_shutting_down and not _leads_on(state, leader)):
        state.become_resigned(leader.successors())
        return
    if leader.needs_others:
        state.wake(leader.check_quorum_at)
    if state.now_ms >= leader.announce_at:
        leader.announce_at = state.now_ms + leader.announce_ms
        for voter in leader.unannounced(state.now_ms):
            address = state.destination_of(voter)
            if address is not None:
                state.send(address, begin_request(state, voter.key))
    if leader.progress:
        state.wake(leader.announce_at)


def may_change_voters(state: QuorumState, leader: LeaderState) -> bool:
    """Whether the newest voters are committed, so that others may follow them."""
    offset = state.history.offset
    return offset is not None and leader.high_watermark is not None and offset < leader.high_watermark


def _leads_on(state: QuorumState, leader: LeaderState) -> bool:
    """Whether a leader that is to stop leads on until its own removal is committed.

    Voters that lack the removal count this replica, and if there is only one other, it could not be elected without it.
    """
    if state.is_voter or may_change_voters(state, leader):
        return False
    if leader.stays_until is None:
        leader.stays_until = state.now_ms + STAY_MS
        state.warn(
            f"this leader was removed from the voters, and is to stop: it leads on until the voters "
            f"{sorted(leader.voters.ids)} have that, for {STAY_MS // 1000} s at most"
        )
    state.wake(leader.stays_until)
    return state.now_ms < leader.stays_until


def poll_resigned(state: QuorumState, resigned: Resigned) -> None:
    """Announce the resignation to all voters, and take part in elections again after a while."""
    if not state.is_shutting_down:
        if state.now_ms >= resigned.deadline:
            state.become_unattached(state.epoch + 1)
            return
        state.wake(resigned.deadline)
    for node_id in sorted(resigned.unacknowledged):
        address = checks.known_address(state, node_id)
        if address is not None:
            state.send(address, end_request(state, resigned.successors))


def on_begin(state: QuorumState, outbound: Outbound, response: begin_quorum_epoch.BeginQuorumEpochResponse) -> bool:
    """A voter's answer to the announcement."""
    settled = _settle(state, outbound, response)
    if settled is not None:
        return settled
    if isinstance(state.part, LeaderState) and outbound.to.node_id in state.part.progress:
        state.part.progress[outbound.to.node_id].acknowledged = True
    return True


def on_end(state: QuorumState, outbound: Outbound, response: end_quorum_epoch.EndQuorumEpochResponse) -> bool:
    """A voter's answer to the resignation."""
    settled = _settle(state, outbound, response)
    if settled is not None:
        return settled
    if isinstance(state.part, Resigned) and outbound.to.node_id is not None:
        state.part.unacknowledged.discard(outbound.to.node_id)
    return True


def _settle(
    state: QuorumState,
    outbound: Outbound,
    response: begin_quorum_epoch.BeginQuorumEpochResponse | end_quorum_epoch.EndQuorumEpochResponse,
) -> bool | None:
    """What both answers have in common; returns what `checks.settle` does."""
    found: begin_quorum_epoch.ResponsePartitionData | end_quorum_epoch.ResponsePartitionData | None
    found = partition_of(response.topics)
    if response.error_code or found is None:
        return report(state, outbound, response.error_code)
    hint = checks.hint_of(state, found.leader_id, found.leader_epoch, response.node_endpoints)
    return checks.settle(state, found.error_code, hint)


def leader_endpoints(state: QuorumState, endpoint_class: _EndpointClass[E_co], *, wanted: bool) -> list[E_co]:
    """The leader's address for a response, if it is known and the response's version has a place for it."""
    address = checks.leader_address(state)
    if not wanted or state.leader_id is None or address is None:
        return []
    return [endpoint_class(node_id=state.leader_id, host=address.host, port=address.port)]


def report(state: QuorumState, outbound: Outbound, error: int) -> bool:
    """Warn of an error that only an operator can end; returns False, the failure of the request."""
    where = f"{outbound.to.host}:{outbound.to.port}"
    if error == ErrorCode.INCONSISTENT_CLUSTER_ID:
        state.strangers.add((outbound.to.host, outbound.to.port))
        state.warn(
            f"{where} belongs to another cluster than this node, whose cluster id is {state.own.cluster_id}: "
            "check controller.quorum.bootstrap.servers, controller.quorum.voters and the directory's meta.properties"
        )
    elif error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        state.warn(f"{where} does not let this node take part in the quorum: it needs ClusterAction on the cluster")
    return False
