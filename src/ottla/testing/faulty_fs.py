"""A filesystem in memory that does what real ones do on their worst day.

`FaultyFS` implements the seam `ottla.log.fs.FileSystem`. It keeps what was written (the page cache) apart from what is
on the disk, and forgets the difference when the machine "crashes":

- unsynced writes are lost, torn at a byte, or survive block by block in any order; lost blocks read as zeros;
- files created, renamed or removed since the last `sync_directory` are there or not there, in any combination;
- a failed sync throws its dirty pages away, as Linux does: they can be read until the cache is dropped, a later sync
  succeeds, and they never reach the disk;
- writes past `capacity_bytes` are cut short with ENOSPC, except into reserved room; any operation fails by rule with
  any errno;
- bits flip.

Everything random comes from the seed, so a failure can be played again.

    fs = FaultyFS(seed=7)
    fs.make_directory("/data")
    fs.sync_directory("/")
    fs.write_bytes("/data/a", b"first", sync=True)
    fs.sync_directory("/data")
    fs.write_bytes("/data/a", b"second", sync=False)
    fs.crash(Survival.NOTHING)
    assert fs.read_bytes("/data/a") == b"first"
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from random import Random
from threading import RLock
from typing import Final, NamedTuple, NoReturn

from ottla.clock import Clock
from ottla.records.batch import Buffer
from ottla.testing.faulty_disk import DirectoryNode, FaultyDisk, FileNode, Node, Survival, Truncation, Write
from ottla.testing.manual_clock import ManualClock

__all__ = ["Crashed", "Fault", "FaultyFS", "FaultyFile", "Operation", "ReadAccess", "Survival"]


class Crashed(BaseException):
    """The machine has stopped. Not an Exception, so that no error handling mistakes it for a failed operation."""


class Operation(Enum):
    """What a rule can make fail."""

    CREATE = "create"
    OPEN = "open"
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"
    MAKE_DIRECTORY = "make_directory"
    SYNC_DIRECTORY = "sync_directory"
    SYNC_ALL = "sync_all"
    LIST = "list"


_CHANGING: Final = frozenset(Operation) - {Operation.OPEN, Operation.READ, Operation.LIST}


class ReadAccess(NamedTuple):
    """One read that was made."""

    path: str
    position: int
    size: int


@dataclass(slots=True)
class Fault:
    """A rule of `FaultyFS.fail`."""

    operation: Operation
    path: str
    error: int
    skip: int
    times: int | None
    hits: int = 0

    def cancel(self) -> None:
        """Stop applying the rule."""
        self.times = 0

    def strikes(self, operation: Operation, path: str) -> bool:
        """Whether this operation on this path fails; counts `skip` and `times` down."""
        if operation is not self.operation or not fnmatchcase(path, self.path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            if not self.times:
                return False
            self.times -= 1
        self.hits += 1
        return True


class FaultyFile:
    """An open file. After a crash every use of it raises OSError (EBADF)."""

    __slots__ = ("_fs", "_life", "_node", "path")

    def __init__(self, fs: "FaultyFS", node: FileNode, path: str, life: int) -> None:
        self._fs = fs
        self._node = node
        self._life = life
        self.path = path

    def size(self) -> int:
        with self._fs.using(self._life, Operation.OPEN, self.path):
            return len(self._node.cached)

    def read(self, position: int, size: int) -> Buffer:
        with self._fs.using(self._life, Operation.READ, self.path):
            self._fs.reads.append(ReadAccess(self.path, position, size))
            return bytes(self._node.cached[position : position + size])

    def read_now(self, position: int, size: int) -> Buffer | None:
        with self._fs.using(self._life, Operation.READ, self.path):
            if self._fs.is_cold():
                return None
            self._fs.reads.append(ReadAccess(self.path, position, size))
            return bytes(self._node.cached[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        """Write to the cache; a crash may lose it."""
        with self._fs.using(self._life, Operation.WRITE, self.path):
            self._fs.write_node(self._node, position, bytes(data))
        self._fs.stop_if_crashing()

    def truncate(self, size: int) -> None:
        """Change the size in the cache; a crash may undo it."""
        with self._fs.using(self._life, Operation.TRUNCATE, self.path):
            self._fs.truncate_node(self._node, size)
        self._fs.stop_if_crashing()

    def reserve(self, size: int) -> bool:
        """Have room for writes below `size`, if there is that much."""
        return self._fs.reserve_for(self._node, size)

    def is_in_memory(self, position: int, size: int) -> bool:
        return not self._fs.is_cold()

    def prefetch(self, position: int, size: int) -> None:
        pass

    def descriptor(self) -> int | None:
        """None: there is nothing of the operating system behind it."""
        return None

    def begin_sync(self) -> None:
        """Changes nothing: any dirty page may be on the disk at any time anyway."""

    def sync(self) -> None:
        """Bring the file's content to the disk; after an error the unsynced part is gone, as on Linux."""
        try:
            with self._fs.using(self._life, Operation.SYNC, self.path):
                if not self._fs.is_crashing():
                    self._node.settle()
        except OSError:
            self._fs.drop_dirty(self._node)
            raise
        self._fs.stop_if_crashing()


