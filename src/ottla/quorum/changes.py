"""PURE. Changes of the voters, one at a time: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

A new set counts from its append on. Two sets that follow each other differ by one voter, and a set is changed only when
it is committed, by a leader that has committed a record of its own epoch: any majorities of the two then overlap.
"""

from __future__ import annotations

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.quorum import checks, leading
from ottla.quorum.effects import Reply, Token
from ottla.quorum.leader_state import LeaderState, PendingChange, Progress
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.state import SUPPORTED_KRAFT_VERSIONS, QuorumState
from ottla.quorum.voter_history import kraft_version_record, voters_record

_MAX_ENDPOINTS = 32
_MAX_NAME = 255


def handle_add(state: QuorumState, token: Token, request: AddRaftVoterRequest) -> None:
    """Make an observer that has caught up a voter, once it reports that it supports kraft.version."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)
    new = Voter(key, endpoints)
    error, text = _request_error(state, request.cluster_id, key)
    if not error and not _has_usable_endpoints(state, new):
        error, text = ErrorCode.INVALID_REQUEST, f"the voter has no endpoint of {state.config.listener_names[0]}"
    if not error and isinstance(state.part, LeaderState):
        error, text = _change_error(state, state.part)
        if not error and key.node_id in state.history.voters.ids:
            error, text = ErrorCode.DUPLICATE_VOTER, f"node {key.node_id} is a voter already"
    if error or not isinstance(state.part, LeaderState):
        state.emit(Reply(token, AddRaftVoterResponse(error_code=error, error_message=text)))
        return
    _begin_to_add(state, state.part, token, request, new)


def _begin_to_add(
    state: QuorumState, leader: LeaderState, token: Token, request: AddRaftVoterRequest, new: Voter
) -> None:
    address = state.destination_of(new)
    send_id = None if address is None else state.send(address, ApiVersionsRequest())
    if send_id is None:
        text = f"replica {new.key} cannot be sent a request yet; try again"
        state.emit(Reply(token, AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)))
        return
    leader.change = PendingChange(
        token,
        state.now_ms + state.config.request_timeout_ms,
        added=new.key,
        endpoints=new.endpoints,
        ack_when_committed=request.ack_when_committed,
        send_id=send_id,
    )


def on_api_versions(state: QuorumState, send_id: int, response: ApiVersionsResponse | None) -> bool:
    """The new voter's answer, None if it has not answered; the change goes on or ends."""
    leader = state.part
    change = leader.change if isinstance(leader, LeaderState) else None
    if not isinstance(leader, LeaderState) or change is None or change.added is None or change.send_id != send_id:
        return response is not None
    change.send_id = None
    if response is None or response.error_code:
        _end(state, leader, ErrorCode.REQUEST_TIMED_OUT, f"replica {change.added} does not answer at its endpoints")
        return False
    low, high = next(
        ((each.min_version, each.max_version) for each in response.supported_features if each.name == "kraft.version"),
        (0, 0),
    )
    new = Voter(change.added, change.endpoints, low, high)
    if not new.supports(state.history.kraft_version):
        text = f"replica {new.key} supports kraft.version {low} to {high}, not {state.history.kraft_version}"
        _end(state, leader, ErrorCode.INVALID_REQUEST, text)
    elif not _has_caught_up(state, leader.observers.get(change.added)):
        _end(state, leader, ErrorCode.REQUEST_TIMED_OUT, f"replica {new.key} has not caught up with the leader's log")
    else:
        _append_voters(state, leader, change, state.history.voters.with_voter(new))
    return True


def _append_voters(state: QuorumState, leader: LeaderState, change: PendingChange, voters: VoterSet) -> None:
    change.offset = leading.append_control(state, leader, [voters_record(voters)])
    if change.added is not None and not change.ack_when_committed:
        state.emit(Reply(change.token, AddRaftVoterResponse(error_message=None)))
        change.token = None


def _has_caught_up(state: QuorumState, progress: Progress | None) -> bool:
    """Whether a replica has lately had all of the leader's records: else the next commit would wait for it."""
    recently = state.now_ms - 5 * state.config.fetch_timeout_ms
    return progress is not None and progress.caught_up_at is not None and progress.caught_up_at >= recently


def handle_remove(state: QuorumState, token: Token, request: RemoveRaftVoterRequest) -> None:
    """Make a voter an observer; a leader that removes itself leads until that is committed, without its own vote."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    error, text = _request_error(state, request.cluster_id, key)
    if not error and isinstance(state.part, LeaderState):
        error, text = _change_error(state, state.part)
        found = state.history.voters.get(key.node_id)
        if not error and (found is None or found.key != key or len(state.history.voters) == 1):
            error, text = ErrorCode.VOTER_NOT_FOUND, f"replica {key} is no voter that can be removed"
    if error or not isinstance(state.part, LeaderState):
        state.emit(Reply(token, RemoveRaftVoterResponse(error_code=error, error_message=text)))
        return
    change = PendingChange(token, state.now_ms + state.config.request_timeout_ms, is_removal=True)
    state.part.change = change
    _append_voters(state, state.part, change, state.history.voters.without(key))


def handle_update(state: QuorumState, token: Token, request: UpdateRaftVoterRequest) -> None:
    """Note a voter's present endpoints and levels; at kraft.version 0 in memory alone."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    feature = request.k_raft_version_feature
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)
    voter = Voter(key, endpoints, feature.min_supported_version, feature.max_supported_version)
    error = _update_error(state, request, voter)
    if error is ErrorCode.NONE and isinstance(state.part, LeaderState):
        error = _update(state, state.part, voter)
    address = checks.leader_address(state)
    hint = CurrentLeader(
        leader_id=state.sent_leader_id,
        leader_epoch=state.epoch,
        host="" if address is None else address.host,
        port=0 if address is None else address.port,
    )
    state.emit(Reply(token, UpdateRaftVoterResponse(error_code=error, current_leader=hint)))


