"""The account of what is on the disk never claims more than a model of the disk holds, whatever fails in between."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.ids import Offset
from ottla.log.decisions.durability import Durability, Unsynced

DIRECTORY = "log"


@dataclass(eq=False)
class FakeSegment:
    """The versions of its records: a truncation and another append give an offset a new version."""

    base: int
    versions: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.base + len(self.versions)


@dataclass
class Sync:
    """A sync under way: what it began with."""

    work: Unsynced[FakeSegment]
    end: int
    last_base: int
    generation: int
    rewrites: bool
    pages: dict[int, int]
    names: set[int]
    lost: set[int]
    """Pages lost before it began: not among its `pages`, unless it writes them again."""


class LogOnDisk(RuleBasedStateMachine):
    """A log, and a disk that has a record once a sync of its segment has succeeded that could still see it.

    A failed sync loses all pages that were not on the disk: a later sync does not bring them there unless the ticket
    writes them again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.account: Durability[FakeSegment] = Durability(Offset(0), must_rewrite=False, is_cut_synced=True)
        self.segments = [FakeSegment(0)]
        self.version = 0
        self.on_disk: dict[int, int] = {}
        self.lost: set[int] = set()
        """Versions whose pages a failed sync has marked clean."""
        self.named = {0}
        self.checkpoint = 0
        self.sync: Sync | None = None

    @property
    def end(self) -> int:
        return self.segments[-1].end

    @initialize(count=st.integers(0, 3))
    def begin(self, count: int) -> None:
        self.append(count)

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.version += 1
            self.segments[-1].versions.append(self.version)

    @precondition(lambda self: self.segments[-1].versions)
    @rule()
    def roll(self) -> None:
        old = self.segments[-1]
        if not self.account.rolls_freely(old.base):
            self.named |= {segment.base for segment in self.segments}
        self.account.unsynced.segments.append(old)
        self.account.unsynced.directories.append(DIRECTORY)
        self.segments = [*self.segments, FakeSegment(self.end)]

    @precondition(lambda self: self.sync is None)
    @rule()
    def begin_sync(self) -> None:
        dirty = self.account.is_behind(Offset(self.end))
        if not (dirty or self.account.unsynced):
            return
        rewrites = self.account.must_rewrite
        work = self.account.take()
        covered = [*work.segments, *([self.segments[-1]] if dirty else [])]
        pages = {
            segment.base + at: version
            for segment in covered
            for at, version in enumerate(segment.versions)
            if rewrites or version not in self.lost
        }
        names = {segment.base for segment in self.segments} if work.directories else set()
        generation = self.account.generation
        self.sync = Sync(work, self.end, self.segments[-1].base, generation, rewrites, pages, names, set(self.lost))

    @precondition(lambda self: self.sync is not None)
    @rule()
    def sync_succeeds(self) -> None:
        sync, self.sync = self.sync, None
        assert sync is not None
        # A failure since the sync began has taken pages from it too.
        self.on_disk |= {at: version for at, version in sync.pages.items() if version not in self.lost - sync.lost}
        self.named |= sync.names
        if not self.account.synced(
            Offset(sync.end), last_base=sync.last_base, generation=sync.generation, rewritten=sync.rewrites
        ):
            self.account.given_back(sync.work, self.segments)

    @precondition(lambda self: self.sync is not None)
    @rule()
    def sync_fails(self) -> None:
        sync, self.sync = self.sync, None
        assert sync is not None
        self._lose_pages()
        self.account.given_back(sync.work, self.segments)
        self.account.failed()

    @rule()
    def sync_beside_it_fails(self) -> None:
        """As the one of a roll that cuts off a failed append."""
        self._lose_pages()
        self.account.failed()

    def _lose_pages(self) -> None:
        stored = set(self.on_disk.values())
        self.lost |= {version for segment in self.segments for version in segment.versions if version not in stored}

    @precondition(lambda self: self.sync is None)
    @rule(checkpoint=st.booleans())
    def sync_at_once(self, checkpoint: bool) -> None:
        self.begin_sync()
        if self.sync is not None:
            self.sync_succeeds()
        if checkpoint:
            self.write_checkpoint()

    @precondition(lambda self: self.sync is not None)
    @rule()
    def sync_is_called_off(self) -> None:
        sync, self.sync = self.sync, None
        assert sync is not None
        self.account.given_back(sync.work, self.segments)

    @rule(back=st.integers(1, 4))
    def truncate(self, back: int) -> None:
        offset = max(self.segments[0].base, self.end - back)
        if offset < self.account.recovery_point and self.account.lowered(Offset(offset)):
            self.checkpoint = self.account.checkpointed(Offset(0))[0]
        kept = [segment for segment in self.segments if segment.base < offset] or self.segments[:1]
        del kept[-1].versions[offset - kept[-1].base :]
        self.segments = kept
        self.named &= {segment.base for segment in kept}
        self.account.was_cut(Offset(self.end), self.segments, DIRECTORY)

    @precondition(lambda self: len(self.segments) > 1)
    @rule()
    def delete_the_first(self) -> None:
        if self.segments[1].base > self.account.named_to:
            self.account.unsynced.directories.append(DIRECTORY)
            self.account.awaits_flush = True
            return
        assert self.segments[1].base in self.named, "a crash could take the first segment that stays"
        self.segments = self.segments[1:]
        self.account.begins_at(self.segments, self.segments[0].base)

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = self.account.checkpointed(Offset(0))[0]

    @rule(back=st.integers(1, 4))
    def expect_cut(self, back: int) -> None:
        offset = self.end - back
        if offset < self.account.recovery_point:
            self.account.expect_cut(Offset(max(offset, 0)))

    @rule()
    def cut_is_written(self) -> None:
        self.write_checkpoint()
        self.account.cut_is_written()

    @rule()
    def end_cut(self) -> None:
        self.account.end_cut()

    @invariant()
    def nothing_below_the_recovery_point_is_missing(self) -> None:
        self._is_on_disk_below(self.account.recovery_point)

    @invariant()
    def nothing_below_the_checkpoint_is_missing(self) -> None:
        self._is_on_disk_below(min(self.checkpoint, self.end))

    def _is_on_disk_below(self, offset: int) -> None:
        for segment in self.segments:
            for at, version in enumerate(segment.versions):
                if segment.base + at < offset:
                    assert self.on_disk.get(segment.base + at) == version, (segment.base + at, offset)


