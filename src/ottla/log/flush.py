"""What one group commit has to bring to the disk for one partition."""

import logging
from collections.abc import Callable
from typing import Final

from ottla.ids import Offset
from ottla.log import checkpoints
from ottla.log.fs import File, FileSystem

logger: Final = logging.getLogger(__name__)


class FlushTicket:
    """Taken from `PartitionLog.prepare_flush` by the thread that owns the log; `sync` runs in any one.

    It holds the open files, so that they may be rolled, renamed and deleted meanwhile.
    """

    __slots__ = ("_before", "_checkpoints", "_directories", "_files", "_fs", "_paths", "end_offset", "generation")

    def __init__(
        self,
        fs: FileSystem,
        *,
        end_offset: Offset,
        generation: int,
        files: list[File],
        paths: list[str],
        directories: list[str],
        checkpoint_files: dict[str, bytes],
        before: Callable[[], None] | None = None,
    ) -> None:
        self._fs = fs
        self._files = files
        self._paths = paths
        self._directories = directories
        self._checkpoints = checkpoint_files
        self._before = before
        self.end_offset = end_offset
        """All offsets below it are on the disk after `sync`."""
        self.generation = generation

    def sync(self) -> None:
        """Waits until everything is on the disk. Raises OSError; then none of it can be taken to be."""
        if self._before is not None:
            self._before()
        for file in self._files:
            file.sync()
        for path in self._paths:
            try:
                self._fs.open(path).sync()
            except FileNotFoundError:
                logger.debug("%s was deleted before it was synced", path)
        for path, data in self._checkpoints.items():
            try:
                checkpoints.write(self._fs, path, data)
            except FileNotFoundError:
                logger.debug("the directory of %s was deleted before it was synced", path)
        for directory in self._directories:
            try:
                self._fs.sync_directory(directory)
            except FileNotFoundError:
                logger.debug("%s was deleted before it was synced", directory)
