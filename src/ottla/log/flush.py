"""What a group commit has to bring to the disk for one partition.

After a failure the next ticket reads what is not yet known to be on the disk, checks it, and writes it again in its
place before it syncs: `decisions.durability` explains why.
"""

import errno
import logging
from collections.abc import Callable
from threading import Lock
from typing import Final

from ottla.errors import CorruptMessage
from ottla.ids import Offset
from ottla.log import checkpoints
from ottla.log.decisions.durability import Unsynced
from ottla.log.fs import File, FileSystem, replace_in_spare
from ottla.log.scan import InvalidBatch, find_batch, scan
from ottla.log.segment import Segment

logger: Final = logging.getLogger(__name__)

_REWRITE_BYTES: Final = 1 << 20


class Rewrite:
    """A stretch of a file that is to be written again, unless the log is truncated meanwhile.

    Batches are checked first; of other files (`checked` is False) the whole is taken as it is read: they have their
    own checksums or can be rebuilt.
    """

    __slots__ = ("_cancelled", "_checked", "_end", "_file", "_lock", "_path", "_start")

    def __init__(self, file: File, path: str, start: int, end: int, *, checked: bool) -> None:
        self._file = file
        self._path = path
        self._start = start
        self._end = end
        self._checked = checked
        self._lock = Lock()
        self._cancelled = False

    def cancel(self) -> None:
        """Before the file is cut; when this returns, nothing more is written."""
        with self._lock:
            self._cancelled = True

    def run(self) -> None:
        """In any thread. Raises OSError, also when the data is no longer what was appended."""
        if self._checked:
            self._check()
        for position in range(self._start, self._end, _REWRITE_BYTES):
            with self._lock:
                if self._cancelled:
                    return
                data = self._file.read(position, min(_REWRITE_BYTES, self._end - position))
                self._file.write(position, data)

    def _check(self) -> None:
        try:
            for _ in scan(self._file, self._path, self._start, self._end, check_crc=True):
                pass
        except InvalidBatch as problem:
            if not self._cancelled:
                raise OSError(errno.EIO, f"what a failed sync has lost cannot be restored: {problem}") from problem


def rewrites(fs: FileSystem, segments: list[Segment], paths: list[str], recovery_point: Offset) -> list[Rewrite]:
    """What has to be written again after a failed sync: what these segments hold from the recovery point on, and all of
    the other files. Raises OSError."""
    found = []
    for segment in segments:
        segment.cut()  # a truncation may be among what was lost
        start = _position_synced_to(segment, recovery_point)
        found.append(Rewrite(segment.file, segment.path, start, segment.size, checked=True))
    for path in paths:
        try:
            file = fs.open(path)
        except FileNotFoundError:
            logger.debug("%s was deleted before it was synced", path)
            continue
        found.append(Rewrite(file, path, 0, file.size(), checked=False))
    return found


def _position_synced_to(segment: Segment, point: Offset) -> int:
    if segment.base_offset >= point:
        return 0
    try:
        return segment.position_of(point, blocking=True)
    except CorruptMessage:  # before it; what was appended since is intact
        start = segment.offset_index.floor(point, blocking=True)[1]
        found = find_batch(segment.file, start, segment.size, min_offset=point)
        return segment.size if found is None else found.position


class FlushTicket:
    """Taken from `PartitionLog.prepare_flush` by the thread that owns the log; `sync` runs in any one.

    It holds the open files, so that they may be rolled, renamed and deleted meanwhile.
    """

    __slots__ = (
        "_checkpoints",
        "_failure",
        "_fs",
        "_has_spares",
        "_rewrites",
        "_segments",
        "_work",
        "end_offset",
        "generation",
        "is_first",
        "last_base",
    )

    def __init__(
        self,
        fs: FileSystem,
        *,
        end_offset: Offset,
        last_base: int,
        generation: int,
        segments: list[Segment],
        work: Unsynced[Segment],
        checkpoint_files: dict[str, bytes],
        rewrites: list[Rewrite],
        failure: OSError | None = None,
        has_spares: bool = False,
        is_first: bool = False,
    ) -> None:
        self._fs = fs
        self._segments = [(segment, segment.file) for segment in segments]
        self._work = work
        self._checkpoints = checkpoint_files
        self._rewrites = rewrites
        self._failure = failure
        self._has_spares = has_spares
        self.end_offset = end_offset
        """All offsets below it are on the disk after `sync`."""
        self.last_base = last_base
        """The base offset of the last segment whose name is."""
        self.generation = generation
        self.is_first = is_first
        """Nothing of the log has been synced before."""

    @property
    def is_data_alone(self) -> bool:
        """Whether there are only segments to sync: no new files, no checkpoints, nothing to be written again."""
        work = self._work
        return not (self._rewrites or work.paths or self._checkpoints or work.directories or self._failure)

    @property
    def work(self) -> Unsynced[Segment]:
        """What it was to sync, to be done again if it failed."""
        return self._work

    @property
    def rewrites(self) -> list[Rewrite]:
        """What it writes again, after a failure."""
        return self._rewrites

    def descriptors(self) -> list[int] | None:
        """The files to fdatasync, if that is all there is to do and the operating system has them; else None."""
        if not self.is_data_alone:
            return None
        found = [file.descriptor() for _, file in self._segments]
        return None if None in found else [descriptor for descriptor in found if descriptor is not None]

    def begin(self) -> None:
        """Let the disk begin with the data; worth it where several tickets are synced one after the other."""
        for _, file in self._segments:
            file.begin_sync()

    def sync(self) -> None:
        """Waits until everything is on the disk. Raises OSError; then the log wants the ticket for `flush_failed`."""
        if self._failure is not None:
            raise self._failure
        for rewrite in self._rewrites:
            rewrite.run()
        for _, file in self._segments:
            file.sync()
        for path in self._work.paths:
            self._unless_deleted(self._sync_path, path)
        for path, data in self._checkpoints.items():
            self._unless_deleted(self._write_checkpoint, path, data)
        for directory in dict.fromkeys(self._work.directories):
            self._unless_deleted(self._fs.sync_directory, directory)

    def write_checkpoints(self) -> None:
        """The part of `sync` that writes, for a caller that syncs the whole filesystem. Raises OSError."""
        if self._failure is not None:
            raise self._failure
        for rewrite in self._rewrites:
            rewrite.run()
        for path, data in self._checkpoints.items():
            checkpoints.write(self._fs, path, data, sync=False)

    def _sync_path(self, path: str) -> None:
        self._fs.open(path).sync()

    def _write_checkpoint(self, path: str, data: bytes) -> None:
        if self._has_spares:
            replace_in_spare(self._fs, path, data)
        else:
            checkpoints.write(self._fs, path, data)

    @staticmethod
    def _unless_deleted(action: Callable[..., None], path: str, *rest: bytes) -> None:
        try:
            action(path, *rest)
        except FileNotFoundError:
            logger.debug("%s was deleted before it was synced", path)
