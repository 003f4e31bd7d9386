"""A filesystem whose page cache dies with the process: SIGKILL loses what was not synced, as if the power had failed.

Contents lie in this process's memory and reach the real file with `sync` alone. Names (files made, renamed, removed)
are real at once. It implements `ottla.log.fs.FileSystem`.
"""

from threading import RLock
from typing import Final

from ottla.log.fs import File, RealFileSystem
from ottla.records.batch import Buffer

_CLEAN: Final = 1 << 62


class _Content:
    """What a file contains for this process, and from where on the real file has something else."""

    def __init__(self, real: File) -> None:
        self.real = real
        self.cached = bytearray(real.read(0, real.size()))
        self.clean_below = _CLEAN


class CachedFile:
    """An open file; see the module's text."""

    def __init__(self, content: _Content, lock: RLock) -> None:
        self._content = content
        self._lock = lock

    def size(self) -> int:
        """As written."""
        return len(self._content.cached)

    def read(self, position: int, size: int) -> Buffer:
        """As written."""
        with self._lock:
            return bytes(self._content.cached[position : position + size])

    def read_now(self, position: int, size: int) -> Buffer | None:
        """Everything is in memory."""
        return self.read(position, size)

    def prefetch(self, position: int, size: int) -> None:
        """Everything is in memory."""

    def is_in_memory(self, position: int, size: int) -> bool:
        """Everything is."""
        return True

    def write(self, position: int, data: Buffer) -> None:
        """To memory."""
        with self._lock:
            content = self._content
            if len(content.cached) < position:
                content.cached.extend(bytes(position - len(content.cached)))
            content.cached[position : position + len(data)] = data
            content.clean_below = min(content.clean_below, position)

    def truncate(self, size: int) -> None:
        """In memory; grows with zeros, as files do."""
        with self._lock:
            content = self._content
            content.clean_below = min(content.clean_below, size, len(content.cached))
            if size < len(content.cached):
                del content.cached[size:]
            else:
                content.cached.extend(bytes(size - len(content.cached)))

    def reserve(self, size: int) -> bool:
        """Changes nothing."""
        return True

    def descriptor(self) -> int | None:
        """None: the operating system has not what this file has."""
        return None

    def begin_sync(self) -> None:
        """Changes nothing."""

    def sync(self) -> None:
        """To the real file."""
        with self._lock:
            content = self._content
            if content.clean_below == _CLEAN:
                return
            content.real.truncate(min(content.clean_below, content.real.size()))
            content.real.write(content.clean_below, content.cached[content.clean_below :])
            content.real.truncate(len(content.cached))
            content.clean_below = _CLEAN


class LostCacheFileSystem(RealFileSystem):
    """See the module's text."""

    __slots__ = ("_contents", "_lock")

    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}
        self._lock = RLock()

    def open(self, path: str, *, create: bool = False) -> File:
        """As the real one, but from memory if it was open before."""
        with self._lock:
            content = self._contents.get(path)
            if content is None:
                content = self._contents[path] = _Content(super().open(path, create=create))
            return CachedFile(content, self._lock)

    def read_bytes(self, path: str) -> bytes:
        """As written."""
        file = self.open(path)
        return bytes(file.read(0, file.size()))

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Replaces the content."""
        file = self.open(path, create=True)
        file.truncate(0)
        file.write(0, data)
        if sync:
            file.sync()

    def names(self, directory: str) -> list[tuple[str, bool, int]]:
        """The real names with the sizes as written."""
        with self._lock:
            return [
                (
                    name,
                    is_directory,
                    len(known.cached) if (known := self._contents.get(f"{directory}/{name}")) else size,
                )
                for name, is_directory, size in super().names(directory)
            ]

    def rename(self, source: str, target: str) -> None:
        """Files, and directories with all that is in them."""
        with self._lock:
            super().rename(source, target)
            self._forget(target)
            for path in [path for path in self._contents if path == source or path.startswith(source + "/")]:
                self._contents[target + path.removeprefix(source)] = self._contents.pop(path)

    def remove(self, path: str) -> None:
        """The file is gone for those who have not opened it."""
        with self._lock:
            super().remove(path)
            self._forget(path)

    def remove_tree(self, path: str) -> None:
        """The same for a directory."""
        with self._lock:
            super().remove_tree(path)
            self._forget(path)

    def sync_all(self, directory: str) -> bool:
        """Syncs what was written below the directory."""
        with self._lock:
            for path, content in self._contents.items():
                if path.startswith(directory + "/"):
                    CachedFile(content, self._lock).sync()
        return True

    def _forget(self, path: str) -> None:
        for known in [known for known in self._contents if known == path or known.startswith(path + "/")]:
            del self._contents[known]
