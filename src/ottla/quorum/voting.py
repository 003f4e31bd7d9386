"""PURE. Elections: granting votes, asking for them, counting them (KIP-595, KIP-996)."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages import vote
from ottla.quorum import checks, leading
from ottla.quorum.effects import Reply, Token
from ottla.quorum.links import Outbound
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey
from ottla.quorum.requests import partition_of, topics_of, vote_request
from ottla.quorum.roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.quorum.state import QuorumState


def handle_vote(state: QuorumState, token: Token, request: vote.VoteRequest, version: int) -> None:
    """Answer a request for a vote or a pre-vote."""
    asked: vote.PartitionData | None = partition_of(request.topics)
    refused = checks.addressing_error(state, request.cluster_id, asked)
    if refused or asked is None:
        state.emit(Reply(token, vote.VoteResponse(error_code=refused, topics=[])))
        return
    error = _error_of(state, asked)
    granted = False
    if error is ErrorCode.NONE and not _is_content(state, asked):
        if asked.replica_epoch > state.epoch:
            state.become_unattached(asked.replica_epoch)
        if checks.is_for_own_replica(state, ReplicaKey(request.voter_id, asked.voter_directory_id)):
            granted = _cast(state, asked)
        else:
            error = ErrorCode.INVALID_VOTER_KEY
    state.emit(Reply(token, _response(state, version, error, granted)))


def _error_of(state: QuorumState, asked: vote.PartitionData) -> ErrorCode:
    ahead = asked.last_offset_epoch - asked.replica_epoch
    if asked.last_offset < 0 or asked.last_offset_epoch < 0 or (ahead > 0 if asked.pre_vote else ahead >= 0):
        return ErrorCode.INVALID_REQUEST
    if not state.own.can_vote:
        return ErrorCode.INVALID_REQUEST
    return checks.voter_request_error(state, asked.replica_id, asked.replica_epoch)


def _is_content(state: QuorumState, asked: vote.PartitionData) -> bool:
    """Whether an observer has a leader that is alive: then it stays in its epoch.

    Else it answers, since a candidate may have newer voters in its log, this replica among them.
    """
    return not state.is_voter and asked.replica_epoch > state.epoch and state.now_ms < state.contact_until


def _cast(state: QuorumState, asked: vote.PartitionData) -> bool:
    candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
    complete = OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch).is_as_complete_as(state.end)
    granted = may_grant(state, candidate, complete=complete, pre_vote=asked.pre_vote)
    if granted and not asked.pre_vote and state.voted is None:
        state.vote_for(candidate)
    return granted


def may_grant(state: QuorumState, candidate: ReplicaKey, *, complete: bool, pre_vote: bool) -> bool:
    """Whether `candidate`, whose log is as `complete` as this one or not, gets this replica's vote in this epoch."""
    part = state.part
    if pre_vote:
        if isinstance(part, Follower):
            return complete and (not part.has_fetched or state.links.failures(part.leader) > 1)
        return complete and isinstance(part, Unattached | Prospective | Candidate | Resigned)
    if not isinstance(part, Unattached | Prospective):
        return False
    if state.voted is not None:
        voted = state.voted
        return voted.node_id == candidate.node_id and (
            not voted.directory_id.int or voted.directory_id == candidate.directory_id
        )
    return complete and state.leader_id is None


def _response(state: QuorumState, version: int, error: ErrorCode, granted: bool) -> vote.VoteResponse:
    return vote.VoteResponse(
        topics=topics_of(
            vote.ResponseTopicData,
            vote.ResponsePartitionData(
                partition_index=0,
                error_code=error,
                leader_id=state.sent_leader_id,
                leader_epoch=state.epoch,
                vote_granted=granted,
            ),
        ),
        node_endpoints=leading.leader_endpoints(state, vote.NodeEndpoint, wanted=version >= 1),
    )


def poll_nominee(state: QuorumState, nominee: Prospective | Candidate) -> None:
    """Ask the voters that have not answered; go on when the election is decided or its time is over."""
    if isinstance(nominee, Prospective) and (nominee.tally.is_won and not state.is_shutting_down):
        _stand(state, nominee)
    elif isinstance(nominee, Candidate) and nominee.tally.is_won:
        if state.is_synced:
            leading.become_leader(state, nominee)
    elif isinstance(nominee, Prospective) and (nominee.tally.is_lost or state.now_ms >= nominee.deadline):
        _give_up(state, nominee)
    elif state.now_ms >= nominee.deadline and not state.is_shutting_down:
        state.become_prospective()
    else:
        if state.now_ms < nominee.deadline:  # it has passed for one that shuts down
            state.wake(nominee.deadline)
        _ask(state, nominee)


def _stand(state: QuorumState, prospective: Prospective) -> None:
    """Begin an election, if there is an epoch for it."""
    if state.epoch < checks.MAX_EPOCH - 2:
        state.become_candidate()
        return
    state.warn(
        f"no leader can be elected: epoch {state.epoch} is the last one. A client that reaches the controllers' "
        "listener can use the epochs up: protect it by authorizer.class.name"
    )
    _give_up(state, prospective)


def _ask(state: QuorumState, nominee: Prospective | Candidate) -> None:
    """Send the requests, once the log is synced: a vote must not rest on records that a power cut takes back."""
    if not state.is_synced or nominee.tally.is_lost:
        return
    for key in nominee.tally.missing:
        address = checks.known_address(state, key.node_id)
        if address is not None:
            state.send(address, vote_request(state, key, pre_vote=isinstance(nominee, Prospective)))


def _give_up(state: QuorumState, prospective: Prospective) -> None:
    if prospective.leader is not None:
        state.become_follower(state.epoch, prospective.leader)
    else:
        state.become_unattached(state.epoch, state.leader_id)


def on_vote(state: QuorumState, outbound: Outbound, response: vote.VoteResponse) -> bool:
    """Count a voter's answer; returns whether it was one."""
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return on_unsupported(state)
    found: vote.ResponsePartitionData | None = partition_of(response.topics)
    if response.error_code or found is None:
        return leading.report(state, outbound, response.error_code)
    hint = checks.hint_of(state, found.leader_id, found.leader_epoch, response.node_endpoints)
    settled = checks.settle(state, found.error_code, hint)
    if settled is not None:
        return settled
    if isinstance(state.part, Prospective | Candidate) and outbound.to.node_id is not None:
        state.part.tally.count(outbound.to.node_id, found.vote_granted)
    return True


def on_unsupported(state: QuorumState) -> bool:
    """A voter without pre-votes: an election decides, as before KIP-996."""
    if isinstance(state.part, Prospective) and not state.is_shutting_down:
        _stand(state, state.part)
        return True
    return False
