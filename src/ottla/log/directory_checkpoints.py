"""The checkpoints of a log directory: taken on the thread that owns its logs, written in any thread, in order."""

from collections.abc import Callable
from threading import Lock
from typing import Protocol

from ottla.ids import Offset, TopicPartition
from ottla.log import checkpoints
from ottla.log.fs import FileSystem


class Written(Protocol):
    """Checkpoints to be written."""

    def write(self) -> None:
        """In any thread. Raises OSError."""
        ...


class NoCheckpoints:
    """For a log without checkpoints."""

    def write(self) -> None:
        """Does nothing."""


class CheckpointOrder:
    """Keeps checkpoints from being overwritten by earlier ones, in whatever thread they are written."""

    __slots__ = ("lock", "taken", "written")

    def __init__(self) -> None:
        self.lock = Lock()
        self.taken = 0
        self.written = 0


class DirectoryCheckpoints:
    """The content of a directory's checkpoint files at one moment. Owns a copy of it; written in any thread."""

    __slots__ = ("_files", "_fs", "_number", "_order", "_written")

    def __init__(
        self,
        fs: FileSystem,
        files: dict[str, dict[TopicPartition, Offset]],
        order: CheckpointOrder,
        written: Callable[[], None],
    ) -> None:
        """`written` is called when they are on the disk, in the thread that wrote them."""
        self._written = written
        self._fs = fs
        self._files = files
        self._order = order
        order.taken += 1
        self._number = order.taken

    def write(self) -> None:
        """Each atomically, unless newer ones are written; in any thread. Raises OSError."""
        with self._order.lock:
            if self._number < self._order.written:
                return
            for path, offsets in self._files.items():
                checkpoints.write(self._fs, path, checkpoints.encode_offsets(offsets))
            self._written()
            self._order.written = self._number
