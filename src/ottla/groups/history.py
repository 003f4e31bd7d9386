"""Why a group has rebalanced, and what moved: the last few times, in memory. PURE."""

import logging
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from ottla.ids import GroupId, MemberId, TopicName

log = logging.getLogger(__name__)

KEPT_REBALANCES: Final = 16
KEPT_MOVES: Final = 64
"""Moves kept of one rebalance: the largest first; the others are only counted."""

KEPT_OF_NO_GROUP: Final = 100

AssignmentByName: TypeAlias = Mapping[TopicName, frozenset[int]]


class Move(NamedTuple):
    """Partitions of one topic that went from one member to another; None for a missing owner."""

    topic: TopicName
    partitions: tuple[int, ...]
    source: MemberId | None
    target: MemberId | None


class Rebalance(NamedTuple):
    """One rebalance. `moved_partitions` counts all of them, `moves` names the largest `KEPT_MOVES`."""

    at_ms: int
    epoch: int
    """Generation of a classic group, epoch of the assignment of another."""
    protocol: str
    """"classic", "consumer", "share" or "streams"."""
    assignor: str
    reasons: tuple[str, ...]
    members: int
    moved_partitions: int
    moves: tuple[Move, ...]


class History:
    """The last `KEPT_REBALANCES` of one group, oldest first. Lost with the machine: they only inform people."""

    __slots__ = ("_group_id", "_reasons", "_rebalances")

    def __init__(self, group_id: GroupId) -> None:
        self._group_id = group_id
        self._rebalances: deque[Rebalance] = deque(maxlen=KEPT_REBALANCES)
        self._reasons: dict[str, None] = {}

    def because(self, reason: str) -> None:
        """Something has happened that the next rebalance will be the answer to."""
        if len(self._reasons) < KEPT_MOVES:
            self._reasons[reason] = None

    def take_reasons(self) -> tuple[str, ...]:
        """The reasons since the last call, each once; they are forgotten here."""
        reasons = tuple(self._reasons)
        self._reasons = {}
        return reasons

    def add(self, rebalance: Rebalance) -> None:
        """Keep a rebalance, and log it."""
        self._rebalances.append(rebalance)
        log.info(
            "%s group %s: assignment %d by %s: members %d, partitions moved %d (%s)",
            rebalance.protocol,
            self._group_id,
            rebalance.epoch,
            rebalance.assignor or "nobody",
            rebalance.members,
            rebalance.moved_partitions,
            "; ".join(rebalance.reasons),
        )

    def rebalances(self) -> tuple[Rebalance, ...]:
        return tuple(self._rebalances)


class Histories:
    """The histories of all groups of one machine: a history outlives the change of a group's kind, not the group."""

    __slots__ = ("_groups", "_histories")

    def __init__(self, groups: Collection[GroupId]) -> None:
        """`groups`: those that there are, at any time."""
        self._groups = groups
        self._histories: dict[GroupId, History] = {}

    def __len__(self) -> int:
        return len(self._histories)

    def of(self, group_id: GroupId) -> History:
        """Also of a group that has yet to be made."""
        found = self._histories.get(group_id)
        if found is None:
            self._remove_some()
            found = self._histories[group_id] = History(group_id)
        return found

    def _remove_some(self) -> None:
        """Remove histories of expired groups, and of groups that were never created, now and then."""
        if len(self._histories) > 2 * len(self._groups) + KEPT_OF_NO_GROUP:
            groups = self._groups
            self._histories = {group_id: kept for group_id, kept in self._histories.items() if group_id in groups}

    def forget(self, group_id: GroupId) -> None:
        self._histories.pop(group_id, None)


def with_reason(what: str, said: str) -> str:
    """What a member did, and what its client gave as the reason (KIP-800); most clients give none."""
    return f"{what}: {said}" if said else what


def moves_between(
    before: Mapping[MemberId, AssignmentByName], after: Mapping[MemberId, AssignmentByName]
) -> tuple[int, tuple[Move, ...]]:
    """How many partitions have another owner, and the largest moves."""
    owners_before, owners_after = _owners(before), _owners(after)
    moved: dict[tuple[TopicName, MemberId | None, MemberId | None], list[int]] = {}
    for topic in owners_before.keys() | owners_after.keys():
        earlier, now = owners_before.get(topic, {}), owners_after.get(topic, {})
        for index, target in (now.items() - earlier.items()) if earlier else now.items():
            moved.setdefault((topic, earlier.get(index), target), []).append(index)
        for index in earlier.keys() - now.keys():
            moved.setdefault((topic, earlier[index], None), []).append(index)
    moves = [
        Move(topic, tuple(sorted(partitions)), source, target) for (topic, source, target), partitions in moved.items()
    ]
    moves.sort(key=lambda move: (-len(move.partitions), move.topic, move.partitions))
    return sum(len(move.partitions) for move in moves), tuple(moves[:KEPT_MOVES])


def _owners(assignment: Mapping[MemberId, AssignmentByName]) -> dict[TopicName, dict[int, MemberId]]:
    owners: dict[TopicName, dict[int, MemberId]] = {}
    for member_id, topics in assignment.items():
        for topic, partitions in topics.items():
            owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))
    return owners
