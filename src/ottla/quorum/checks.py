"""PURE. Checks that many requests and responses share, and what a replica learns about the leader from them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.quorum.effects import Destination
from ottla.quorum.leader_state import LeaderState
from ottla.quorum.replicas import ReplicaKey
from ottla.quorum.roles import Candidate, Prospective, Resigned
from ottla.quorum.state import QuorumState

MAX_EPOCH: Final = (1 << 31) - 1
MAX_JUMP: Final = 1 << 12
"""A request that jumps over more elections is refused: it would use epochs up, of which there are 2^31.

A replica that is so far behind learns the epoch from the answers to requests of its own.
"""

SILENCE_MS: Final = 30_000


class LeaderHint(NamedTuple):
    """Epoch and leader as another replica reports them; the address is None if it is not known."""

    epoch: int
    leader_id: int | None
    address: Destination | None


def is_plausible(state: QuorumState, epoch: int) -> bool:
    """Whether elections can have led from this replica's epoch to `epoch`."""
    return epoch < MAX_EPOCH - 1 and epoch - state.epoch <= MAX_JUMP


def is_own_cluster(state: QuorumState, cluster_id: str | None) -> bool:
    return cluster_id is None or cluster_id == state.own.cluster_id


def addressing_error(state: QuorumState, cluster_id: str | None, asked: object) -> ErrorCode:
    """The error of a request of another cluster, or without a partition `asked` about; NONE if it has neither."""
    if not is_own_cluster(state, cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.INVALID_REQUEST if asked is None else ErrorCode.NONE


def is_for_own_replica(state: QuorumState, key: ReplicaKey) -> bool:
    """Whether a request that names its receiver means this replica. -1 and null ids name nobody."""
    if key.node_id < 0:
        return True
    return key.node_id == state.own_id and (not key.directory_id.int or key.directory_id == state.own.key.directory_id)


def voter_request_error(state: QuorumState, sender_id: int, epoch: int) -> ErrorCode:
    """The error of a request that candidates and leaders send to voters, NONE if it has none."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender_id == state.own_id:
        state.warn(
            f"another node has this node's id {sender_id}: it asked for a vote or announced itself as leader; "
            "give one of the two a node.id of its own"
        )
    if sender_id < 0 or sender_id == state.own_id or not is_plausible(state, epoch):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def leader_request_error(state: QuorumState, epoch: int) -> ErrorCode:
    """The error of a request that only the leader of `epoch` answers, NONE if this replica is it."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.part, LeaderState):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def hint_of(state: QuorumState, leader_id: int, epoch: int, endpoints: list[Any]) -> LeaderHint:
    """The hint in a response, completed by the addresses of the voters."""
    if leader_id < 0:
        return LeaderHint(epoch, None, None)
    address = None
    for endpoint in endpoints:
        if endpoint.node_id == leader_id and endpoint.host:
            address = Destination(leader_id, endpoint.host, endpoint.port)
    return LeaderHint(epoch, leader_id, address or known_address(state, leader_id))


def known_address(state: QuorumState, node_id: int) -> Destination | None:
    """The address of a voter."""
    voter = state.history.voters.get(node_id)
    return None if voter is None else state.destination_of(voter)


def own_address(state: QuorumState) -> Destination | None:
    return state.destination_of(state.own_voter)


def leader_address(state: QuorumState) -> Destination | None:
    """The address of this epoch's leader, which may be this replica; None if it is not known."""
    return own_address(state) if state.leader_id == state.own_id else state.leader


def adopt(state: QuorumState, hint: LeaderHint) -> bool:
    """Adopt another replica's epoch and leader; returns whether this replica's role has changed.

    A node that asks may be any number of elections behind, as a new one is; requests of others are judged by
    `is_plausible` before.
    """
    if not state.epoch <= hint.epoch < MAX_EPOCH - 1:
        return False
    if hint.epoch > state.epoch:
        _adopt_epoch(state, hint)
        return True
    if hint.leader_id is None or isinstance(state.part, LeaderState | Resigned) or hint.leader_id == state.own_id:
        return False
    if state.leader_id not in (None, hint.leader_id):
        state.warn(f"two leaders of epoch {hint.epoch}: {state.leader_id} and {hint.leader_id}; the second is ignored")
        return False
    if hint.address is None or state.leader is not None:
        return False
    state.become_follower(hint.epoch, hint.address)
    return True


def _adopt_epoch(state: QuorumState, hint: LeaderHint) -> None:
    if hint.leader_id is None or hint.leader_id == state.own_id:
        state.become_unattached(hint.epoch)
    elif hint.address is None:
        state.become_unattached(hint.epoch, hint.leader_id)
    else:
        state.become_follower(hint.epoch, hint.address)


def note_silence(state: QuorumState) -> None:
    """Warn, now and then, when this replica has had no leader for long: perhaps the voters have lost their majority."""
    if isinstance(state.part, LeaderState):
        state.contact_until = state.now_ms
    silent_ms = state.now_ms - state.contact_until
    if silent_ms < SILENCE_MS:
        state.silence_noted_at = None
        return
    noted = state.silence_noted_at
    if noted is not None and state.now_ms - noted < 2 * SILENCE_MS:
        state.wake(noted + 2 * SILENCE_MS)
        return
    state.silence_noted_at = state.now_ms
    state.warn(f"no leader of the metadata quorum for {silent_ms // 1000} s: {_advice(state)}")


def _advice(state: QuorumState) -> str:
    voters = state.history.voters
    if not voters.ids:
        servers = ", ".join(f"{host}:{port}" for host, port in state.config.bootstrap_servers)
        return f"none of controller.quorum.bootstrap.servers ({servers}) knows one; check the addresses"
    advice = f"{voters.majority} of the voters {sorted(voters.ids)} have to run and to reach each other"
    if isinstance(state.part, Prospective | Candidate):
        missing = [key.node_id for key in state.part.tally.missing]
        advice += f"; no answer from {missing}" if missing else "; their answers were refusals"
    return (
        f"{advice}. If that many are lost for good, `ottla quorum recover` lets a surviving one go on alone: see 'When "
        "the majority of controllers is lost' in docs/cluster.md"
    )


def settle(state: QuorumState, error: int, hint: LeaderHint) -> bool | None:
    """What all responses have in common: True and False end the response as success or failure, None does not.

    A response of an earlier epoch is ignored, whatever its content.
    """
    if hint.epoch < state.epoch:
        return False
    if hint.epoch > state.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return adopt(state, hint)
    if error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False
    if hint.leader_id is not None and state.leader_id is None and adopt(state, hint):
        return None if error == ErrorCode.NONE else True
    return None if error == ErrorCode.NONE else False
