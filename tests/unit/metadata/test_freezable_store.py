"""A store whose writers cannot miss that it is frozen."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.metadata.freezable_store import FreezableStore, MetadataFrozen
from ottla.metadata.store.base import Create, Node, Operation, StoreConflict, Update
from ottla.metadata.store.layout import CONTROLLER_EPOCH_PATH
from ottla.metadata.store.migration_layout import MIGRATION_PATH
from ottla.testing.memory_store import MemoryStore, MemoryTree

FREEZE: Sequence[Operation] = [Create(MIGRATION_PATH, b"{}"), Update(CONTROLLER_EPOCH_PATH, b"2", 0)]


class Interrupted(MemoryStore):
    """Others commit something after this store has read what is at a path."""

    def __init__(self, tree: MemoryTree, path: str, theirs: Sequence[Operation]) -> None:
        super().__init__(tree)
        self._path, self._theirs = path, list(theirs)

    async def read(self, prefix: str) -> dict[str, Node]:
        found = await super().read(prefix)
        if prefix == self._path and self._theirs:
            theirs, self._theirs = self._theirs, []
            await super().commit(theirs)
        return found


async def _tree() -> MemoryTree:
    tree = MemoryTree()
    tree.commit([Create(CONTROLLER_EPOCH_PATH, b"1")], MemoryStore(tree))
    return tree


@pytest.mark.parametrize("path", [CONTROLLER_EPOCH_PATH, MIGRATION_PATH])
def test_a_change_that_the_freeze_overtakes_is_not_made(path: str) -> None:
    async def main() -> None:
        tree = await _tree()
        inner = Interrupted(tree, path, FREEZE)
        await inner.open()
        with pytest.raises(MetadataFrozen):
            await FreezableStore(inner).commit([Create("/x", b"")])
        assert "/x" not in tree.nodes

    asyncio.run(main())


def test_a_change_that_another_controller_overtakes_is_made_again() -> None:
    async def main() -> None:
        tree = await _tree()
        inner = Interrupted(tree, MIGRATION_PATH, [Update(CONTROLLER_EPOCH_PATH, b"2", 0)])
        await inner.open()
        await FreezableStore(inner).commit([Create("/x", b"")])
        assert "/x" in tree.nodes

    asyncio.run(main())


def test_conflicts_are_those_of_the_change_itself() -> None:
    async def main() -> None:
        inner = MemoryStore(await _tree())
        await inner.open()
        store = FreezableStore(inner)
        await store.commit([Create("/x", b"")])
        with pytest.raises(StoreConflict, match="/x is there already"):
            await store.commit([Create("/x", b"")])
        await store.commit([Update(CONTROLLER_EPOCH_PATH, b"5", 0)])  # a new controller's, which has its own check

    asyncio.run(main())
