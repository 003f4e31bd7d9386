"""Quorums with one careless decision each, which the simulation has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from unittest.mock import patch

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.quorum import changes, serving, voting
from ottla.quorum.effects import Token
from ottla.quorum.election_state import ElectionState
from ottla.quorum.leader_state import LeaderState
from ottla.quorum.replicas import ReplicaKey
from ottla.quorum.requests import partition_of
from ottla.quorum.roles import Prospective, Unattached
from ottla.quorum.state import QuorumState
from tests.simulation.quorum.disk import Disk
from tests.simulation.quorum.world import World


class Breakage(Enum):
    """What is done to a quorum."""

    UNSYNCED_VOTE = "unsynced-vote"
    COMMIT_WITHOUT_QUORUM = "commit-without-quorum"
    STALE_FETCH = "stale-fetch"
    EARLIER_EPOCH = "earlier-epoch"
    TWO_CHANGES = "two-changes"
    UNSYNCED_LOG = "unsynced-log"
    SECOND_VOTE = "second-vote"
    UNSYNCED_START = "unsynced-start"
    UNSAVED_VOTE = "unsaved-vote"


@dataclass(frozen=True, slots=True)
class Case:
    """How a breakage is done, under which faults it shows, and a regular expression for what is found."""

    broken: Callable[[], AbstractContextManager[Any]]
    faults: tuple[str, ...]
    finds: str


def _unsynced_vote() -> AbstractContextManager[Any]:
    """The host does not sync `quorum-state`: a power cut brings an earlier one back."""

    def save(self: World, disk: Disk, state: ElectionState) -> None:
        disk.unsaved_elections.append(disk.election)
        del disk.unsaved_elections[:-3]
        disk.election = state

    return patch.object(World, "save_election", save)


def _commit_without_quorum() -> AbstractContextManager[Any]:
    """One replica less than a majority is enough."""

    def majority_end(self: LeaderState) -> int | None:
        ends = sorted((self._end_of(voter) for voter in self.voters), reverse=True)
        found = ends[max(self.voters.majority - 2, 0)]
        return None if found < 0 else found

    return patch.object(LeaderState, "majority_end", majority_end)


@contextmanager
def _stale_fetch() -> Iterator[None]:
    """Fetches count before it is known whether their epoch is the leader's, and whether the two logs diverge."""
    handle = serving.handle_fetch

    def counted(state: QuorumState, token: Token, request: FetchRequest, version: int) -> None:
        asked = partition_of(request.topics)
        if isinstance(state.part, LeaderState) and asked is not None and request.replica_state is not None:
            key = ReplicaKey(request.replica_state.replica_id, asked.replica_directory_id)
            serving.note_fetch(state, state.part, key, min(asked.fetch_offset, state.end.offset))
        handle(state, token, request, version)

    with patch.object(serving, "handle_fetch", counted):
        yield


def _earlier_epoch() -> AbstractContextManager[Any]:
    """Records of earlier epochs are committed by count."""

    def advance(self: LeaderState) -> bool:
        found = self.majority_end()
        if found is None or found <= (self.high_watermark or 0):
            return False
        self.high_watermark = found
        return True

    return patch.object(LeaderState, "advance", advance)


def _two_changes() -> AbstractContextManager[Any]:
    """Voters are changed while an earlier change is not committed."""

    def error_of(state: QuorumState, leader: LeaderState) -> tuple[ErrorCode, str | None]:
        return (ErrorCode.NONE, None) if state.history.kraft_version else (ErrorCode.UNSUPPORTED_VERSION, None)

    return patch.object(changes, "_change_error", error_of)


def _unsynced_log() -> AbstractContextManager[Any]:
    """Followers fetch, and candidates ask for votes, before their logs are synced."""
    return patch.object(QuorumState, "is_synced", True)


def _second_vote() -> AbstractContextManager[Any]:
    """A replica votes as often as it is asked."""

    def grants(state: QuorumState, candidate: ReplicaKey, *, complete: bool, pre_vote: bool) -> bool:
        return complete and (pre_vote or isinstance(state.part, Unattached | Prospective))

    return patch.object(voting, "may_grant", grants)


@contextmanager
def _unsynced_start() -> Iterator[None]:
    """A host that starts takes for synced what it finds in its files, as a process may after one that was killed, or
    whose sync has failed."""
    recover = Disk.recover

    def trust(self: Disk) -> None:
        synced = self.synced
        recover(self)
        self.synced = max(self.start.offset, min(synced, self.end.offset))

    with patch.object(Disk, "recover", trust):
        yield


def _unsaved_vote() -> AbstractContextManager[Any]:
    """A host goes on although its disk, as long as it fails, takes no `quorum-state`."""

    def save(self: World, disk: Disk, state: ElectionState) -> None:
        if not self.trouble.failing:
            disk.election = state

    return patch.object(World, "save_election", save)


BREAKAGES: Final = {
    Breakage.UNSYNCED_VOTE: Case(_unsynced_vote, ("clock all", "power in between", "late"), "two leaders in epoch"),
    Breakage.COMMIT_WITHOUT_QUORUM: Case(_commit_without_quorum, ("kill",), "which 1 of"),
    Breakage.STALE_FETCH: Case(_stale_fetch, ("power", "cut", "late"), "keep"),
    Breakage.EARLIER_EPOCH: Case(_earlier_epoch, ("power", "cut"), "by count"),
    Breakage.TWO_CHANGES: Case(_two_changes, ("voters", "cut one way"), "2 sets of voters"),
    Breakage.UNSYNCED_LOG: Case(_unsynced_log, ("power", "slow disk"), "keep|leader completeness"),
    Breakage.SECOND_VOTE: Case(_second_vote, ("clock all", "kill", "late"), "two leaders in epoch"),
    Breakage.UNSYNCED_START: Case(_unsynced_start, ("failing disk", "power", "slow disk"), "keep|leader completeness"),
    Breakage.UNSAVED_VOTE: Case(
        _unsaved_vote, ("failing disk", "power all", "clock all", "late"), "two leaders in epoch"
    ),
}
