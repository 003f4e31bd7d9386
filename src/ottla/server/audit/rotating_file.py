"""The file of an audit log: whole lines, appended; renamed at a size, and removed when there are enough newer ones.

audit.log  audit.log.1  audit.log.2      the newest first
"""

import os
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.log.fs import File, FileSystem

_OWNER_ONLY: Final = 0o600


class RotatingFile:
    """Used by one thread at a time. Every method raises OSError."""

    def __init__(self, path: str, fs: "FileSystem", *, max_bytes: int, max_files: int) -> None:
        """Open the file, or make it. BlockingIOError if another process writes it."""
        self.path = path
        self._fs = fs
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._lock = fs.lock(f"{path}.lock")
        self._file: File | None = None
        self._size = 0
        self._open()

    def _open(self) -> None:
        is_new = not self._fs.exists(self.path)
        file = self._fs.open(self.path, create=True)
        descriptor = file.descriptor()
        if is_new and descriptor is not None:
            os.fchmod(descriptor, _OWNER_ONLY)
        self._size = file.size()
        if self._size and bytes(file.read(self._size - 1, 1)) != b"\n":  # a crash has cut the last line short
            file.write(self._size, b"\n")
            self._size += 1
        self._file = file

    def append(self, lines: bytes) -> None:
        """Append whole lines, all or none of them. They outlive this process, and a power failure once synced."""
        if self._file is None or not self._fs.exists(self.path):  # something else has renamed or removed it
            self._open()
        elif self._size and self._size + len(lines) > self._max_bytes:
            self._rotate()
        assert self._file is not None
        try:
            self._file.write(self._size, lines)
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)  # or half a line would stay
            raise
        self._size += len(lines)

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.sync()
        self._file = None
        kept = [self.path, *(f"{self.path}.{number}" for number in range(1, self._max_files))]
        for newer, older in reversed(list(pairwise(kept))):
            if self._fs.exists(newer):
                self._fs.rename(newer, older)
        if self._max_files == 1:
            self._fs.remove(self.path)
        self._open()

    def close(self) -> None:
        """Sync and close."""
        if self._file is not None:
            self._file.sync()
            self._file = None
        self._lock = None
