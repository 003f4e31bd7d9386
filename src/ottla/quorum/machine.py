"""PURE. The Raft state machine of one replica of the metadata log: inputs in, effects out (see `effects`).

    +---------------+  request, response, timer, append, sync   +----------------------------------+
    | host: files,  | ----------------------------------------> | QuorumMachine                    |
    | connections,  |                                           |  voting  leading  serving        |
    | timers        | <---------------------------------------- |  following  changes  describing  |
    +---------------+  effects, in order                        +----------------------------------+

After each input every role does what is due: it sends what may be sent, and names the time of its next look
(`next_deadline`). So no input is needed to make a replica go on but time and answers.

Sources: KIP-595, KIP-630, KIP-853, KIP-996; where these leave it open, the behaviour of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.messages.vote import VoteRequest, VoteResponse
from ottla.protocol.schema import Message
from ottla.quorum import announcements, changes, checks, describing, following, leading, serving, voting
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.effects import Append, ControlRecord, Destination, Effect, Role, Token
from ottla.quorum.election_state import ElectionState
from ottla.quorum.errors import NotLeader
from ottla.quorum.leader_state import LeaderState
from ottla.quorum.links import Outbound
from ottla.quorum.log_view import LogView
from ottla.quorum.replicas import OffsetAndEpoch, VoterSet
from ottla.quorum.roles import Candidate, Follower, Prospective, Resigned, Tally, Unattached
from ottla.quorum.state import QuorumState

_MAX_STEPS = 8
"""Roles that may follow each other within one input: a single voter passes through four."""


class QuorumMachine:
    """One replica. All times are milliseconds of a monotonic clock; `random_below(n)` is at least 0 and below n."""

    def __init__(self, own: OwnReplica, config: QuorumConfig, log: LogView, random_below: Callable[[int], int]) -> None:
        self._state = QuorumState(own, config, log, random_below)
        self._state.on_leadership_lost = self._lose_leadership

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of `epoch`, if it is known and has not resigned."""
        return None if isinstance(self._state.part, Resigned) else self._state.leader_id

    @property
    def leader(self) -> Destination | None:
        """The leader's address; this replica's own if it leads."""
        return checks.own_address(self._state) if self.role is Role.LEADER else self._state.leader

    @property
    def high_watermark(self) -> int | None:
        """The end of the committed records, as far as this replica knows."""
        return self._state.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The newest voters in the log, committed or not."""
        return self._state.history.voters

    @property
    def kraft_version(self) -> int:
        return self._state.history.kraft_version

    @property
    def voter_lags(self) -> dict[int, int]:
        """On a leader: how many of its records each other voter has not fetched yet, by node id."""
        leader = self._state.part
        if not isinstance(leader, LeaderState):
            return {}
        return {number: self._state.end.offset - (each.end or 0) for number, each in leader.progress.items()}

    @property
    def has_shut_down(self) -> bool:
        """After `shut_down`: whether the others can do without this replica."""
        state, part = self._state, self._state.part
        if not state.is_shutting_down or isinstance(part, LeaderState):
            return False
        if not state.is_voter:
            return not (isinstance(part, Resigned) and part.unacknowledged)
        return len(state.history.voters) == 1 or isinstance(part, Follower)

    @property
    def meets_only_strangers(self) -> bool:
        """Whether all nodes that this replica can ask for the leader belong to another cluster."""
        known = {(to.host, to.port) for to in following.bootstrap(self._state)}
        return bool(known) and known <= self._state.strangers

    def voter_records(self, offset: int) -> list[ControlRecord]:
        """The control records that name level and voters in a snapshot of all records before `offset`."""
        return self._state.history.records_at(offset - 1)

    def next_deadline(self) -> int | None:
        """When `tick` is due at the latest; None for never."""
        return self._state.wake_at

    # -- inputs --------------------------------------------------------------------------------------------------------

    def start(self, election: ElectionState | None, now_ms: int) -> list[Effect]:
        """Begin with the content of `quorum-state`, None if there is none. The log is synced as a whole."""
        state = self._begin(now_ms)
        newest = state.log.newest_snapshot
        state.history.load(state.log.control_batches(), 0 if newest is None else newest.offset)
        state.note_voters()
        state.synced_end = state.end.offset
        state.contact_until = state.now_ms + state.config.fetch_timeout_ms
        saved = election or ElectionState()
        state.restore(saved)
        if saved.epoch < state.end.epoch:
            state.become_unattached(state.end.epoch)
        else:
            self._resume(saved)
        if state.begins_elections and isinstance(state.part, Unattached):
            # Pre-votes disturb nobody: if there is a leader, the others name it in their refusals.
            state.part.deadline = state.short_timeout()
        if state.is_voter and len(state.history.voters) == 1 and not isinstance(state.part, Candidate):
            state.become_prospective()
        return self._finish()

    def _resume(self, saved: ElectionState) -> None:
        state = self._state
        if saved.leader_id == state.own_id:
            others = [voter.key for voter in state.history.voters if not voter.is_replica(state.own.key)]
            state.become_resigned(others)
        elif saved.voted == state.own.key and state.begins_elections and saved.leader_id is None:
            state.enter(
                Candidate(Tally(state.history.voters, state.own.key), state.election_timeout()), saved.epoch, None
            )
        elif saved.leader_id is not None and (address := checks.known_address(state, saved.leader_id)) is not None:
            state.become_follower(saved.epoch, address)
        else:
            state.become_unattached(saved.epoch, saved.leader_id)

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed."""
        self._begin(now_ms)
        return self._finish()

    def handle(self, token: Token, request: Message, now_ms: int, *, version: int, wall_ms: int) -> list[Effect]:
        """A request to this replica, answered by a reply to `token`, now or later.

        The host has authorized it. `wall_ms` is the time of day, for what people read. Raises TypeError for requests
        of other kinds.
        """
        state = self._begin(now_ms)
        state.wall_ms = wall_ms
        match request:
            case FetchRequest():
                serving.handle_fetch(state, token, request, version)
            case VoteRequest():
                voting.handle_vote(state, token, request, version)
            case BeginQuorumEpochRequest():
                announcements.handle_begin(state, token, request, version)
            case EndQuorumEpochRequest():
                announcements.handle_end(state, token, request, version)
            case FetchSnapshotRequest():
                serving.handle_fetch_snapshot(state, token, request, version)
            case DescribeQuorumRequest():
                describing.handle_describe(state, token, request, version)
            case AddRaftVoterRequest():
                changes.handle_add(state, token, request)
            case RemoveRaftVoterRequest():
                changes.handle_remove(state, token, request)
            case UpdateRaftVoterRequest():
                changes.handle_update(state, token, request)
            case _:
                raise TypeError(f"{type(request).__name__} is no request between replicas of the metadata log")
        return self._finish()

    def forget(self, token: Token) -> None:
        """The sender of a request is gone; it needs no reply."""
        leader = self._state.part
        if isinstance(leader, LeaderState):
            leader.parked.pop(token, None)
            if leader.change is not None and leader.change.token == token:
                leader.change.token = None

    def answered(self, send_id: int, response: Message, now_ms: int) -> list[Effect]:
        """The response to a sent request. Those that nobody waits for any longer are ignored."""
        state = self._begin(now_ms)
        outbound = state.links.take(send_id)
        if outbound is not None:
            state.strangers.discard((outbound.to.host, outbound.to.port))
            self._settle(outbound, self._take(send_id, outbound, response))
        return self._finish()

    def failed(self, send_id: int, now_ms: int, *, unsupported: bool = False) -> list[Effect]:
        """A sent request has no response, or `unsupported`: the other side has no version that carries it."""
        state = self._begin(now_ms)
        outbound = state.links.take(send_id)
        if outbound is not None:
            if isinstance(outbound.request, ApiVersionsRequest):
                changes.on_api_versions(state, send_id, None)
            self._settle(outbound, unsupported and self._do_without(outbound))
        return self._finish()

    def append(self, records: Sequence[bytes], epoch: int, now_ms: int) -> list[Effect]:
        """Append one batch of metadata records as the leader of `epoch`; it may still be lost until it is committed.

        Raises NotLeader, and ValueError without records.
        """
        if not records:
            raise ValueError("an append needs records")
        state = self._begin(now_ms)
        self._leader_of(epoch)
        state.emit(Append(state.end.offset, state.epoch, records))
        state.end = OffsetAndEpoch(state.end.offset + len(records), state.epoch)
        return self._finish()

    def upgrade_kraft_version(
        self, level: int, epoch: int, now_ms: int, *, validate_only: bool = False
    ) -> list[Effect]:
        """As the leader of `epoch`, raise kraft.version from 0 to 1; final once the high watermark is past the log's
        present end. Raises NotLeader, and ApiError if the voters do not support it."""
        state = self._begin(now_ms)
        changes.upgrade(state, self._leader_of(epoch), level, validate_only=validate_only)
        return self._finish()

    def _leader_of(self, epoch: int) -> LeaderState:
        state = self._state
        if not isinstance(state.part, LeaderState) or epoch != state.epoch:
            raise NotLeader(f"node {state.own_id} does not lead the metadata quorum in epoch {epoch}")
        return state.part

    def synced(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log as it is now is durable up to `end_offset`; syncs begun before a truncation do not count."""
        state = self._begin(now_ms)
        state.synced_end = max(state.synced_end, min(end_offset, state.end.offset))
        if isinstance(state.part, LeaderState):
            leading.advance(state, state.part)
        return self._finish()

    def snapshot_failed(self, snapshot: OffsetAndEpoch, now_ms: int) -> list[Effect]:
        """The snapshot of the last `InstallSnapshot` was damaged, and is deleted."""
        state = self._begin(now_ms)
        state.warn(f"the snapshot {snapshot} from the leader of epoch {state.epoch} is damaged; it is fetched again")
        return self._finish()

    def snapshot_lacks_room(self, snapshot: OffsetAndEpoch, now_ms: int) -> list[Effect]:
        """A `WriteSnapshot` found no room on the disk, and what there was of the snapshot is deleted."""
        state = self._begin(now_ms)
        state.warn(f"the snapshot {snapshot} from the leader of epoch {state.epoch} finds no room on this node's disk")
        if isinstance(state.part, Follower):
            following.rest(state, state.part)
        return self._finish()

    def log_cleaned(self) -> None:
        """The host has written a snapshot, or deleted records and snapshots before one."""
        self._state.history.forget_before(self._state.log.start_offset)

    def resign(self, epoch: int, now_ms: int) -> list[Effect]:
        """Lead no longer, if this replica leads in `epoch`."""
        state = self._begin(now_ms)
        if isinstance(state.part, LeaderState) and epoch == state.epoch:
            state.part.should_resign = True
        return self._finish()

    def shut_down(self, now_ms: int) -> list[Effect]:
        """Take no new part in the quorum; a leader announces that it resigns (see `has_shut_down`). One that
        has removed itself first leads on until that is committed, for `leading.STAY_MS` at most."""
        state = self._begin(now_ms)
        state.is_shutting_down = True
        return self._finish()

    # -- what every input begins and ends with -------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> QuorumState:
        state = self._state
        state.out = []
        state.now_ms = max(state.now_ms, now_ms)
        state.end = state.log.end
        if state.installing is not None:
            self._read_installed(state.installing)
        return state

    def _read_installed(self, snapshot: OffsetAndEpoch) -> None:
        state = self._state
        state.installing = None
        if state.log.newest_snapshot != snapshot:
            return
        state.synced_end = state.end.offset
        state.history.load(state.log.control_batches(), snapshot.offset)
        state.note_voters()
        state.advance(snapshot.offset)

    def _finish(self) -> list[Effect]:
        state = self._state
        for _ in range(_MAX_STEPS):
            state.wake_at = None
            part = state.part
            if state.installing is not None:
                state.wake(state.now_ms)
            else:
                self._poll()
            if state.part is part:
                break
        checks.note_silence(state)
        return state.out

    def _poll(self) -> None:
        state = self._state
        match state.part:
            case LeaderState() as leader:
                self._poll_leader(leader)
            case Prospective() | Candidate() as nominee:
                voting.poll_nominee(state, nominee)
            case Follower() as follower:
                following.poll_follower(state, follower)
            case Unattached() as unattached:
                following.poll_unattached(state, unattached)
            case Resigned() as resigned:
                leading.poll_resigned(state, resigned)

    def _poll_leader(self, leader: LeaderState) -> None:
        state = self._state
        changes.expire(state, leader)
        if leader.has_advanced:
            changes.on_commit(state, leader)
        serving.answer_parked(state, leader, everyone=leader.has_advanced)
        leader.has_advanced = False
        leading.poll_leader(state, leader)

    def _lose_leadership(self, leader: LeaderState) -> None:
        serving.refuse_parked(self._state, leader)
        changes.abandon(self._state, leader)

    def _settle(self, outbound: Outbound, useful: bool) -> None:
        if useful:
            self._state.links.succeeded(outbound.to)
        else:
            self._state.links.failed(outbound.to, self._state.now_ms)

    def _do_without(self, outbound: Outbound) -> bool:
        """Whether the replica can go on although the other side does not know the request."""
        state = self._state
        if isinstance(outbound.request, UpdateRaftVoterRequest) and isinstance(state.part, Follower):
            state.part.has_reported = True
            return True
        return isinstance(outbound.request, VoteRequest) and voting.on_unsupported(state)

    def _take(self, send_id: int, outbound: Outbound, response: Message) -> bool:
        """Hand a response to its part; returns whether it was of use."""
        state = self._state
        match response:
            case FetchResponse():
                return following.on_fetch(state, outbound, response)
            case FetchSnapshotResponse():
                return following.on_fetch_snapshot(state, outbound, response)
            case VoteResponse():
                return voting.on_vote(state, outbound, response)
            case BeginQuorumEpochResponse():
                return leading.on_begin(state, outbound, response)
            case EndQuorumEpochResponse():
                return leading.on_end(state, outbound, response)
            case ApiVersionsResponse():
                return changes.on_api_versions(state, send_id, response)
            case UpdateRaftVoterResponse():
                if isinstance(state.part, Follower) and response.error_code in (
                    ErrorCode.NONE,
                    ErrorCode.UNSUPPORTED_VERSION,
                ):
                    state.part.has_reported = True
                return not response.error_code
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                return True
        return False
