"""The syncs of one log: what each has to do, and what its outcome means."""

from ottla.ids import Offset
from ottla.log import names
from ottla.log.decisions.durability import Durability
from ottla.log.flush import FlushTicket, Rewrite, rewrites
from ottla.log.fs import FileSystem
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList


class Flushes:
    """Gives out a `FlushTicket` for each sync of a log, and takes its outcome.

    Owns what the last ticket writes again after a failure; the account of what is on the disk is the log's. Runs on the
    thread that owns the log; the tickets are synced in any thread.
    """

    __slots__ = ("_directory", "_durability", "_fs", "_rewrites", "_segments", "has_spares")

    def __init__(self, fs: FileSystem, directory: str, segments: SegmentList, durability: Durability[Segment]) -> None:
        self._fs = fs
        self._directory = directory
        self._segments = segments
        self._durability = durability
        self._rewrites: list[Rewrite] = []
        self.has_spares = False
        """Checkpoints are written over spare files, which have room on a full disk."""

    def prepare(self, end_offset: Offset, epochs: LeaderEpochs) -> FlushTicket | None:
        """What brings everything up to `end_offset` to the disk; None if it is there."""
        durability = self._durability
        dirty = durability.is_behind(end_offset)
        # Of a log without files they are not read: they come to the disk with its first record.
        has_new_epochs = epochs.dirty and self._segments.active.is_made
        if not (dirty or durability.unsynced or has_new_epochs):
            return None
        work = durability.take()
        segments = list(work.segments)
        # Before the snapshots: once one is on the disk, aborted transactions before it are not searched for again.
        work.put_first(path for segment in segments for path in segment.file_paths()[1:])
        if dirty:
            segments.append(self._segments.active)
        failure = None
        self._rewrites = []
        if durability.must_rewrite:
            try:
                self._rewrites = rewrites(self._fs, segments, work.paths, durability.recovery_point)
            except OSError as problem:
                failure = problem
        checkpoint_files = {}
        if has_new_epochs:
            checkpoint_files[f"{self._directory}/{names.LEADER_EPOCHS}"] = epochs.encode()
            epochs.dirty = False
        return FlushTicket(
            self._fs,
            end_offset=end_offset,
            last_base=self._segments.active.base_offset,
            generation=durability.generation,
            segments=segments,
            work=work,
            checkpoint_files=checkpoint_files,
            rewrites=self._rewrites,
            failure=failure,
            has_spares=self.has_spares,
            is_first=durability.recovery_point <= self._segments.all[0].base_offset,
        )

    def cancel_rewrites(self) -> None:
        """Before a file is cut; when this returns, the last ticket writes nothing again any more."""
        for rewrite in self._rewrites:
            rewrite.cancel()

    def synced(self, ticket: FlushTicket) -> bool:
        """After `ticket.sync()` has returned: moves the recovery point. False if it no longer counts; then its work is
        taken back."""
        if not self._durability.synced(
            ticket.end_offset,
            last_base=ticket.last_base,
            generation=ticket.generation,
            rewritten=bool(ticket.rewrites),
        ):
            self.cancelled(ticket)
            return False
        for closed in ticket.work.segments:
            closed.release()
        return True

    def failed(self, ticket: FlushTicket) -> None:
        """After `ticket.sync()` has raised: the next one does its work, and writes again what may be lost."""
        self.cancelled(ticket)
        self._durability.failed()

    def cancelled(self, ticket: FlushTicket) -> None:
        """Nobody has synced this ticket, or will: the next one does its work."""
        self._durability.given_back(ticket.work, self._segments.all)
