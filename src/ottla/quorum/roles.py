"""PURE. What a replica knows in each of its roles; the leader's part is in `leader_state`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.quorum.effects import Destination
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey, VoterSet


class Tally:
    """The votes of an election, of the voters at its start alone: a candidate that is no voter does not count."""

    __slots__ = ("_voters", "_votes")

    def __init__(self, voters: VoterSet, own: ReplicaKey) -> None:
        self._voters = voters
        self._votes: dict[int, bool] = {own.node_id: True} if voters.includes(own) else {}

    @property
    def granting(self) -> list[int]:
        return sorted(node_id for node_id, granted in self._votes.items() if granted)

    @property
    def missing(self) -> Iterable[ReplicaKey]:
        """Voters that have not answered."""
        return [voter.key for voter in self._voters if voter.key.node_id not in self._votes]

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether the voters that have not answered are too few for a majority."""
        rejecting = sum(not granted for granted in self._votes.values())
        return len(self._voters) - rejecting < self._voters.majority

    def count(self, node_id: int, granted: bool) -> None:
        """Count a voter's answer. Its later answers replace it; those of others are ignored."""
        if node_id in self._voters.ids:
            self._votes[node_id] = granted


@dataclass(slots=True)
class Unattached:
    """`deadline` is None for a replica that begins no elections, and awaits a leader forever.

    `raised_at` is when this replica last reported its epoch to a leader of an earlier one, or when it began to wait.
    """

    deadline: int | None
    raised_at: int = 0


@dataclass(slots=True)
class Prospective:
    """`leader` is the one that the replica followed in this epoch, if any."""

    tally: Tally
    deadline: int
    leader: Destination | None


@dataclass(slots=True)
class Candidate:
    """Asks for votes in an epoch of its own, until `deadline`."""

    tally: Tally
    deadline: int


@dataclass(slots=True)
class FetchingSnapshot:
    """`position` is the count of bytes that were fetched so far."""

    id: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower:
    """`report_at` is when this voter compares its entry among the voters with itself again; `rests_until`, when it
    fetches again."""

    leader: Destination
    deadline: int
    report_at: int
    has_fetched: bool = False
    has_reported: bool = False
    snapshot: FetchingSnapshot | None = None
    rests_until: int = 0


@dataclass(slots=True)
class Resigned:
    """`successors` are the voters, the most complete log first."""

    deadline: int
    successors: list[ReplicaKey] = field(default_factory=list)
    unacknowledged: set[int] = field(default_factory=set)