def _update_error(state: QuorumState, request: UpdateRaftVoterRequest, voter: Voter) -> ErrorCode:
    if not checks.is_own_cluster(state, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    error = checks.leader_request_error(state, request.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    is_sane = 0 <= voter.min_kraft_version <= voter.max_kraft_version
    has_key = voter.key.node_id >= 0 and voter.key.directory_id.int
    if not is_sane or not has_key or not _has_usable_endpoints(state, voter):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if voter.supports(state.history.kraft_version) else ErrorCode.INVALID_REQUEST


def _update(state: QuorumState, leader: LeaderState, voter: Voter) -> ErrorCode:
    if not state.history.kraft_version:
        if leader.high_watermark is None or leader.reported is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if voter.key.node_id not in leader.reported.ids:
            return ErrorCode.VOTER_NOT_FOUND
        leader.reported = leader.reported.with_voter(voter)
        return ErrorCode.NONE
    error, _ = _change_error(state, leader)
    if error:
        return error
    found = state.history.voters.get(voter.key.node_id)
    if found is None or not found.is_replica(voter.key):
        return ErrorCode.VOTER_NOT_FOUND
    leader.note_contact(voter.key, state.now_ms)
    if found != voter:
        leading.append_control(state, leader, [voters_record(state.history.voters.with_voter(voter))])
    return ErrorCode.NONE


def upgrade(state: QuorumState, leader: LeaderState, level: int, *, validate_only: bool) -> None:
    """Raise kraft.version, and write the voters, as they have reported themselves, to the log.

    Raises ApiError with INVALID_UPDATE_VERSION, and with REQUEST_TIMED_OUT while a change is being committed.
    """
    present = state.history.kraft_version
    if level == present:
        return
    if level < present or level > SUPPORTED_KRAFT_VERSIONS[1]:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version can only be raised, from {present} to at most 1"
        )
    if leader.high_watermark is None or leader.reported is None:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet; try again")
    silent = [voter.key for voter in leader.reported if not voter.key.directory_id.int or not voter.supports(level)]
    if silent:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the voters {', '.join(map(str, silent))} have not reported that they support kraft.version {level}",
        )
    if not validate_only:
        leading.append_control(state, leader, [kraft_version_record(level), voters_record(leader.reported)])


def _request_error(state: QuorumState, cluster_id: str | None, key: ReplicaKey) -> tuple[ErrorCode, str | None]:
    if not checks.is_own_cluster(state, cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is the cluster {state.own.cluster_id}, not {cluster_id}"
    error = checks.leader_request_error(state, state.epoch)
    if error is not ErrorCode.NONE:
        return error, "this node does not lead the quorum"
    if key.node_id < 0 or not key.directory_id.int:
        return ErrorCode.INVALID_REQUEST, "a voter is named by its node id and its directory id"
    return ErrorCode.NONE, None


def _has_usable_endpoints(state: QuorumState, voter: Voter) -> bool:
    names = {endpoint.name for endpoint in voter.endpoints if endpoint.host and endpoint.port}
    lengths = (len(part) for endpoint in voter.endpoints for part in (endpoint.name, endpoint.host))
    is_small = len(voter.endpoints) <= _MAX_ENDPOINTS and max(lengths, default=0) <= _MAX_NAME
    return is_small and not names.isdisjoint(state.config.listener_names)


def _change_error(state: QuorumState, leader: LeaderState) -> tuple[ErrorCode, str | None]:
    """Why the voters must not be changed now; NONE if they may."""
    if leader.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is being made; try again"
    if leader.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet; try again"
    if not state.history.kraft_version:
        return ErrorCode.UNSUPPORTED_VERSION, "at kraft.version 0 the voters are those of controller.quorum.voters"
    if not leading.may_change_voters(state, leader):
        return ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet; try again"
    return ErrorCode.NONE, None


def on_commit(state: QuorumState, leader: LeaderState) -> None:
    """Answer a change that is committed; a leader that is no voter any longer resigns."""
    change = leader.change
    if change is not None and change.offset is not None and (leader.high_watermark or 0) > change.offset:
        _end(state, leader, ErrorCode.NONE, None)
    if state.history.kraft_version and not state.is_voter and leading.may_change_voters(state, leader):
        leader.should_resign = True


def expire(state: QuorumState, leader: LeaderState) -> None:
    """Answer a change that takes too long. Its record stays in the log, and may still be committed."""
    if leader.change is None:
        return
    if state.now_ms < leader.change.deadline:
        state.wake(leader.change.deadline)
        return
    _end(state, leader, ErrorCode.REQUEST_TIMED_OUT, "the change of the voters was not committed in time")


def abandon(state: QuorumState, leader: LeaderState) -> None:
    """The replica leads no longer: the outcome of a change is its successor's."""
    if leader.change is not None:
        _end(state, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node no longer leads the quorum")


def _end(state: QuorumState, leader: LeaderState, error: ErrorCode, text: str | None) -> None:
    change, leader.change = leader.change, None
    if change is None or change.token is None:
        return
    response_class = RemoveRaftVoterResponse if change.is_removal else AddRaftVoterResponse
    state.emit(Reply(change.token, response_class(error_code=error, error_message=text)))