class FaultyFS:
    """See the module's text. Safe to use from several threads.

    `seed` decides everything random, `clock` gives files their times, `block_bytes` is what the disk writes at once.
    """

    def __init__(self, *, seed: int = 0, clock: Clock | None = None, block_bytes: int = 512) -> None:
        self.capacity_bytes: int | None = None
        """Bytes that all files together may have; None: no limit."""
        self.cold_reads: float = 0.0
        """How likely it is that `read_now` would have to wait for the disk, 0 to 1."""
        self.reads: list[ReadAccess] = []
        """All reads so far; clear it as you like."""
        self.changes = 0
        """How many operations so far would have changed something on the disk: where `crash_after` counts."""
        self.crashes = 0
        self._boots = 1
        self._random = Random(seed)
        self._block_bytes = block_bytes
        self._disk = FaultyDisk(self._random, block_bytes)
        self._clock = clock or ManualClock()
        self._faults: list[Fault] = []
        self._locks: set[str] = set()
        self._changes_left: int | None = None
        self._off = False
        self._guard = RLock()

    # --- trouble -----------------------------------------------------------------------------------------------

    def fail(
        self,
        operation: Operation,
        path: str = "*",
        *,
        error: int = errno.EIO,
        skip: int = 0,
        times: int | None = 1,
    ) -> Fault:
        """From now on let `operation` on paths that match the pattern fail with OSError(`error`): the first `skip`
        times not yet, then `times` times (None: always). A failing write may leave any part of its data."""
        fault = Fault(operation, path, error, skip, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Lifts all rules, limits and announced crashes; what is lost stays lost."""
        self._faults.clear()
        self._changes_left = None
        self.capacity_bytes = None

    def crash_after(self, changes: int) -> None:
        """Lets that many more changing operations through and crashes in the midst of the next one: it raises
        `Crashed`, as does everything after it, until `crash` starts the machine again."""
        self._changes_left = changes

    def crash(self, survival: Survival = Survival.RANDOM) -> None:
        """Turn the machine off and on again: `survival` decides what unsynced data remains. Open files are dead,
        locks are free, rules and limits are lifted."""
        with self._guard:
            self._disk.crash(survival)
            self.heal()
            self._locks.clear()
            self.crashes += 1
            self._boots += 1
            self._off = False

    def end_process(self) -> None:
        """The process that uses it is killed: open files are dead and locks free, and nothing is lost."""
        with self._guard:
            self._locks.clear()
            self.crashes += 1
            self._changes_left = None
            self._off = False

    def drop_caches(self) -> None:
        """Forgets clean pages, so that reads see what is on the disk: dirty pages that a failed sync has dropped
        are gone."""
        with self._guard:
            for node in self._disk.root.files():
                node.drop_cache()

    def flip_bit(self, path: str, bit: int) -> None:
        """Inverts one bit of a file, counted from its first byte's lowest, in the cache and on the disk."""
        with self._guard:
            node = self._file(path)
            for content in (node.cached, node.durable):
                if bit // 8 < len(content):
                    content[bit // 8] ^= 1 << bit % 8

    def survived_unsynced(self, path: str) -> range:
        """The bytes of a file that the newest crash left although they were never synced, under whatever name."""
        with self._guard:
            node = self._file(path)
            return range(node.synced_before_crash, len(node.durable))

    def used_bytes(self) -> int:
        """Bytes of all files that have a name, with the room that is reserved for them."""
        with self._guard:
            return sum(max(len(node.cached), node.reserved) for node in self._disk.root.files())

    def durable_bytes(self, path: str) -> bytes | None:
        """What would be in the file after `crash(Survival.NOTHING)`; None if it would not be there."""
        with self._guard:
            node: Node | None = self._disk.root
            for name in _parts(path):
                node = node.durable.get(name) if isinstance(node, DirectoryNode) else None
            return bytes(node.durable) if isinstance(node, FileNode) else None

    # --- ottla.log.fs.FileSystem -------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """See `FileSystem.open`."""
        with self.using(self.crashes, Operation.OPEN, path):
            parent, name = self._parent(path)
            node = parent.cached.get(name)
        if node is None and create:
            node = self._create(path)
        if node is None:
            _refuse(errno.ENOENT, path)
        if isinstance(node, DirectoryNode):
            _refuse(errno.EISDIR, path)
        return FaultyFile(self, node, path, self.crashes)

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        file = self.open(path)
        return bytes(file.read(0, file.size()))

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """See `FileSystem.write_bytes`; a crash may leave any part of it."""
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        file.write(0, data)
        if sync:
            file.sync()

    def names(self, directory: str) -> list[tuple[str, bool, int]]:
        with self.using(self.crashes, Operation.LIST, directory):
            entries = self._directory(directory).cached
            return [
                (name, isinstance(node, DirectoryNode), len(node.cached) if isinstance(node, FileNode) else 0)
                for name, node in entries.items()
            ]

    def exists(self, path: str) -> bool:
        with self.using(self.crashes, Operation.LIST, path):
            try:
                self._node(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def modified_ms(self, path: str) -> int:
        with self.using(self.crashes, Operation.LIST, path):
            return self._file(path).modified_ms

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents; a crash may undo it until they are synced."""
        parts = _parts(path)
        for count in range(1, len(parts) + 1):
            one = "/" + "/".join(parts[:count])
            if self.exists(one):
                continue
            with self.using(self.crashes, Operation.MAKE_DIRECTORY, one):
                parent, name = self._parent(one)
                self._change((parent, name, DirectoryNode()))
            self.stop_if_crashing()

    def rename(self, source: str, target: str) -> None:
        """Replace `target` atomically; a crash may undo it until the directory is synced."""
        with self.using(self.crashes, Operation.RENAME, source):
            old_parent, old_name = self._parent(source)
            new_parent, new_name = self._parent(target)
            node = old_parent.cached.get(old_name)
            if node is None:
                _refuse(errno.ENOENT, source)
            if isinstance(new_parent.cached.get(new_name), DirectoryNode):
                _refuse(errno.ENOTEMPTY, target)
            self._change((old_parent, old_name, None), (new_parent, new_name, node))
        self.stop_if_crashing()

    def exchange(self, first: str, second: str) -> None:
        """Exchange two names atomically; a crash may undo it until the directory is synced."""
        with self.using(self.crashes, Operation.RENAME, first):
            nodes = self._file(first), self._file(second)
            self._change((*self._parent(first), nodes[1]), (*self._parent(second), nodes[0]))
        self.stop_if_crashing()

    def remove(self, path: str) -> None:
        """Remove a file; a crash may undo it until the directory is synced."""
        with self.using(self.crashes, Operation.REMOVE, path):
            self._file(path)
            parent, name = self._parent(path)
            self._change((parent, name, None))
        self.stop_if_crashing()

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        for name, is_directory, _ in self.names(path):
            if is_directory:
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        with self.using(self.crashes, Operation.REMOVE, path):
            parent, name = self._parent(path)
            self._change((parent, name, None))
        self.stop_if_crashing()

    def sync_directory(self, path: str) -> None:
        """Bring the names of a directory to the disk."""
        with self.using(self.crashes, Operation.SYNC_DIRECTORY, path):
            if not self.is_crashing():
                self._disk.settle_names(self._directory(path))
        self.stop_if_crashing()

    def sync_all(self, directory: str) -> bool:
        """Bring all files and names to the disk."""
        with self.using(self.crashes, Operation.SYNC_ALL, directory):
            if not self.is_crashing():
                for node in self._directory(directory).files():
                    node.settle()
                self._disk.settle_names()
        self.stop_if_crashing()
        return True

    def boot_id(self) -> str:
        """See `FileSystem.boot_id`: another after each `crash`."""
        return str(self._boots)

    def lock(self, path: str) -> object:
        """Take a lock file; BlockingIOError if it is taken. A crash gives it back."""
        self.open(path, create=True)
        with self._guard:
            if path in self._locks:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            self._locks.add(path)
            return _Lock(self, path, self.crashes)

    # --- for FaultyFile ----------------------------------------------------------------------------------------

    @contextmanager
    def using(self, life: int, operation: Operation, path: str) -> Iterator[None]:
        """Holds the filesystem for one operation, unless a crash or a rule comes first."""
        with self._guard:
            if self._off:
                raise Crashed
            if life != self.crashes:
                _refuse(errno.EBADF, path)
            if operation in _CHANGING:
                self.changes += 1
                if self._changes_left is not None:
                    self._changes_left -= 1
            for fault in self._faults:
                if fault.strikes(operation, path):
                    _refuse(fault.error, path)
            yield

    def is_crashing(self) -> bool:
        """Whether the operation under way is the last one."""
        return self._changes_left is not None and self._changes_left < 0

    def stop_if_crashing(self) -> None:
        if self.is_crashing():
            self._off = True
            raise Crashed

    def is_cold(self) -> bool:
        return self.cold_reads > 0 and self._random.random() < self.cold_reads

    def write_node(self, node: FileNode, position: int, data: bytes) -> None:
        """Write as much as `capacity_bytes` allows, then raise ENOSPC."""
        room = len(data)
        if self.capacity_bytes is not None:
            free = max(0, self.capacity_bytes - self.used_bytes())
            room = min(room, max(0, len(node.cached) - position, node.reserved - position) + free)
        if room:
            node.change(Write(position, data[:room]), self._clock.now_ms())
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def reserve_for(self, node: FileNode, size: int) -> bool:
        """Count the bytes below `size` as used, unless there are too few."""
        with self._guard:
            more = size - max(len(node.cached), node.reserved)
            if more <= 0:
                return True
            if self.capacity_bytes is not None and self.used_bytes() + more > self.capacity_bytes:
                return False
            node.reserved = size
            return True

    def truncate_node(self, node: FileNode, size: int) -> None:
        """Change the size, and give back what was reserved behind the last block."""
        node.reserved = min(node.reserved, -(-size // self._block_bytes) * self._block_bytes)
        node.change(Truncation(size), self._clock.now_ms())

    def drop_dirty(self, node: FileNode) -> None:
        """What a failed sync does: some pages were written, none are dirty any more."""
        with self._guard:
            self._disk.drop_dirty(node)

    # --- names -------------------------------------------------------------------------------------------------

    def _node(self, path: str) -> Node:
        node: Node = self._disk.root
        for name in _parts(path):
            if not isinstance(node, DirectoryNode):
                _refuse(errno.ENOTDIR, path)
            found = node.cached.get(name)
            if found is None:
                _refuse(errno.ENOENT, path)
            node = found
        return node

    def _file(self, path: str) -> FileNode:
        node = self._node(path)
        if isinstance(node, DirectoryNode):
            _refuse(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._node(path)
        if isinstance(node, FileNode):
            _refuse(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self._directory(head), name

    def _create(self, path: str) -> FileNode:
        with self.using(self.crashes, Operation.CREATE, path):
            parent, name = self._parent(path)
            node = FileNode(self._clock.now_ms())
            self._change((parent, name, node))
        self.stop_if_crashing()
        return node

    def _change(self, *entries: tuple[DirectoryNode, str, Node | None]) -> None:
        self._disk.rename(entries)

    def unlock(self, path: str, life: int) -> None:
        if life == self.crashes:
            self._locks.discard(path)


class _Lock:
    """Free again with its last reference, or by a crash."""

    __slots__ = ("_fs", "_life", "_path")

    def __init__(self, fs: FaultyFS, path: str, life: int) -> None:
        self._fs = fs
        self._path = path
        self._life = life

    def __del__(self) -> None:
        self._fs.unlock(self._path, self._life)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _refuse(error: int, path: str) -> NoReturn:
    raise OSError(error, os.strerror(error), path)
