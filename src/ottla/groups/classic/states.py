"""The states of a classic group, and the ways between them. PURE.

                     +-------------- all have left ---------------+
                     v                                            |
    (new) -----> Empty --first join--> PreparingRebalance --all joined--> CompletingRebalance --leader's sync--> Stable
                                             ^                                   |                                 |
                                             +--------- a member joins, leaves, fails, changes --------------------+

A deleted group is Dead: the coordinator no longer has it, and answers with an error.
Source: the protocol guide's group membership API; KIP-62, KIP-134.
"""

from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """Names as clients see them in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE

DECIDED: Final[dict[GroupState, frozenset[GroupState]]] = {
    _EMPTY: frozenset({_PREPARING}),
    _PREPARING: frozenset({_COMPLETING}),
    _COMPLETING: frozenset({_PREPARING}),
    _STABLE: frozenset({_PREPARING}),
    GroupState.DEAD: frozenset(),
}
"""Where an event may lead: these moves live in memory only."""

REPLAYED: Final[dict[GroupState, frozenset[GroupState]]] = {
    _EMPTY: frozenset({_EMPTY, _STABLE}),  # a successor reads only the ends of rebalances
    _PREPARING: frozenset({_EMPTY}),
    _COMPLETING: frozenset({_STABLE}),
    _STABLE: frozenset({_EMPTY, _STABLE}),
    GroupState.DEAD: frozenset(),
}
"""Where a record may lead: the two states that outlive the coordinator."""
