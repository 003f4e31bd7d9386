"""PURE. The voters and the levels of kraft.version that the log has had, by offset: the newest count, committed or not.

A truncation takes the sets in the truncated records back. Without any in the log, the static voters count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.protocol.messages.quorum_records import (
    Endpoint as EndpointRecord,
)
from ottla.protocol.messages.quorum_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
)
from ottla.protocol.messages.quorum_records import (
    Voter as VoterRecord,
)
from ottla.quorum.control_records import KRAFT_VERSION, VOTERS, decode_control_batch
from ottla.quorum.effects import ControlRecord
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.records.batch import BatchHeader, Buffer, iter_batches

T = TypeVar("T")
IN_BOOTSTRAP = -1
"""The offset of voters that are in the bootstrap checkpoint alone, which no other replica copies."""


class _Values(Generic[T]):
    """Values by the offset from which on they count."""

    __slots__ = ("offsets", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.values: list[T] = []

    def add(self, offset: int, value: T) -> None:
        self.truncate(offset)
        self.offsets.append(offset)
        self.values.append(value)

    def truncate(self, offset: int) -> None:
        while self.offsets and self.offsets[-1] >= offset:
            self.offsets.pop()
            self.values.pop()

    def forget_before(self, offset: int) -> None:
        """Keep the newest value before `offset`, and the later ones, which a truncation may still take back."""
        kept = max(0, bisect_left(self.offsets, offset) - 1)
        del self.offsets[:kept], self.values[:kept]

    def at(self, offset: int) -> T | None:
        index = bisect_right(self.offsets, offset) - 1
        return self.values[index] if index >= 0 else None


class VoterHistory:
    """The sets of voters in the log; `offset` is that of the newest set, None while the static voters count."""

    __slots__ = ("_levels", "_sets", "_static")

    def __init__(self, static: VoterSet) -> None:
        self._static = static
        self._sets: _Values[VoterSet] = _Values()
        self._levels: _Values[int] = _Values()

    @property
    def voters(self) -> VoterSet:
        """The newest voters."""
        return self._sets.values[-1] if self._sets.values else self._static

    @property
    def offset(self) -> int | None:
        return self._sets.offsets[-1] if self._sets.offsets else None

    @property
    def kraft_version(self) -> int:
        """The newest level of kraft.version."""
        return self._levels.values[-1] if self._levels.values else 0

    def may_count(self, key: ReplicaKey, committed: int) -> bool:
        """Whether the newest voters that are in the log before `committed`, or any later ones, include a replica."""
        first = max(0, bisect_left(self._sets.offsets, committed) - 1)
        return any(voters.includes(key) for voters in self._sets.values[first:] or [self._static])

    def load(self, batches: Iterable[tuple[int, memoryview]], snapshot_end: int) -> None:
        """Read all control batches of a replica anew (see `LogView.control_batches`)."""
        self._sets, self._levels = _Values(), _Values()
        for offset, batch in batches:
            for header in iter_batches(batch):
                self.read(batch, header, at=snapshot_end - 1 if offset < 0 else None)

    def read(self, batches: Buffer, header: BatchHeader, *, at: int | None = None) -> None:
        """Apply the control records of one batch, at offset `at` instead of their own if given."""
        for offset, record in decode_control_batch(batches, header):
            self.add(offset if at is None else at, record)

    def add(self, offset: int, record: ControlRecord) -> None:
        """Apply one control record; those that do not concern voters are ignored."""
        if record.type == VOTERS and isinstance(record.value, VotersRecord):
            self._sets.add(offset, voters_of(record.value))
        elif record.type == KRAFT_VERSION and isinstance(record.value, KRaftVersionRecord):
            self._levels.add(offset, record.value.k_raft_version)

    def truncate(self, offset: int) -> None:
        """Records from `offset` on are gone."""
        self._sets.truncate(offset)
        self._levels.truncate(offset)

    def forget_before(self, offset: int) -> None:
        """Records before `offset` are in a snapshot alone."""
        self._sets.forget_before(offset)
        self._levels.forget_before(offset)

    def records_at(self, offset: int) -> list[ControlRecord]:
        """The records that name level and voters as of `offset` (included), for a snapshot; none at level 0."""
        level, voters = self._levels.at(offset), self._sets.at(offset)
        if not level or voters is None:
            return []
        return [kraft_version_record(level), voters_record(voters)]


def kraft_version_record(level: int) -> ControlRecord:
    return ControlRecord(KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=level))


def voters_record(voters: VoterSet) -> ControlRecord:
    """The record that names `voters`."""
    return ControlRecord(VOTERS, VotersRecord(version=0, voters=[_record_of(voter) for voter in voters]))


def _record_of(voter: Voter) -> VoterRecord:
    return VoterRecord(
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[EndpointRecord(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
        ),
    )


def voters_of(record: VotersRecord) -> VoterSet:
    """The voters that a record names."""
    return VoterSet(
        {
            voter.voter_id: Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            )
            for voter in record.voters
        }.values()
    )
