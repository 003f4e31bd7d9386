"""PURE. The metadata log as the quorum's state machine reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ottla.quorum.replicas import OffsetAndEpoch


class LogView(Protocol):
    """A replica's log and snapshots, from memory: the machine reads them within its decisions.

    The view includes all effects that were carried out so far, synced or not.
    """

    @property
    def start_offset(self) -> int:
        """Offset of the first record; records before it are in a snapshot alone."""
        ...

    @property
    def end(self) -> OffsetAndEpoch:
        """The next record's offset, and the epoch of the last record.

        In an empty log after a snapshot: the snapshot's id. In an empty log without one: `EMPTY_LOG`.
        """
        ...

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The greatest epoch up to `epoch` that has records here, and the offset after its last record.

        The epoch of the snapshot at the start of the log counts as one with records, which end at the start. For an
        epoch before all of these: `OffsetAndEpoch(start_offset, that epoch)`. For an epoch after all of these: `end`.
        """
        ...

    @property
    def newest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def oldest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        """Its size in bytes; None if this replica does not have it whole."""
        ...

    def control_batches(self) -> Iterable[tuple[int, memoryview]]:
        """The control batches of the newest snapshot, then those of the log from its start on, each with an offset.

        The offset is that of the first record, in a snapshot -1. Read when the machine starts, and after a snapshot
        has been installed; other than the rest of this protocol, it may read files.
        """
        ...
