"""The metadata store of a single broker: one SQLite file.

SQLite runs in a thread of its own; `synchronous=FULL` makes a commit durable before it returns. The file is locked
while it is open, so no other process can change it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.metadata.store.base import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SessionListener,
    StoreConflict,
    StoreUnavailable,
    Update,
)

if TYPE_CHECKING:
    import sqlite3

ResultT = TypeVar("ResultT")

FILE_NAME: Final = "metadata.db"

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    session_bound INTEGER NOT NULL
) WITHOUT ROWID
"""
_SEQUENCES: Final = (
    "CREATE TABLE IF NOT EXISTS sequences (parent TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID"
)
"""The number of the next sequential node below a path."""


class EmbeddedStore:
    """A `MetadataStore` in a local file, which is made when it is not there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._watches: list[tuple[str, Callable[[], None]]] = []

    async def open(self) -> None:
        """Open the file and forget what was bound to an earlier session."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-metadata")
        try:
            await self._run(self._open)
        except StoreUnavailable:
            self._thread.shutdown()
            self._thread = None
            raise

    async def read(self, prefix: str) -> dict[str, Node]:
        return await self._run(lambda: self._read(prefix))

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Write the operations in a thread, then call the watches below whose prefix something changed."""
        await self._run(lambda: self._commit(operations))
        for prefix, changed in tuple(self._watches):
            if any(_below(operation.path, prefix) for operation in operations if not isinstance(operation, Check)):
                changed()

    def watch(self, prefix: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each commit below `prefix`, until the returned function is called."""
        entry = (prefix, changed)
        self._watches.append(entry)

        def cancel() -> None:
            if entry in self._watches:
                self._watches.remove(entry)

        return cancel

    def on_session(self, listener: SessionListener) -> None:
        """Do nothing: the session of a locked file cannot be ended by others."""

    def holds_session(self) -> bool:
        return self._thread is not None

    async def close(self) -> None:
        """Close the file; a store that is not open stays so."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._watches.clear()
        try:
            await asyncio.get_running_loop().run_in_executor(thread, self._close)
        finally:
            thread.shutdown()

    # -- in the store's thread -------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        if self._thread is None:
            raise StoreUnavailable(f"the metadata store {self._file} is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._translated, work)

    def _translated(self, work: Callable[[], ResultT]) -> ResultT:
        import sqlite3

        try:
            return work()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the metadata store {self._file} failed: {error}") from error
        except OSError as error:
            raise StoreUnavailable(f"the metadata store {self._file} failed: {error.strerror}") from error

    def _open(self) -> None:
        import sqlite3

        self._file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=0.5, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute(_SCHEMA)
            connection.execute(_SEQUENCES)
            connection.execute("DELETE FROM nodes WHERE session_bound")
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection

    def _read(self, prefix: str) -> dict[str, Node]:
        connection = self._opened()
        if prefix == "/":
            rows = connection.execute("SELECT path, data, version, session_bound FROM nodes")
        else:
            # "0" follows "/" in ASCII: the range holds exactly the paths that begin with prefix + "/".
            rows = connection.execute(
                "SELECT path, data, version, session_bound FROM nodes WHERE path = ? OR (path > ? AND path < ?)",
                (prefix, prefix + "/", prefix + "0"),
            )
        return {path: Node(data, version, is_own=bool(session_bound)) for path, data, version, session_bound in rows}

    def _commit(self, operations: Sequence[Operation]) -> None:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for operation in operations:
                _carry_out(connection, operation)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> "sqlite3.Connection":
        if self._connection is None:
            raise StoreUnavailable(f"the metadata store {self._file} is not open")
        return self._connection


def _carry_out(connection: "sqlite3.Connection", operation: Operation) -> None:
    match operation:
        case Create(path, data, session_bound, sequential):
            if sequential:
                path = f"{path}{_next_number(connection, path.rpartition('/')[0]):010d}"
            done = connection.execute(
                "INSERT INTO nodes VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING", (path, data, session_bound)
            )
            if done.rowcount == 0:
                raise StoreConflict(path, "is there already")
        case Update(path, data, version):
            done = connection.execute(
                "UPDATE nodes SET data = ?, version = version + 1 WHERE path = ? AND version = ?",
                (data, path, version),
            )
            if done.rowcount == 0:
                raise StoreConflict(path, f"is not there in version {version}")
        case Delete(path, version):
            done = connection.execute("DELETE FROM nodes WHERE path = ? AND version = ?", (path, version))
            if done.rowcount == 0:
                raise StoreConflict(path, f"is not there in version {version}")
        case Check(path, version):
            found = connection.execute("SELECT 1 FROM nodes WHERE path = ? AND version = ?", (path, version))
            if found.fetchone() is None:
                raise StoreConflict(path, f"is not there in version {version}")


def _next_number(connection: "sqlite3.Connection", parent: str) -> int:
    (number,) = connection.execute(
        "INSERT INTO sequences VALUES (?, 1) ON CONFLICT DO UPDATE SET next = next + 1 RETURNING next - 1", (parent,)
    ).fetchone()
    return int(number)


def _below(path: str, prefix: str) -> bool:
    return prefix == "/" or path == prefix or path.startswith(prefix + "/")
