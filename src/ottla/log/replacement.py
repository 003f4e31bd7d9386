"""Segments that take the place of others, so that a crash at any moment leaves either the old ones or the new one.

Compaction has written and synced a segment whose files end in `.cleaned`. From there::

    begin   [owner]   .cleaned -> .swap            a crash now: whatever ends in .cleaned or stands beside it goes,
    sync    [thread]  the directory                the old segments are the log
    swap    [owner]   the log has the new segment, the old files -> .deleted
    sync    [thread]  the directory                a crash now: .swap is the log, old segments in its range go
    finish  [owner]   .swap -> final names
    sync    [thread]  the directory
    remove  [thread]  the .deleted files

The directory is synced between the steps because a crash may keep later renames and lose earlier ones: final names
beside the old segments would be two logs in one. [owner] is the thread that the log belongs to; readers go on all the
time, those in threads with the old files.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.log import names
from ottla.log.fs import FileSystem
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment

logger: Final = logging.getLogger(__name__)


class Replacement:
    """The steps above, each to be called once, in this order. `begin` and `swap` say whether to go on: not when the log
    has changed meanwhile (was truncated, lost one of the old segments to retention, was closed). All raise OSError.
    """

    def __init__(
        self, log: PartitionLog, fs: FileSystem, old: Sequence[Segment], new: Segment, generation: int
    ) -> None:
        self._log = log
        self._fs = fs
        self._directory = str(log.directory)
        self._old = tuple(old)
        self._new = new
        self._generation = generation
        self._deleted: list[str] = []

    def begin(self) -> bool:
        """Marks on the disk that the new segment is complete."""
        if not self._log.holds(self._old, self._generation):
            self._new.discard()
            return False
        self._new.change_suffix(names.SWAP)
        return True

    def sync(self) -> None:
        """In any thread."""
        self._fs.sync_directory(self._directory)

    def swap(self) -> bool:
        """Readers find the new segment from now on."""
        if not self._log.holds(self._old, self._generation):
            self._new.discard()
            return False
        self._deleted = self._log.replace(self._old, self._new)
        return True

    def finish(self) -> None:
        """Gives the new segment's files their names, unless the log has dropped it already."""
        if any(segment is self._new for segment in self._log.segments):
            self._new.change_suffix("")

    def remove(self) -> None:
        """Removes the old files; slow, for any thread."""
        for path in self._deleted:
            try:
                self._fs.remove(path)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)


def is_unfinished(log: PartitionLog) -> bool:
    """Whether an I/O error has kept files of a replacement from their names: the next start will see to it."""
    return any(segment.suffix for segment in log.segments)


def replace_now(log: PartitionLog, fs: FileSystem, old: Sequence[Segment], new: Segment, generation: int) -> bool:
    """All steps at once, where waiting is allowed; returns whether the new segment is in the log."""
    replacement = Replacement(log, fs, old, new, generation)
    if not replacement.begin():
        return False
    replacement.sync()
    if not replacement.swap():
        return False
    replacement.sync()
    replacement.finish()
    replacement.sync()
    replacement.remove()
    return True
