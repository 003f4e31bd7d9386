"""The disk below a `FaultyFS`: files and names, each as the kernel's cache has them and as the disk has them."""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple


class Survival(Enum):
    """What of the unsynced changes a crash leaves."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"
    """Each file's changes up to some byte, the names' changes up to one of them: a disk that keeps the order."""
    SCATTERED = "scattered"
    """Any blocks and any names, whatever the order in which they were written."""
    RANDOM = "random"
    """One of the above for each file."""


class Write(NamedTuple):
    """Bytes that were written to a file."""

    position: int
    data: bytes


class Truncation(NamedTuple):
    """A file was cut, or extended with zeros."""

    size: int


Change = Write | Truncation


class FileNode:
    """An inode: what reads see, what is on the disk, and what has still to get there."""

    __slots__ = ("cached", "dirty", "durable", "modified_ms", "reserved", "synced_before_crash")

    def __init__(self, now_ms: int) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: list[Change] = []
        self.modified_ms = now_ms
        self.reserved = 0
        """Bytes from the beginning for which there is room."""
        self.synced_before_crash = 0
        """How long it was on the disk when the machine crashed last: what follows survived without a sync."""

    def change(self, change: Change, now_ms: int) -> None:
        """In the cache, to be written some time."""
        apply(self.cached, change)
        self.dirty.append(change)
        self.modified_ms = now_ms

    def settle(self) -> None:
        """A successful sync."""
        for change in self.dirty:
            apply(self.durable, change)
        self.dirty.clear()

    def drop_cache(self) -> None:
        """Reads see what is on the disk, and dirty pages."""
        self.cached = applied(self.durable, self.dirty)


class DirectoryNode:
    """Names, and what they are of."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}

    def files(self) -> Iterator[FileNode]:
        """All that have a name in it or below."""
        for node in self.cached.values():
            if isinstance(node, DirectoryNode):
                yield from node.files()
            else:
                yield node


Node = FileNode | DirectoryNode

NameChange = tuple[tuple[DirectoryNode, str, Node | None], ...]
"""One atomic change of names: entries of directories, set or (None) removed."""


class FaultyDisk:
    """All files and names of a machine; `random` decides what a crash leaves."""

    def __init__(self, random: Random, block_bytes: int) -> None:
        self.root = DirectoryNode()
        self._random = random
        self._block_bytes = block_bytes
        self._pending: list[NameChange] = []

    def rename(self, change: NameChange) -> None:
        """Makes or removes names in the cache."""
        for parent, name, node in change:
            if node is None:
                del parent.cached[name]
            else:
                parent.cached[name] = node
        self._pending.append(change)

    def settle_names(self, directory: DirectoryNode | None = None) -> None:
        """A successful sync of a directory, or of all."""
        kept: list[NameChange] = []
        for change in self._pending:
            if directory is None or any(parent is directory for parent, _, _ in change):
                _settle(change)
            else:
                kept.append(change)
        self._pending = kept

    def drop_dirty(self, node: FileNode) -> None:
        """What a failed sync does: some pages were written, none are dirty any more."""
        node.durable = self._survivors(node, Survival.SCATTERED)
        node.dirty.clear()

    def crash(self, survival: Survival) -> None:
        """Forgets what was not synced, but for what happens to survive."""
        self._survive_names(survival)
        self._survive_below(self.root, survival)

    def _survive_names(self, survival: Survival) -> None:
        random = self._random
        survival = self._decided(survival)
        prefix = random.randint(0, len(self._pending))
        for number, change in enumerate(self._pending):
            if (
                survival is Survival.EVERYTHING
                or (survival is Survival.PREFIX and number < prefix)
                or (survival is Survival.SCATTERED and random.random() < 0.5)
            ):
                _settle(change)
        self._pending.clear()

    def _survive_below(self, directory: DirectoryNode, survival: Survival) -> None:
        directory.cached = dict(directory.durable)
        for node in directory.cached.values():
            if isinstance(node, DirectoryNode):
                self._survive_below(node, survival)
            else:
                node.synced_before_crash = len(node.durable)
                node.durable = self._survivors(node, survival)
                node.cached = bytearray(node.durable)
                node.dirty.clear()

    def _decided(self, survival: Survival) -> Survival:
        if survival is Survival.RANDOM:
            return self._random.choice([one for one in Survival if one is not Survival.RANDOM])
        return survival

    def _survivors(self, node: FileNode, survival: Survival) -> bytearray:
        """The file's content on the disk when some of its dirty pages have been written."""
        random = self._random
        survival = self._decided(survival)
        content = bytearray(node.durable)
        if survival is Survival.NOTHING:
            return content
        if survival is Survival.EVERYTHING:
            return applied(content, node.dirty)
        budget = random.randint(0, sum(len(one.data) if isinstance(one, Write) else 1 for one in node.dirty))
        for change in node.dirty:
            if isinstance(change, Truncation):
                keep = random.random() < 0.5 if survival is Survival.SCATTERED else budget > 0
                if not keep:
                    break  # what was written behind a cut cannot be there without the cut
                budget -= 1
                apply(content, change)
            elif survival is Survival.PREFIX:
                apply(content, Write(change.position, change.data[: max(0, budget)]))
                budget -= len(change.data)
            else:
                for piece in self._blocks(change):
                    if random.random() < 0.5:
                        apply(content, piece)
        return content

    def _blocks(self, change: Write) -> Iterator[Write]:
        position, data = change
        at = 0
        while at < len(data):
            size = self._block_bytes - (position + at) % self._block_bytes
            yield Write(position + at, data[at : at + size])
            at += size


def apply(content: bytearray, change: Change) -> None:
    """Makes the change; what is written past the end has zeros before it."""
    if isinstance(change, Truncation):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    elif change.data:
        content.extend(bytes(max(0, change.position - len(content))))
        content[change.position : change.position + len(change.data)] = change.data


def applied(content: bytearray, changes: list[Change]) -> bytearray:
    """A copy with all of the changes made."""
    content = bytearray(content)
    for change in changes:
        apply(content, change)
    return content


def _settle(change: NameChange) -> None:
    for parent, name, node in change:
        if node is None:
            parent.durable.pop(name, None)
        else:
            parent.durable[name] = node
