"""Batches that stay in their file until the kernel sends them to a socket: `sendfile` instead of read and send.

A fetch of a megabyte costs two copies through this process otherwise. Worth it from some size on only, and only for
what is known to be intact and in the page cache: the event loop must not wait for a disk.
"""

import os
from contextlib import suppress
from typing import Final

from ottla.log.fs import File

MIN_REGION_BYTES: Final = 64 * 1024
"""Below this, one read and one send of everything together are cheaper than system calls of its own."""

STEP_BYTES: Final = 1 << 20
"""What one call sends at most."""


class FileRegion:
    """`size` bytes of a file from `position` on. Holds the file open."""

    __slots__ = ("_descriptor", "_file", "_position", "_size")

    def __init__(self, file: File, descriptor: int, position: int, size: int) -> None:
        self._file = file
        self._descriptor = descriptor
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def send_to(self, socket_descriptor: int, sent: int) -> int:
        """Send what follows the first `sent` bytes to a non-blocking socket; returns how many bytes went.

        Raises BlockingIOError if none can go now, OSError if the connection or the file fails; EOFError if the file
        has become shorter.
        """
        wanted = min(self._size - sent, STEP_BYTES)
        count = os.sendfile(socket_descriptor, self._descriptor, self._position + sent, wanted)
        if not count:
            raise EOFError(f"the file ends before byte {self._position + self._size}")
        return count

    def read(self, sent: int, size: int) -> bytes:
        """What follows the first `sent` bytes, at most `size` bytes of it. Raises as `send_to`."""
        found = os.pread(self._descriptor, min(self._size - sent, size), self._position + sent)
        if not found:
            raise EOFError(f"the file ends before byte {self._position + self._size}")
        return found

    def is_in_memory(self, sent: int) -> bool:
        """Whether what is sent next, after the first `sent` bytes, can be had without waiting for the disk."""
        return self._file.is_in_memory(self._position + sent, min(self._size - sent, STEP_BYTES))

    def load(self, sent: int) -> None:
        """Bring what is sent next into memory; in a thread. An error shows again when it is sent."""
        with suppress(OSError):
            self._file.read(self._position + sent, min(self._size - sent, STEP_BYTES))
