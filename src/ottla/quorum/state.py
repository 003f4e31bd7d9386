"""PURE. A replica's state, and the transitions between its roles.

    unattached --timeout--> prospective --pre-votes--> candidate --votes--> leader --shutdown, no majority--> resigned
        ^                       |                          |                                                     |
        +---- lost, or a greater epoch without a leader ---+-----------------------------------------------------+
    all of them --a leader of this epoch or of a greater one--> follower --no fetch in time (voters)--> prospective

Epoch, leader and vote are saved before anything that relies on them is sent; the roles prospective and resigned are
not saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.protocol.schema import Message
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.effects import (
    Advance,
    Append,
    ControlRecord,
    Destination,
    DropSnapshot,
    Effect,
    Role,
    RoleChanged,
    SaveElection,
    Truncate,
    VotersChanged,
    Warn,
)
from ottla.quorum.election_state import ElectionState
from ottla.quorum.leader_state import LeaderState
from ottla.quorum.links import Links
from ottla.quorum.log_view import LogView
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey, Voter
from ottla.quorum.roles import Candidate, Follower, Prospective, Resigned, Tally, Unattached
from ottla.quorum.voter_history import VoterHistory

Part: TypeAlias = Unattached | Prospective | Candidate | LeaderState | Follower | Resigned
SUPPORTED_KRAFT_VERSIONS: Final = (0, 1)
WARN_EVERY_MS: Final = 30_000
MOST_WARNINGS: Final = 32
"""In that time; the text of a warning may be the choice of others."""
_ROLES: Final = {
    Unattached: Role.UNATTACHED,
    Prospective: Role.PROSPECTIVE,
    Candidate: Role.CANDIDATE,
    LeaderState: Role.LEADER,
    Follower: Role.FOLLOWER,
    Resigned: Role.RESIGNED,
}


class QuorumState:
    """The state of one replica; `out` collects the effects of the current input."""

    def __init__(self, own: OwnReplica, config: QuorumConfig, log: LogView, random_below: Callable[[int], int]) -> None:
        self.own = own
        self.config = config
        self.log = log
        self.random_below = random_below
        self.history = VoterHistory(config.static_voters)
        self.links = Links(config.request_timeout_ms, config.retry_backoff_ms)
        self.now_ms = 0
        self.wall_ms = 0
        self.wake_at: int | None = None
        self.out: list[Effect] = []
        self.epoch = 0
        self.leader_id: int | None = None
        self.voted: ReplicaKey | None = None
        self.part: Part = Unattached(None)
        self.high_watermark: int | None = None
        """The greatest that this replica has known; a new leader first finds its own."""
        self.end = OffsetAndEpoch(0, 0)
        """The log's end after the effects that were emitted so far."""
        self.synced_end = 0
        self.contact_until = 0
        """Until then this replica takes the leader that it has fetched from to be alive."""
        self.hurried_at: int | None = None
        """When this voter last took a leader that refuses its requests for dead."""
        self.strangers: set[tuple[str, int]] = set()
        """Host and port of the nodes whose last answer was that they belong to another cluster."""
        self.silence_noted_at: int | None = None
        """When the last warning about a missing leader was given."""
        self.is_shutting_down = False
        self.installing: OffsetAndEpoch | None = None
        """The snapshot of the last `InstallSnapshot`, until the log shows what became of it."""
        self.on_leadership_lost: Callable[[LeaderState], None] = lambda leader: None
        self._warned: dict[str, int] = {}
        """The warnings of late, and when they were given."""
        self._saved: ElectionState | None = None
        self._last_voters = (self.history.voters, 0)

    @property
    def role(self) -> Role:
        return _ROLES[type(self.part)]

    @property
    def own_id(self) -> int:
        return self.own.key.node_id

    @property
    def sent_leader_id(self) -> int:
        """The leader's node id as messages have it: -1 where it is not known."""
        return -1 if self.leader_id is None else self.leader_id

    @property
    def is_voter(self) -> bool:
        """Whether this replica is among the newest voters of its log."""
        return self.own.can_vote and self.history.voters.includes(self.own.key)

    @property
    def begins_elections(self) -> bool:
        """Whether this replica is a voter, or was one until a removal that is not known to be committed.

        Without its own vote. Otherwise nobody might lead: the voters left may lack the removal, and then it refuses
        them its vote, which they need (Raft, Ongaro's thesis, 4.2.2).
        """
        if self.is_voter or not self.own.can_vote or self.own_id in self.history.voters.ids:
            return self.is_voter
        return self.history.may_count(self.own.key, max(self.high_watermark or 0, self.log.start_offset))

    @property
    def is_synced(self) -> bool:
        return self.synced_end >= self.end.offset

    @property
    def own_voter(self) -> Voter:
        """This replica as an entry among the voters."""
        return Voter(self.own.key, self.own.endpoints, *SUPPORTED_KRAFT_VERSIONS)

    @property
    def leader(self) -> Destination | None:
        """The address of the leader, if it is known and another replica."""
        return self.part.leader if isinstance(self.part, Follower | Prospective) else None

    def emit(self, effect: Effect) -> None:
        self.out.append(effect)

    def warn(self, text: str) -> None:
        """Warn, once in a while of each thing: its cause may be a request that comes fifty times a second."""
        recent = {known: at for known, at in self._warned.items() if self.now_ms - at < WARN_EVERY_MS}
        if text not in recent and len(recent) < MOST_WARNINGS:
            recent[text] = self.now_ms
            self.out.append(Warn(text))
        self._warned = recent

    def wake(self, at_ms: int | None) -> None:
        """Have the machine look again at `at_ms`, or earlier."""
        if at_ms is not None and (self.wake_at is None or at_ms < self.wake_at):
            self.wake_at = at_ms

    def send(self, to: Destination, request: Message) -> int | None:
        """Send a request if `to` is ready for one; returns its id. Else the machine looks again when it is."""
        if not self.links.is_ready(to, self.now_ms):
            self.wake(self.links.retry_at(to))
            return None
        effect = self.links.send(to, request, self.end.offset)
        self.emit(effect)
        return effect.id

    def destination_of(self, voter: Voter) -> Destination | None:
        """The address at which a voter is reached; None if it has none."""
        by_name = {endpoint.name: endpoint for endpoint in reversed(voter.endpoints)}
        named = [by_name[name] for name in self.config.listener_names if name in by_name]
        for endpoint in (*named, *voter.endpoints):
            return Destination(voter.key.node_id, endpoint.host, endpoint.port)
        return None

    def election_timeout(self) -> int:
        """A time from now on, random so that voters rarely begin elections together."""
        base = self.config.election_timeout_ms
        return self.now_ms + base + (self.random_below(base) if base else 0)

    def short_timeout(self) -> int:
        """A time from now on for a voter that need not wait for others, but should not begin together with them."""
        return self.now_ms + self.random_below(max(self.config.election_timeout_ms * 3 // 10, 1))

    # -- transitions ---------------------------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, leader_id: int | None = None) -> None:
        """Know no leader to fetch from. `leader_id` is one without a known address."""
        deadline = self._remaining_timeout() if self.begins_elections else None
        if epoch != self.epoch:
            self.voted = None
        self.enter(Unattached(deadline, self.now_ms), epoch, leader_id)

    def _remaining_timeout(self) -> int:
        """A replica that was about to begin an election does so, whatever epoch others have begun meanwhile."""
        part = self.part
        keeps = isinstance(part, Unattached | Candidate | Resigned) or (
            isinstance(part, Prospective) and not part.tally.is_lost
        )
        deadline = part.deadline if keeps and not isinstance(part, LeaderState) else None
        return self.election_timeout() if deadline is None else deadline

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Cast the vote of this epoch."""
        self.voted = candidate
        if isinstance(self.part, Unattached | Prospective):
            self.part.deadline = self.election_timeout()
        self._save()

    def become_prospective(self) -> None:
        """Begin to ask whether an election would be won."""
        tally = Tally(self.history.voters, self.own.key)
        self.enter(Prospective(tally, self.election_timeout(), self.leader), self.epoch, self.leader_id, save=False)

    def become_candidate(self) -> None:
        """Begin an election in the next epoch."""
        self.voted = self.own.key
        self.enter(Candidate(Tally(self.history.voters, self.own.key), self.election_timeout()), self.epoch + 1, None)

    def become_follower(self, epoch: int, leader: Destination) -> None:
        """Fetch from the leader of `epoch`."""
        if epoch != self.epoch:
            self.voted = None
        timeout_ms = self.config.fetch_timeout_ms
        follower = Follower(leader, self.now_ms + timeout_ms, self.now_ms + timeout_ms)
        self.enter(follower, epoch, leader.node_id)

    def become_leader(self, leader: LeaderState) -> None:
        """Lead in the epoch of the election that was won."""
        self.voted = None
        self.enter(leader, self.epoch, self.own_id)

    def become_resigned(self, successors: list[ReplicaKey]) -> None:
        """Lead no longer, and announce it."""
        others = self.history.voters.ids - {self.own_id}
        self.enter(Resigned(self.election_timeout(), successors, set(others)), self.epoch, self.own_id, save=False)

    def enter(self, part: Part, epoch: int, leader_id: int | None, *, save: bool = True) -> None:
        """Take up a role. Requests of the earlier one are forgotten."""
        if isinstance(self.part, Follower) and self.part.snapshot is not None:
            self.emit(DropSnapshot(self.part.snapshot.id))
        earlier, self.part, self.epoch, self.leader_id = self.part, part, epoch, leader_id
        self.links.reset()
        if save:
            self._save()
        start = part.epoch_start if isinstance(part, LeaderState) else None
        known = leader_id if isinstance(part, LeaderState | Follower) else None
        self.emit(RoleChanged(self.role, epoch, known, self.leader, start))
        if isinstance(earlier, LeaderState):
            self.on_leadership_lost(earlier)

    def restore(self, state: ElectionState) -> None:
        """Begin with what was saved."""
        self._saved = state
        self.epoch, self.leader_id, self.voted = state

    def _save(self) -> None:
        state = ElectionState(self.epoch, self.leader_id, self.voted)
        if state != self._saved:
            self._saved = state
            self.emit(SaveElection(state))

    # -- the log -------------------------------------------------------------------------------------------------------

    def append_control(self, records: list[ControlRecord]) -> None:
        """Append control records as the leader; voters in them count at once."""
        base = self.end.offset
        self.emit(Append(base, self.epoch, records))
        for delta, record in enumerate(records):
            self.history.add(base + delta, record)
        self.end = OffsetAndEpoch(base + len(records), self.epoch)
        self.note_voters()

    def truncate(self, to: OffsetAndEpoch) -> None:
        """Remove all records from `to.offset` on; `to.epoch` is that of the last record left."""
        self.emit(Truncate(to.offset))
        self.history.truncate(to.offset)
        self.end = to
        self.synced_end = min(self.synced_end, to.offset)
        self.note_voters()

    def note_voters(self) -> None:
        """Report the voters if they have changed."""
        found = (self.history.voters, self.history.kraft_version)
        if found != self._last_voters:
            self._last_voters = found
            self.emit(VotersChanged(*found))

    def advance(self, high_watermark: int) -> bool:
        """Report a greater high watermark; returns whether it is one."""
        if self.high_watermark is not None and high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.emit(Advance(high_watermark))
        return True
