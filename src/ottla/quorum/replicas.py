"""PURE. Replicas of the metadata log, sets of voters, positions in the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.ids import uuid_to_text
from ottla.protocol.primitives import NULL_UUID


class OffsetAndEpoch(NamedTuple):
    """A position in the log: the offset of a next record, and the epoch of the record before it.

    Also the name of a snapshot, which stands for all records before `offset`.
    """

    offset: int
    epoch: int

    def is_as_complete_as(self, other: OffsetAndEpoch) -> bool:
        """Whether a log that ends here may be elected by a voter whose log ends at `other`."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


EMPTY_LOG = OffsetAndEpoch(0, 0)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: its node, and the directory that holds the log.

    `directory_id` is `NULL_UUID` where it is not known: with static voters, and from peers that do not send it.
    """

    node_id: int
    directory_id: UUID = NULL_UUID

    def __str__(self) -> str:
        return (
            f"{self.node_id}"
            if self.directory_id == NULL_UUID
            else f"{self.node_id} ({uuid_to_text(self.directory_id)})"
        )


class Endpoint(NamedTuple):
    """The address of a listener; `name` is the listener's."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, its addresses in order of preference, and the levels of `kraft.version` that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 0

    def is_replica(self, key: ReplicaKey) -> bool:
        """Whether `key` is this voter. A voter without a directory id is known by its node id alone."""
        return self.key.node_id == key.node_id and self.key.directory_id in (NULL_UUID, key.directory_id)

    def supports(self, kraft_version: int) -> bool:
        """Whether the voter's node implements this level of `kraft.version`."""
        return self.min_kraft_version <= kraft_version <= self.max_kraft_version


class VoterSet:
    """The voters of a quorum, by node id, in ascending order. Immutable; a change is a new set."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        """Raises ValueError where a node id is there twice."""
        listed = sorted(voters, key=lambda voter: voter.key.node_id)
        self._voters = {voter.key.node_id: voter for voter in listed}
        if len(self._voters) < len(listed):
            raise ValueError(f"a node is there twice among the voters {[str(voter.key) for voter in listed]}")

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self)})"

    @property
    def ids(self) -> frozenset[int]:
        """Node ids of the voters."""
        return frozenset(self._voters)

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self._voters) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        """The voter on a node, whatever its directory."""
        return self._voters.get(node_id)

    def includes(self, key: ReplicaKey) -> bool:
        """Whether this replica, with this directory, is a voter."""
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.is_replica(key)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with `voter`, in the place of an earlier one on its node."""
        return VoterSet([*(other for other in self if other.key.node_id != voter.key.node_id), voter])

    def without(self, key: ReplicaKey) -> VoterSet:
        """The set without the replica `key`."""
        return VoterSet(voter for voter in self if not voter.is_replica(key))