TestLogOnDisk = LogOnDisk.TestCase
TestLogOnDisk.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_sync_from_before_a_truncation_says_nothing() -> None:
    account: Durability[FakeSegment] = Durability(Offset(0), must_rewrite=False, is_cut_synced=True)
    account.was_cut(Offset(0), [], DIRECTORY)
    assert account.is_behind(Offset(0)), "the cut has to be synced, even if nothing was appended"
    account.synced(Offset(9), last_base=0, generation=0, rewritten=False)
    assert account.recovery_point == 0
    assert not account.is_cut_synced
    account.synced(Offset(3), last_base=0, generation=account.generation, rewritten=False)
    assert account.recovery_point == 3
    assert account.is_cut_synced


def test_an_expected_cut_needs_one_checkpoint_only() -> None:
    account: Durability[FakeSegment] = Durability(Offset(9), must_rewrite=False, is_cut_synced=True)
    account.expect_cut(Offset(4))
    assert account.checkpointed(Offset(6)) == (4, 4)
    assert account.lowered(Offset(8)), "not written yet"
    account.cut_is_written()
    assert not account.lowered(Offset(5))
    assert account.lowered(Offset(3)), "lower than what the checkpoints say"
    account.end_cut()
    assert account.checkpointed(Offset(0)) == (3, 0)


def test_what_is_cut_off_is_on_the_disk_no_longer() -> None:
    account: Durability[FakeSegment] = Durability(Offset(9), must_rewrite=False, is_cut_synced=True)
    account.was_cut(Offset(3), [], DIRECTORY)
    assert account.recovery_point == 3
    assert account.named_to < 3, "a segment that begins there later has a name of its own"


def test_a_sync_beside_which_another_has_failed_does_not_count() -> None:
    state = LogOnDisk()
    state.begin(count=1)
    state.roll()
    state.begin_sync()
    state.sync_beside_it_fails()
    state.sync_succeeds()
    state.sync_at_once(checkpoint=False)
    state.nothing_below_the_recovery_point_is_missing()
    state.teardown()
