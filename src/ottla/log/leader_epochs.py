"""Where each leader's epoch begins in a partition's log (KIP-101, KIP-279): `leader-epoch-checkpoint`."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.ids import LeaderEpoch, Offset
from ottla.log import checkpoints

UNDEFINED_EPOCH: Final = LeaderEpoch(-1)
UNDEFINED_OFFSET: Final = Offset(-1)


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last record; both -1 if unknown."""

    epoch: LeaderEpoch
    end_offset: Offset


class EpochGap(NamedTuple):
    """An epoch that begins within offsets of which compaction has left nothing."""

    epoch: LeaderEpoch
    low: int
    """The first offset at which it may begin."""
    high: int
    """The last one: that of its first record that is left, if there is any."""


class LeaderEpochs:
    """Epochs and start offsets, both ascending. Its owner writes `encode()` to disk when `dirty`."""

    __slots__ = ("_epochs", "_starts", "dirty", "gaps", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.gaps: list[EpochGap] = []
        """Epochs whose beginning a leader is to be asked for, the last one first; ascending, and not on disk."""
        self.latest: int = UNDEFINED_EPOCH
        """The last epoch assigned; -1 if none."""
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def encode(self) -> bytes:
        return checkpoints.encode_epochs(self.entries())

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; entries that contradict it go."""
        if epoch < 0 or start_offset < 0:
            return
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        while self.gaps and (self.gaps[-1].epoch >= epoch or self.gaps[-1].high >= start_offset):
            self.gaps.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.latest = epoch
        self.dirty = True

    def assign_batch(self, epoch: int, end_offset: int, base_offset: int) -> None:
        """Notes that a batch at `base_offset` is of `epoch`, where the log ended at `end_offset` before.

        Between the two, compaction may have removed records of this epoch and of others. Until a leader has been asked,
        the epoch begins at `end_offset`: if it began later than it did, a follower with other records there, of an
        earlier epoch, would not learn that the two diverge.
        """
        if epoch != self.latest:
            self.assign(epoch, min(end_offset, base_offset))
            if base_offset > end_offset and epoch >= 0:
                self.gaps.append(EpochGap(LeaderEpoch(epoch), end_offset, base_offset))

    def settle(self, gap: EpochGap, end_before: EpochEnd) -> None:
        """Notes where the epoch of the last gap begins: where a leader's last epoch before it ends.

        Of that one no record may be left here: then it is the next to ask for. An answer that contradicts this log
        changes nothing.
        """
        if not self.gaps or self.gaps[-1] != gap:
            return  # it was cut off meanwhile, or there is another one after it
        self.gaps.pop()
        at = bisect_left(self._epochs, gap.epoch)
        previous = self._epochs[at - 1] if at else UNDEFINED_EPOCH
        start = int(end_before.end_offset)
        if previous == end_before.epoch == UNDEFINED_EPOCH:
            start = gap.low  # it is the first epoch of both logs
        if not gap.low <= start <= gap.high:
            return
        if at < len(self._epochs) and self._epochs[at] == gap.epoch:
            self._starts[at] = start
        else:
            self._epochs.insert(at, gap.epoch)
            self._starts.insert(at, start)
        self.dirty = True
        if previous < end_before.epoch < gap.epoch and gap.low < start:
            self.gaps.append(EpochGap(end_before.epoch, gap.low, start - 1))

    def earliest(self) -> tuple[LeaderEpoch, Offset] | None:
        """The first epoch known and where it begins."""
        return (LeaderEpoch(self._epochs[0]), Offset(self._starts[0])) if self._epochs else None

    def previous(self, epoch: int) -> LeaderEpoch:
        """The last epoch known before `epoch`; -1 if there is none."""
        found = bisect_left(self._epochs, epoch) - 1
        return LeaderEpoch(self._epochs[found]) if found >= 0 else UNDEFINED_EPOCH

    def start_after(self, epoch: int) -> Offset | None:
        """Where the first epoch above `epoch` begins; None if there is none."""
        following = bisect_right(self._epochs, epoch)
        return Offset(self._starts[following]) if following < len(self._epochs) else None

    def epoch_of(self, offset: int) -> LeaderEpoch:
        """The epoch in which the record at `offset` was written; -1 if unknown."""
        found = bisect_right(self._starts, offset) - 1
        return LeaderEpoch(self._epochs[found]) if found >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: Offset) -> EpochEnd:
        """Where the last epoch up to `epoch` ends: the start of the next one, or the log's end for the latest.

        An epoch before all known ones ends where the first known one begins; one after all known ones is unknown.
        """
        epochs = self._epochs
        if epoch == UNDEFINED_EPOCH or not epochs or epoch > epochs[-1]:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == epochs[-1]:
            return EpochEnd(LeaderEpoch(epoch), log_end_offset)
        following = bisect_right(epochs, epoch)
        found = epochs[following - 1] if following else epoch
        return EpochEnd(LeaderEpoch(found), Offset(self._starts[following]))

    def truncate_end(self, end_offset: int) -> None:
        """Forgets epochs that begin at or after `end_offset`, and those that may and have no record before it."""
        kept = bisect_left(self._starts, end_offset)
        while self.gaps and self.gaps[-1].high >= end_offset:
            kept = min(kept, bisect_left(self._epochs, self.gaps.pop().epoch))
        if kept < len(self._starts):
            del self._epochs[kept:], self._starts[kept:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
            self.dirty = True

    def truncate_start(self, start_offset: int) -> None:
        """Forgets epochs that end before `start_offset`; the one it falls into begins there from now on."""
        passed = bisect_right(self._starts, start_offset)
        if not passed or (passed == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: passed - 1], self._starts[: passed - 1]
        self._starts[0] = start_offset
        self.gaps = [gap for gap in self.gaps if gap.low > start_offset]
        self.dirty = True

    def clear(self) -> None:
        self.truncate_end(0)
