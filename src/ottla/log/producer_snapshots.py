"""What is known of a log's producers, and the snapshots of it that lie beside the segments.

The thread that owns the log changes it; after a truncation any thread may `load` it again.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol

from ottla.ids import Offset
from ottla.log import names
from ottla.log.decisions.durability import Durability
from ottla.log.fs import FileSystem
from ottla.log.producer_recovery import note_aborted, producer_state
from ottla.log.producer_state import ProducerState
from ottla.log.segment import Segment

logger: Final = logging.getLogger(__name__)

_SNAPSHOT_EVERY_BYTES: Final = 64 << 20


class Loadable(Protocol):
    """A log, as its producers are read from it."""

    log_start_offset: Offset
    log_end_offset: Offset

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, ascending."""
        ...


class ProducerSnapshots:
    """The producers of one log, at its end, and where it has snapshots. Those that it writes are `durability`'s to
    bring to the disk."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        state: ProducerState,
        offsets: list[int],
        active: Segment,
        durability: Durability[Segment],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._durability = durability
        self.state = state
        """What was known when it was last written, loaded or given; useless while `is_stale`."""
        self.is_stale = False
        """The log was truncated, and what is known of its producers is to be read again."""
        self._offsets = offsets
        """Offsets of the snapshots, ascending."""
        self._newest = offsets[-1] if offsets else -1
        """Where the last snapshot was taken of the present history."""
        self._taken_at = (active.base_offset, active.size)
        """Base offset and size of the active segment then."""
        self._loading = Lock()
        self._changes = 0
        """Counts what makes the result of a `load` under way useless: other segments, an end moved back."""
        self._changing = Lock()
        """Held for a moment: the owner counts a change, or a thread publishes what it has loaded, not both."""

    # --- the state ---------------------------------------------------------------------------------------------

    def replace(self, state: ProducerState) -> None:
        """Has this state in the place of what was known."""
        with self._changing:
            self._changes += 1
            self.state = state
            self.is_stale = False

    def discard_load(self) -> None:
        """Has a `load` that is under way in a thread publish nothing, and report no missing file."""
        with self._changing:
            self._changes += 1

    def expire(self) -> None:
        """The log was truncated."""
        with self._changing:
            self._changes += 1
            self.is_stale = True

    def load(self, log: "Loadable") -> None:
        """Reads what is known of producers after a truncation; in any thread, while nothing is appended. Raises
        OSError; then it is still to be done, as when the log is truncated again meanwhile."""
        with self._loading:  # a second thread that asks for it waits for the first
            if not self.is_stale:
                return
            changes = self._changes
            try:
                state, offsets, aborted = producer_state(
                    self._fs,
                    self._directory,
                    list(log.segments),
                    list(self._offsets),
                    log.log_start_offset,
                    log.log_end_offset,
                )
                with self._changing:
                    if changes != self._changes:
                        return
                    note_aborted(self._fs, aborted)
                    self._offsets = offsets
                    self._newest = -1
                    self.state = state
                    self.is_stale = False
            except FileNotFoundError:
                if changes == self._changes:
                    raise
                logger.debug("%s: changed while its producers were read", self._directory)

    # --- snapshots ---------------------------------------------------------------------------------------------

    def is_newest(self, offset: Offset) -> bool:
        """Whether the last snapshot was taken there."""
        return offset == self._newest

    def write(self, state: ProducerState, offset: int, active: Segment) -> None:
        """A snapshot of the state at the end of the log, which is the active segment's. Raises OSError."""
        path = self._path(offset)
        try:
            self._fs.write_bytes(path, state.encode(), sync=False)
        except OSError:
            with suppress(OSError):
                self._fs.remove(path)  # what a full disk has left of it
            raise
        unsynced = self._durability.unsynced
        unsynced.paths.append(path)
        unsynced.directories.append(self._directory)
        self._newest = offset
        self._taken_at = (active.base_offset, active.size)
        if offset not in self._offsets:
            self._offsets.append(offset)

    def write_within(self, state: ProducerState, offset: int, active: Segment) -> None:
        """As `write`, where the active segment may go on. Recovery will look at nothing before the snapshot, not for
        aborted transactions either. Raises OSError."""
        index = active.transaction_index
        if index.has_file:
            self._durability.unsynced.paths.append(index.path)
        self.write(state, offset, active)

    def is_due(self, active: Segment) -> bool:
        """Whether so much was appended since the last snapshot that a recovery should not have to look through it."""
        base_offset, size = self._taken_at
        return active.size - (size if base_offset == active.base_offset else 0) >= _SNAPSHOT_EVERY_BYTES

    def remove_between(self, segments: Sequence[Segment]) -> None:
        """Removes the older snapshots within segments: of those the last but one is synced for sure. Raises OSError."""
        bases = {segment.base_offset for segment in segments}
        for offset in [offset for offset in self._offsets if offset not in bases][:-2]:
            path = self.forget(offset)
            if path is not None:
                try:
                    self._fs.remove(path)
                except FileNotFoundError:
                    logger.debug("%s was gone already", path)

    def forget(self, offset: int) -> str | None:
        """The path of the snapshot there, which is to be removed; None if there is none."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        return self._path(offset)

    def _path(self, offset: int) -> str:
        return names.segment_file(self._directory, offset, names.PRODUCER_SNAPSHOT)
