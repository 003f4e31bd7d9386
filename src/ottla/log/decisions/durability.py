"""PURE: what of a log is on the disk, and what a sync has to bring there.

The log reports its changes; `take` gives the work of one sync, and `synced`, `failed` or `given_back` its outcome.
The log goes on changing during a sync: `generation` shows whether the outcome of an earlier sync still counts.

A failed fdatasync must not be followed by one that succeeds: the kernel may have marked the pages clean that it could
not write, and the second call would vouch for data that is not there. After a failure `must_rewrite` is set: the next
sync has to write again what is not yet known to be on the disk.

Segments are opaque here: they are compared by identity.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.ids import Offset

SegmentT = TypeVar("SegmentT")


class Unsynced(Generic[SegmentT]):
    """What a log has changed since the last sync was begun, apart from appends to its active segment."""

    __slots__ = ("active_cut", "directories", "paths", "segments")

    def __init__(self) -> None:
        self.active_cut = False
        """The active segment has become shorter."""
        self.segments: list[SegmentT] = []
        """Rolled, with their indexes."""
        self.paths: list[str] = []
        self.directories: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.segments or self.paths or self.directories or self.active_cut)

    def add(self, other: "Unsynced[SegmentT]") -> None:
        """Takes over what another sync could not do."""
        self.active_cut |= other.active_cut
        self.segments = [*other.segments, *self.segments]
        self.paths = _each_once(*other.paths, *self.paths)
        self.directories = _each_once(*other.directories, *self.directories)

    def put_first(self, paths: Iterable[str]) -> None:
        """Sync these paths before the others, also those that are there already."""
        self.paths = _each_once(*paths, *self.paths)

    def keep(self, segments: Iterable[SegmentT]) -> None:
        """Drops the segments that are not among these."""
        kept = set(map(id, segments))
        self.segments = [segment for segment in self.segments if id(segment) in kept]


def _each_once(*names: str) -> list[str]:
    """The names in their order. A disk that fails again and again gives back the same work each time."""
    return list(dict.fromkeys(names))


class Durability(Generic[SegmentT]):
    """The account that one log keeps of what is on the disk."""

    __slots__ = (
        "_cut_is_written",
        "_expected_cut",
        "awaits_flush",
        "generation",
        "is_cut_synced",
        "must_rewrite",
        "named_to",
        "recovery_point",
        "unsynced",
    )

    def __init__(self, recovery_point: Offset, *, must_rewrite: bool, is_cut_synced: bool) -> None:
        self.recovery_point = recovery_point
        """All below it is on the disk."""
        self.named_to: int = recovery_point - 1
        """The names of segments that begin up to here are on the disk."""
        self.generation = 0
        """Counts truncations and failed syncs: the outcome of a sync that began before one of them no longer counts."""
        self.must_rewrite = must_rewrite
        """A sync has failed, or may have in the process before."""
        self.is_cut_synced = is_cut_synced
        """Whether nothing that was cut off can come back in a power failure."""
        self.awaits_flush = False
        """Retention deletes nothing more before the names of newer segments are on the disk."""
        self.unsynced: Unsynced[SegmentT] = Unsynced()
        self._expected_cut: Offset | None = None
        self._cut_is_written = False

    # --- syncs -------------------------------------------------------------------------------------------------

    def is_behind(self, end_offset: Offset) -> bool:
        """Whether the active segment has something to sync in a log that ends there."""
        return self.recovery_point < end_offset or self.unsynced.active_cut

    def take(self) -> Unsynced[SegmentT]:
        """What the sync that begins now has to do besides the active segment."""
        work, self.unsynced = self.unsynced, Unsynced()
        return work

    def synced(self, end_offset: Offset, *, last_base: int, generation: int, rewritten: bool) -> bool:
        """A sync that began in `generation` has brought everything below `end_offset` to the disk, and the names of the
        segments up to the one that begins at `last_base`. Returns False if that no longer counts: another sync has
        failed since, and may have taken pages of this one too. Then its work has to be `given_back`."""
        if generation != self.generation:
            return False
        if rewritten:
            self.must_rewrite = False
        if end_offset > self.recovery_point:
            self.recovery_point = end_offset
        self.named_to = max(self.named_to, last_base)
        self.awaits_flush = False
        self.is_cut_synced = True
        return True

    def failed(self) -> None:
        """A sync has failed: what was not synced before may be lost, and the outcome of a sync under way does not
        count."""
        self.must_rewrite = True
        self.generation += 1

    def given_back(self, work: Unsynced[SegmentT], segments: Iterable[SegmentT]) -> None:
        """A sync has not done its work; the log has these segments now."""
        work.keep(segments)
        self.unsynced.add(work)

    # --- changes of the log ------------------------------------------------------------------------------------

    def rolls_freely(self, active_base: int) -> bool:
        """Whether a segment may begin behind the active one without a sync of the directory before: something of the
        active one is synced. A power failure must not leave a segment without those before it, which may have no
        durable names yet: the log would seem to begin there."""
        return self.recovery_point > active_base

    def lowered(self, offset: Offset) -> bool:
        """What lies from `offset` on is about to be cut off; whether checkpoints have to be written before that, lest a
        crash takes what is appended later for synced."""
        self.recovery_point = min(self.recovery_point, offset)
        return self._expected_cut is None or not self._cut_is_written or offset < self._expected_cut

    def was_cut(self, end_offset: Offset, segments: Iterable[SegmentT], directory: str) -> None:
        """The log in `directory` ends at `end_offset` now, and has these segments."""
        self.generation += 1
        self.named_to = min(self.named_to, end_offset - 1)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.is_cut_synced = False
        self.unsynced.directories.append(directory)
        self.unsynced.active_cut = True
        self.unsynced.keep(segments)

    def begins_at(self, segments: list[SegmentT], first_base: int) -> None:
        """Retention has taken the oldest segments out; these are left."""
        self.recovery_point = Offset(max(self.recovery_point, first_base))
        self.unsynced.keep(segments)

    # --- cuts that are expected --------------------------------------------------------------------------------

    # Many logs may have to be truncated at once, each below its recovery point. Instead of writing the checkpoints of
    # the directory for each of them:
    #     expect_cut, of each  ->  write the checkpoints, once, in a thread  ->  cut_is_written, truncate_to, of each
    # Until the expectation ends, no checkpoint promises more than it allows, whatever is synced meanwhile.

    def expect_cut(self, offset: Offset) -> None:
        """Until `end_cut`, checkpoints say that nothing is synced from `offset` on."""
        self._expected_cut = offset
        self._cut_is_written = False

    def cut_is_written(self) -> None:
        """The checkpoints, as they were prepared since `expect_cut`, are on the disk."""
        self._cut_is_written = self._expected_cut is not None

    def end_cut(self) -> None:
        """The truncation is done, or not to be done any more."""
        self._expected_cut = None
        self._cut_is_written = False

    def checkpointed(self, log_start_offset: Offset) -> tuple[Offset, Offset]:
        """Recovery point and log start, as checkpoints may state them now."""
        expected = self._expected_cut
        if expected is None:
            return self.recovery_point, log_start_offset
        return min(self.recovery_point, expected), min(log_start_offset, expected)
