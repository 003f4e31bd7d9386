"""The files of one log's segments, and how the set of them changes."""

import errno
import logging
import os
import random
from collections.abc import Sequence
from typing import Final

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.ids import Offset
from ottla.log.decisions.durability import Durability
from ottla.log.fs import LACKS_ROOM, FileSystem
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState
from ottla.log.recovery import LoadedLog
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList
from ottla.log.segment_recovery import end_of
from ottla.records.batch import Buffer

logger: Final = logging.getLogger(__name__)

_MAX_POSITION: Final = 2**31 - 1


def _jitter_ms(config: LogConfig) -> int:
    """Drawn anew for each segment, so that those which began together do not all end together."""
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit_ms) if limit_ms else 0


class SegmentFiles:
    """Begins, fills, cuts and removes the segments of one log.

    Owns the list of segments, the snapshots of producers beside them, and the account of what is on the disk. It knows
    no high watermark: what may be cut or removed is for the log to decide. Runs on the thread that owns the log; every
    method may raise OSError.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_fs",
        "_is_unnamed",
        "_jitter_ms",
        "_outgrown",
        "durability",
        "producers",
        "room_bytes",
        "segments",
    )

    def __init__(self, fs: FileSystem, directory: str, config: LogConfig, clock: Clock, loaded: LoadedLog) -> None:
        self._fs = fs
        self._directory = directory
        self._clock = clock
        self._jitter_ms = _jitter_ms(config)
        """The active segment's share of `segment.ms` that it does not get."""
        self.room_bytes = 0
        """Room that a segment has to find, or the log goes on in the one before; 0: a full disk refuses appends."""
        self._outgrown: Segment | None = None
        """The segment that the log went on in for lack of room."""
        self._is_unnamed = not loaded.segments[-1].is_made
        """Whether the files of the first segment are still to be made, or were made and no sync knows of them."""
        self.segments = SegmentList(fs, loaded.segments)
        self.durability: Durability[Segment] = Durability(
            loaded.recovery_point,
            must_rewrite=loaded.recovery_point < loaded.end_offset,
            is_cut_synced=not loaded.changed,
        )
        self.producers = ProducerSnapshots(
            fs, directory, loaded.producer_state, loaded.snapshots, self.segments.active, self.durability
        )
        unsynced = self.durability.unsynced
        if loaded.changed:
            unsynced.directories.append(directory)
            unsynced.active_cut = True
            # with the segment that ends at the recovery point: it may have been cut, and have other indexes
            unsynced.segments = loaded.segments[self.segments.number_of(loaded.recovery_point - 1) : -1]

    # --- growth ------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Buffer,
        first_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        offset_of_max_timestamp: int,
        config: LogConfig,
        now_ms: int,
        state: ProducerState,
    ) -> Segment:
        """Writes batches to the active segment, or to a new one where it is full; returns that segment. `state` is that
        of producers before these batches."""
        segment = self.segments.active
        if segment.should_roll(
            size_bytes=len(batches),
            last_offset=last_offset,
            max_timestamp_ms=max_timestamp_ms,
            now_ms=now_ms,
            segment_bytes=config.segment_bytes,
            segment_ms=config.longest_segment_ms - self._jitter_ms,
            segment_index_bytes=config.segment_index_bytes,
        ):
            segment = self._next(first_offset, len(batches), config, state)
        try:
            if self._is_unnamed:
                self._begin(segment, config)
            segment.append(
                batches,
                first_offset=first_offset,
                last_offset=last_offset,
                max_timestamp_ms=max_timestamp_ms,
                offset_of_max_timestamp=offset_of_max_timestamp,
                index_interval_bytes=config.index_interval_bytes,
            )
        except OSError as problem:
            if not segment.size or problem.errno != errno.EFBIG:
                raise
            # A limit of the process or filesystem, below segment.bytes: another file takes as much again.
            self.roll(first_offset, config, state)
            return self.append(
                batches, first_offset, last_offset, max_timestamp_ms, offset_of_max_timestamp, config, now_ms, state
            )
        return segment

    def _begin(self, segment: Segment, config: LogConfig) -> None:
        """Makes the files of a log's first segment, unless it has them; the next sync brings their names to the
        disk."""
        if not segment.is_made:
            segment.make(config.preallocated_bytes)
        self.durability.unsynced.directories += [self._directory, os.path.dirname(self._directory)]
        self._is_unnamed = False

    @property
    def may_roll_freely(self) -> bool:
        """Whether the next segment can begin without a sync of the directory: something of the active one is synced."""
        return self.durability.rolls_freely(self.segments.active.base_offset)

    def _next(self, base_offset: int, size_bytes: int, config: LogConfig, state: ProducerState) -> Segment:
        """The segment for batches that no longer belong into the active one: a new one, or without room for that the
        active one, if it has room reserved."""
        active = self.segments.active
        try:
            return self.roll(base_offset, config, state)
        except OSError as problem:
            if not self.room_bytes or problem.errno not in LACKS_ROOM or active.size + size_bytes > _MAX_POSITION:
                raise
            if active is not self._outgrown:
                logger.warning("%s grows on, since there is no room for the next segment: %s", active.path, problem)
            self._outgrown = active
            return active

    def roll(self, base_offset: int, config: LogConfig, state: ProducerState) -> Segment:
        """Begins a segment at the end of the log, `base_offset`, unless an empty one is there. `state` is that of
        producers, and is written beside it."""
        old = self.segments.active
        if not old.size and old.base_offset == base_offset:
            return old
        if old.needs_cut:
            old.cut()
            try:
                old.file.sync()  # a crash must not bring the rest of a failed append back, behind the recovery point
            except OSError:
                self.durability.failed()
                raise
        if not self.may_roll_freely:
            self._fs.sync_directory(self._directory)
        old.finish()
        old.close()
        segment = self._new(base_offset, config)
        state.end_offset = base_offset
        try:
            if self.room_bytes and not segment.file.reserve(self.room_bytes):
                raise OSError(errno.ENOSPC, f"less than {self.room_bytes} bytes are free", segment.path)
            self.producers.write(state, base_offset, old)
            if self.room_bytes:
                old.cut()  # gives back what it has not used of its room
        except OSError:
            segment.discard()
            raise
        unsynced = self.durability.unsynced
        unsynced.segments.append(old)
        unsynced.directories.append(self._directory)
        self._set([*self.segments.all, segment])
        self._jitter_ms = _jitter_ms(config)
        return segment

    def _new(self, base_offset: int, config: LogConfig) -> Segment:
        return Segment.create(
            self._fs,
            self._directory,
            base_offset,
            created_ms=self._clock.now_ms(),
            preallocated_bytes=config.preallocated_bytes,
        )

    def _set(self, segments: list[Segment]) -> None:
        self.producers.discard_load()
        self.segments.replace(segments)

    def finish(self, end_offset: Offset, state: ProducerState | None) -> None:
        """Writes what a closed log has more than an open one: the indexes' ends and, if `state` is given, a snapshot of
        it."""
        active = self.segments.active
        if active.needs_cut:
            active.cut()
        active.finish()
        if state is not None:
            state.end_offset = end_offset
            self.producers.write_within(state, end_offset, active)

    # --- cuts --------------------------------------------------------------------------------------------------

    def place_of(self, offset: Offset) -> tuple[int, Offset]:
        """Where a cut at `offset` is to be made: the number of the last segment that stays, and the first offset to be
        dropped, with which the batch begins that `offset` falls into."""
        number = self.segments.number_of(offset - 1)
        segment = self.segments.all[number]
        position = segment.position_of(offset, blocking=True)
        if position < segment.size:
            offset = min(offset, Offset(segment.header_at(position, blocking=True).base_offset))
        return number, offset

    def cut(self, number: int, offset: Offset) -> Offset:
        """Drops all from the place on that `place_of` has given; the log's new end."""
        dropped = self.segments.all[number + 1 :]
        segment = self.segments.all[number]
        segment.truncate_to(offset)
        end = end_of(segment)
        self._set(self.segments.all[: number + 1])
        self._remove_all(dropped)
        return Offset(end)

    def start_over(self, offset: Offset, config: LogConfig) -> None:
        """Drops everything; an empty segment begins at `offset`."""
        self._remove_all(self.segments.all)
        self._set([self._new(offset, config)])

    def _remove_all(self, segments: Sequence[Segment]) -> None:
        """The newest first: what a crash leaves is a log without its end, and not one without its beginning."""
        for gone in reversed(segments):
            self.segments.remove(gone, self.producers.forget(gone.base_offset))

    # --- removal and replacement -------------------------------------------------------------------------------

    def may_begin_at(self, segment: Segment) -> bool:
        """Whether the segments before this one can be removed: its name is on the disk. If not, the next flush brings
        it there, and the log `awaits_flush`."""
        if segment.base_offset <= self.durability.named_to:
            return True
        self.durability.unsynced.directories.append(self._directory)
        self.durability.awaits_flush = True
        return False

    def take_oldest(self, count: int) -> list[Segment]:
        """Takes the first segments out of the list; they are to be retired."""
        gone = self.segments.all[:count]
        self._set(self.segments.all[count:])
        self.durability.begins_at(self.segments.all, self.segments.all[0].base_offset)
        return gone

    def replace(self, old: Sequence[Segment], new: Segment) -> list[str]:
        """Has `new`, which is on the disk, in the place of segments side by side; the paths that those now have and
        that are to be removed. See `ottla.log.replacement`."""
        first = self.segments.all.index(old[0])
        self._set([*self.segments.all[:first], new, *self.segments.all[first + len(old) :]])
        self.durability.unsynced.keep(self.segments.all)
        self.durability.unsynced.directories.append(self._directory)
        return [
            *self.segments.retire(old[0], None),
            *self.retire(old[1:]),
        ]  # the new one begins with the first one's snapshot

    def retire(self, segments: Sequence[Segment]) -> list[str]:
        """Renames the files of segments that have left the list, and their snapshots; their new paths."""
        return [
            path for gone in segments for path in self.segments.retire(gone, self.producers.forget(gone.base_offset))
        ]
