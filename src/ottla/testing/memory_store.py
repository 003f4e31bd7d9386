"""A metadata store in memory that several brokers of one process share, with sessions that a test can end.

tree = MemoryTree()
first, second = MemoryStore(tree), MemoryStore(tree)     # one for each broker
first.expire()                                           # as ZooKeeper does when a client sends no heartbeats
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.metadata.store.base import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SessionEvent,
    SessionListener,
    StoreConflict,
    StoreUnavailable,
    Update,
)


class Watcher(Protocol):
    """Receives change notifications."""

    watches: list[tuple[str, Callable[[], None]]]
    """A path, and what to call when something at or below it has changed."""


class MemoryTree:
    """What the stores of one cluster have in common. All on one loop."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.owners: dict[str, MemoryStore] = {}
        """The owners of nodes that are bound to a session."""
        self.watchers: list[Watcher] = []
        self.transactions = 0
        self.sequences: dict[str, int] = {}
        """The number of the next sequential node below a path."""

    def commit(self, operations: Sequence[Operation], owner: "MemoryStore") -> None:
        """All of the operations or, with `StoreConflict`, none."""
        nodes, owners = dict(self.nodes), dict(self.owners)
        self.transactions += 1
        for operation in operations:
            path = operation.path
            found = nodes.get(path)
            match operation:
                case Create(_, data, session_bound, sequential):
                    if sequential:
                        parent = path.rpartition("/")[0]
                        number = self.sequences[parent] = self.sequences.get(parent, -1) + 1
                        path = f"{path}{number:010d}"
                    if found is not None:
                        raise StoreConflict(path, "is there already")
                    nodes[path] = Node(data, 0, self.transactions, self.transactions)
                    if session_bound:
                        owners[path] = owner
                case Update(_, data, version):
                    if found is None or found.version != version:
                        raise StoreConflict(path, f"is not there in version {version}")
                    nodes[path] = found._replace(data=data, version=version + 1, modified=self.transactions)
                case Delete(_, version):
                    if found is None or found.version != version:
                        raise StoreConflict(path, f"is not there in version {version}")
                    del nodes[path]
                    owners.pop(path, None)
                case Check(_, version):
                    if found is None or found.version != version:
                        raise StoreConflict(path, f"is not there in version {version}")
        self.nodes, self.owners = nodes, owners
        self.tell([operation.path for operation in operations if not isinstance(operation, Check)])

    def end_session(self, owner: "MemoryStore") -> None:
        """The nodes bound to the owner's session go."""
        gone = [path for path, bound_to in self.owners.items() if bound_to is owner]
        for path in gone:
            del self.nodes[path], self.owners[path]
        self.tell(gone)

    def tell(self, paths: Sequence[str]) -> None:
        """Call the watches of all stores that look at one of the paths."""
        loop = asyncio.get_running_loop()
        for watcher in self.watchers:
            for prefix, changed in watcher.watches:
                if any(prefix == "/" or path == prefix or path.startswith(prefix + "/") for path in paths):
                    loop.call_soon(changed)


class MemoryStore:
    """One broker's session with a `MemoryTree`: a `MetadataStore`."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self._is_open = False
        self._listeners: list[SessionListener] = []
        self.watches: list[tuple[str, Callable[[], None]]] = []

    async def open(self) -> None:
        """Take part in the tree's notifications."""
        self._is_open = True
        self._tree.watchers.append(self)

    async def read(self, prefix: str) -> dict[str, Node]:
        """The nodes at and below `prefix`, by path."""
        self._check_open()
        await asyncio.sleep(0)
        return {
            path: node._replace(is_own=self._tree.owners.get(path) is self)
            for path, node in self._tree.nodes.items()
            if prefix == "/" or path == prefix or path.startswith(prefix + "/")
        }

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none, as ZooKeeper's multi."""
        self._check_open()
        await asyncio.sleep(0)
        self._check_open()
        self._tree.commit(operations, self)

    def watch(self, prefix: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after changes below `prefix`, until the returned function is called."""
        entry = (prefix, changed)
        self.watches.append(entry)

        def cancel() -> None:
            if entry in self.watches:
                self.watches.remove(entry)

        return cancel

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def holds_session(self) -> bool:
        return self._is_open

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._tree.watchers.remove(self)
            self.watches.clear()
            self._tree.end_session(self)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnavailable("the metadata store in memory is not open")

    # -- what a test does to it ------------------------------------------------------------------------------------

    def lose(self) -> None:
        """End the session: its nodes go, and nothing can be read or written until `begin`."""
        self._is_open = False
        for listener in self._listeners:
            listener(SessionEvent.LOST)
        self._tree.end_session(self)

    def begin(self) -> None:
        """A new session after `lose`."""
        self._is_open = True
        for listener in self._listeners:
            listener(SessionEvent.BEGUN)

    def expire(self) -> None:
        """Lose the session, and have a new one at once."""
        self.lose()
        self.begin()
