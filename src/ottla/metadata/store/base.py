"""`MetadataStore`: keeps the cluster's metadata, reduced to the operations that ZooKeeper and a local file share.

The store is a tree of nodes, addressed by paths such as `/brokers/topics/orders`; each holds bytes and a version that
counts its updates from 0. Some nodes are bound to the session of the broker that made them and go when it ends.
Changes are made in transactions that check versions, so one of two writers with the same starting state loses.
An election is such a transaction, too: the broker that creates the session-bound node first has won, and the others
watch it.

What stands at which path is the business of `ottla.metadata.store.layout` alone.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode, OttlaError


class Node(NamedTuple):
    """The content of a path."""

    data: bytes
    version: int
    created: int = 0
    """Which transaction made it, where transactions are numbered: grows from one node of a path to the next."""
    modified: int = 0
    """Which transaction made it what it is, where transactions are numbered."""
    is_own: bool = False
    """Is it bound to the session that read it?"""


class Create(NamedTuple):
    """Make a node that must not be there; parents need not be.

    It has nodes below it only if the same transaction makes them: a path that is already on the way to another node
    may be refused. A sequential node's name is the end of `path` and ten digits, a number above all before.
    """

    path: str
    data: bytes
    session_bound: bool = False
    sequential: bool = False


class Update(NamedTuple):
    """Replace the bytes of a node that must have this version."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Remove a node that must have this version."""

    path: str
    version: int


class Check(NamedTuple):
    """Change nothing, but let the transaction fail unless the node has this version."""

    path: str
    version: int


Operation = Create | Update | Delete | Check


class SessionEvent(Enum):
    """What becomes of the session in which this process talks to the store."""

    LOST = auto()
    """It has ended, or must be taken to have ended: others may act on the absence of its nodes from now on."""
    RESUMED = auto()
    """After LOST: it has not ended after all, and its nodes are still there."""
    BEGUN = auto()
    """After LOST: there is a new one, to which no node is bound yet."""


SessionListener = Callable[[SessionEvent], None]


class StoreConflict(OttlaError):
    """A transaction was not carried out: a node was not as the transaction expects it."""

    code = ErrorCode.NOT_CONTROLLER  # another broker is the controller: the client looks it up again

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class StoreUnavailable(OttlaError):
    """The store cannot be read or written; the message gives its address and the reason."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class TransactionTooLarge(OttlaError):
    """The store cannot take so much at once; nothing was changed. Smaller transactions may do."""

    code = ErrorCode.POLICY_VIOLATION


class MetadataStore(Protocol):
    """Every method is called on the event loop's thread; none holds it up."""

    async def open(self) -> None:
        """Begin a session. Raises `StoreUnavailable`."""
        ...

    async def read(self, prefix: str) -> dict[str, Node]:
        """All nodes at and below a path, which is `/` or does not end in one. Raises `StoreUnavailable`."""
        ...

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out all of the operations, durably, or none; no two of them are about one node.

        Raises:
            StoreConflict: a node was not as expected; nothing was changed.
            TransactionTooLarge: nothing was changed.
            StoreUnavailable: it is not known whether anything was changed.
        """
        ...

    def watch(self, prefix: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` on the loop after every commit, by whomever, at or below a path.

        Several commits may be reported as one. Returns what ends the watch.
        """
        ...

    def on_session(self, listener: SessionListener) -> None:
        """Call `listener` on the loop when the session is lost, and when it is resumed or there is a new one."""
        ...

    def holds_session(self) -> bool:
        """Whether the session's nodes are sure to be there at this moment; cheap enough to be asked for every write.

        False before the LOST of `on_session` comes: a process that was stopped for a while runs everything else first.
        """
        ...

    async def close(self) -> None:
        """End the session, and with it the nodes bound to it."""
        ...
