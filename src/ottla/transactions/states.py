"""The states of a transactional id, and which may follow which. PURE.

    Empty -----> Ongoing -----> PrepareCommit -----> CompleteCommit --> Ongoing, Empty, ...
      |             |                                     |
      +-------------+---------> PrepareAbort  <-----------+
                                     |
                                     +-------------> CompleteAbort ---> Ongoing, Empty, ...

What is prepared will be done, whatever happens to the coordinator: the markers are sent until every partition has its.
"""

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    """Numbered as in the records of `__transaction_state`; `label` is the name shown to administrators."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Decided, and not yet known to every partition."""
        return self in PREPARED

    @property
    def is_complete(self) -> bool:
        return self in COMPLETE


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

PREPARED: Final = frozenset((PREPARE_COMMIT, PREPARE_ABORT))
COMPLETE: Final = frozenset((COMPLETE_COMMIT, COMPLETE_ABORT))
AT_REST: Final = COMPLETE | {EMPTY}
"""No transaction is under way: a new one may begin, and an id that stays here for long enough is forgotten."""

ALLOWED: Final = MappingProxyType(
    {
        EMPTY: frozenset((EMPTY, ONGOING, PREPARE_ABORT)),
        ONGOING: frozenset((ONGOING, PREPARE_COMMIT, PREPARE_ABORT)),
        PREPARE_COMMIT: frozenset((COMPLETE_COMMIT,)),
        PREPARE_ABORT: frozenset((COMPLETE_ABORT,)),
        COMPLETE_COMMIT: frozenset((EMPTY, ONGOING, PREPARE_ABORT)),
        COMPLETE_ABORT: frozenset((EMPTY, ONGOING, PREPARE_ABORT)),
    }
)
"""Nothing but an ongoing transaction can be committed. A client of the second generation may abort what never began:
it need not know whether any of its partitions was added (KIP-890)."""

_LABELS: Final = MappingProxyType(
    {
        EMPTY: "Empty",
        ONGOING: "Ongoing",
        PREPARE_COMMIT: "PrepareCommit",
        PREPARE_ABORT: "PrepareAbort",
        COMPLETE_COMMIT: "CompleteCommit",
        COMPLETE_ABORT: "CompleteAbort",
    }
)

STATES_BY_LABEL: Final = MappingProxyType({label: state for state, label in _LABELS.items()})
TRANSIENT_LABELS: Final = frozenset(("Dead", "PrepareEpochFence"))
"""States that Kafka knows and that no transaction is ever seen in."""
