"""A store that can be frozen while it is written: every change proves, in its transaction, that it is not frozen yet.

    read /controller_epoch, then /migration -- not there --> commit, with a check of /controller_epoch

The freeze changes `/controller_epoch`, as a new controller does. So a change that was planned before the freeze fails
after it; one that fails since there is a new controller is made again.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ottla.metadata.store import layout
from ottla.metadata.store.base import (
    Check,
    MetadataStore,
    Node,
    Operation,
    SessionListener,
    StoreConflict,
    StoreUnavailable,
)
from ottla.metadata.store.migration_layout import MIGRATION_PATH

ATTEMPTS: Final = 5


class MetadataFrozen(StoreUnavailable):
    """The metadata moves to the quorum at this moment: the change can be made there, in a moment."""


async def is_frozen(store: MetadataStore) -> bool:
    """Whether the tree is frozen. Raises `StoreUnavailable`."""
    return MIGRATION_PATH in await store.read(MIGRATION_PATH)


class FreezableStore:
    """A `MetadataStore` of a broker that may move."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.open = store.open
        self.read = store.read
        self.holds_session = store.holds_session
        self.close = store.close

    async def commit(self, operations: Sequence[Operation]) -> None:
        """As `MetadataStore.commit`. Raises `MetadataFrozen` once the tree is frozen.

        Changes that are about the controller's epoch themselves are those of the controller, which the freeze deposes.
        """
        if any(operation.path == layout.CONTROLLER_EPOCH_PATH for operation in operations):
            await self._store.commit(operations)
            return
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._store.commit([*await self._guard(), *operations])
            except StoreConflict as conflict:
                if conflict.path != layout.CONTROLLER_EPOCH_PATH or attempt == ATTEMPTS:
                    raise
            else:
                return

    async def _guard(self) -> list[Operation]:
        found = await self._store.read(layout.CONTROLLER_EPOCH_PATH)
        if await is_frozen(self._store):
            raise MetadataFrozen(
                "the metadata of this cluster moves from ZooKeeper to its own controllers, and is not changed meanwhile"
            )
        node: Node | None = found.get(layout.CONTROLLER_EPOCH_PATH)
        return [] if node is None else [Check(layout.CONTROLLER_EPOCH_PATH, node.version)]

    def watch(self, prefix: str, changed: Callable[[], None]) -> Callable[[], None]:
        """As `MetadataStore.watch`."""
        return self._store.watch(prefix, changed)

    def on_session(self, listener: SessionListener) -> None:
        """As `MetadataStore.on_session`."""
        self._store.on_session(listener)
