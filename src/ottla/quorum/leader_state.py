"""PURE. What a leader knows about the other replicas, and what follows for the high watermark.

voters' ends, the greatest first, of the leader's own only the synced part:   12  11 | 9   7   -
the high watermark is the end that a majority (of 5: three) has reached:              ^
... if it is after the record that opened the leader's epoch. Records of earlier epochs never count by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.quorum.effects import Token
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet

OBSERVER_TIMEOUT_MS: Final = 300_000
MAX_OBSERVERS: Final = 1_000
"""Observers beyond these are served, and not remembered."""


@dataclass(slots=True)
class Progress:
    """Another replica's progress. Times are of the monotonic clock; None before the first fetch.

    `end` is the offset of its last valid fetch: everything before it is in the replica's log, synced if it can vote.
    """

    key: ReplicaKey
    end: int | None = None
    fetched_at: int | None = None
    caught_up_at: int | None = None
    leader_end_then: int = 0
    acknowledged: bool = False
    """Whether the replica knows that this leader has been elected."""
    directories: tuple[UUID | None, UUID | None] = (None, None)
    """The directory that a voter without a known one fetched with last, and the one before that."""

    def is_twin(self, directory_id: UUID) -> bool:
        """Note the directory of a fetch; returns whether it takes turns with another one."""
        current, previous = self.directories
        if directory_id == current:
            return False
        self.directories = directory_id, current
        return directory_id == previous

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Note a valid fetch from `offset` while the leader's log ended at `leader_end`."""
        if offset >= leader_end:
            self.caught_up_at = now_ms
        elif self.fetched_at is not None and offset >= self.leader_end_then > 0:
            self.caught_up_at = max(self.caught_up_at or 0, self.fetched_at)
        self.leader_end_then = leader_end
        self.fetched_at = now_ms
        self.end = offset
        self.acknowledged = True


@dataclass(slots=True)
class ParkedFetch:
    """A fetch that waits for records or for a greater high watermark."""

    token: Token
    replica: ReplicaKey
    version: int
    offset: int
    max_bytes: int
    deadline: int


@dataclass(slots=True)
class PendingChange:
    """A change of the voters that was asked for; `offset` is that of its record once it is in the log.

    `added` is the new voter while it has not answered whether it supports kraft.version.
    """

    token: Token | None
    deadline: int
    offset: int | None = None
    added: ReplicaKey | None = None
    endpoints: tuple[Endpoint, ...] = ()
    ack_when_committed: bool = True
    is_removal: bool = False
    send_id: int | None = None


@dataclass(slots=True)
class LeaderState:
    """The leader's part of the machine; `own` is its own entry among the voters."""

    own: Voter
    epoch_start: int
    check_quorum_ms: int
    check_quorum_at: int
    announce_ms: int
    """Voters that have not fetched for so long are sent BeginQuorumEpoch, this often."""
    announce_at: int
    voters: VoterSet
    high_watermark: int | None = None
    own_end: int = 0
    progress: dict[int, Progress] = field(default_factory=dict)
    """The progress of the other voters, by node id."""
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)
    """Voters that have fetched since a majority had last done so."""
    parked: dict[Token, ParkedFetch] = field(default_factory=dict)
    change: PendingChange | None = None
    reported: VoterSet | None = None
    """At kraft.version 0: the voters as they have described themselves since."""
    should_resign: bool = False
    stays_until: int | None = None
    """Until when it waits for the commit of its own removal, once it is to stop."""
    has_advanced: bool = False
    """Whether the high watermark has moved in the current input."""

    def __post_init__(self) -> None:
        self.set_voters(self.voters)

    def set_voters(self, voters: VoterSet) -> None:
        """Count other voters from now on; the progress of replicas that change sides is kept."""
        known = {progress.key: progress for progress in self.progress.values()}
        earlier, self.progress, self.voters = known | self.observers, {}, voters
        for voter in voters:
            if voter.is_replica(self.own.key):
                continue
            found = next((each for key, each in earlier.items() if _is_same(voter.key, key)), Progress(voter.key))
            earlier.pop(found.key, None)
            found.key = voter.key
            self.progress[voter.key.node_id] = found
        self.observers = earlier
        self.fetched &= voters.ids

    def progress_of(self, key: ReplicaKey) -> Progress | None:
        """The progress of a voter or an observer, which is remembered from now on; None if there are too many."""
        if self.voters.includes(key):
            return self.progress.get(key.node_id)
        if key not in self.observers and (key.node_id < 0 or len(self.observers) >= MAX_OBSERVERS):
            return None
        return self.observers.setdefault(key, Progress(key))

    def forget_idle_observers(self, now_ms: int) -> None:
        """Observers that have not fetched for five minutes are no longer listed."""
        self.observers = {
            key: progress
            for key, progress in self.observers.items()
            if progress.fetched_at is not None and now_ms - progress.fetched_at < OBSERVER_TIMEOUT_MS
        }

    def note_contact(self, key: ReplicaKey, now_ms: int) -> None:
        """Note a request of a follower: the leader stays while a majority sends some."""
        if self.voters.includes(key):
            self.fetched.add(key.node_id)
        needed = self.voters.majority - self.voters.includes(self.own.key)
        if len(self.fetched) >= needed:
            self.fetched.clear()
            self.check_quorum_at = now_ms + self.check_quorum_ms

    @property
    def needs_others(self) -> bool:
        """Whether the leader alone is no majority."""
        return self.voters.majority > self.voters.includes(self.own.key)

    def unannounced(self, now_ms: int) -> Iterable[Voter]:
        """Voters that have not fetched for a while, and may not know this leader."""
        for voter in self.voters:
            progress = self.progress.get(voter.key.node_id)
            if progress and (progress.fetched_at is None or now_ms - progress.fetched_at >= self.announce_ms):
                yield voter

    def successors(self) -> list[ReplicaKey]:
        """The other voters, the most complete log first."""
        known = sorted(self.progress.values(), key=lambda each: (-(each.end if each.end is not None else -1), each.key))
        return [progress.key for progress in known]

    def advance(self) -> bool:
        """Compute the high watermark anew; returns whether it is greater than before."""
        found = self.majority_end()
        if found is None or found <= self.epoch_start or found <= (self.high_watermark or 0):
            return False
        self.high_watermark = found
        return True

    def majority_end(self) -> int | None:
        """The end that a majority of the voters has reached; None if a majority has not reported any."""
        ends = [self._end_of(voter) for voter in self.voters]
        ends.sort(reverse=True)
        found = ends[self.voters.majority - 1]
        return None if found < 0 else found

    def _end_of(self, voter: Voter) -> int:
        if voter.is_replica(self.own.key):
            return self.own_end
        end = self.progress[voter.key.node_id].end
        return -1 if end is None else end


def _is_same(voter: ReplicaKey, known: ReplicaKey) -> bool:
    """Whether a voter is a replica that has fetched; where one of the two has no directory id, the node decides."""
    return voter.node_id == known.node_id and (
        voter.directory_id == known.directory_id or not (voter.directory_id.int and known.directory_id.int)
    )
