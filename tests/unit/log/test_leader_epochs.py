from random import Random

import pytest

from ottla.ids import LeaderEpoch, Offset
from ottla.log.leader_epochs import EpochEnd, EpochGap, LeaderEpochs

END = Offset(100)


def _epochs() -> LeaderEpochs:
    return LeaderEpochs([(2, 0), (3, 10), (5, 40)])


def test_where_epochs_end() -> None:
    ends = {epoch: tuple(_epochs().end_offset_for(epoch, END)) for epoch in (-1, 0, 2, 3, 4, 5, 6)}
    assert ends == {-1: (-1, -1), 0: (0, 0), 2: (2, 10), 3: (3, 40), 4: (3, 40), 5: (5, 100), 6: (-1, -1)}
    assert LeaderEpochs().end_offset_for(3, END) == (-1, -1)


def test_epochs_of_offsets() -> None:
    epochs = _epochs()
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 39, 40, 1000)] == [2, 2, 3, 3, 5, 5]
    assert LeaderEpochs([(1, 7)]).epoch_of(6) == -1
    assert (epochs.earliest(), epochs.latest) == ((2, 0), 5)
    assert [epochs.previous(epoch) for epoch in (2, 3, 5, 9)] == [-1, 2, 3, 5]


def test_assignments_that_contradict_replace() -> None:
    epochs = _epochs()
    epochs.assign(5, 60)
    assert not epochs.dirty
    epochs.assign(7, 40)
    assert epochs.entries() == [(2, 0), (3, 10), (7, 40)]
    epochs.assign(4, 20)
    assert epochs.entries() == [(2, 0), (3, 10), (4, 20)]
    epochs.assign(9, 5)
    assert epochs.entries() == [(2, 0), (9, 5)]
    epochs.assign(-1, 50)
    assert epochs.dirty
    assert epochs.latest == LeaderEpoch(9)


def test_truncation() -> None:
    for end, left in ((100, 3), (41, 3), (40, 2), (10, 1), (1, 1), (0, 0)):
        epochs = _epochs()
        epochs.truncate_end(end)
        assert len(epochs.entries()) == left
        assert epochs.dirty == (left < 3)
    for start, expected in (
        (0, [(2, 0), (3, 10), (5, 40)]),
        (4, [(2, 4), (3, 10), (5, 40)]),
        (10, [(3, 10), (5, 40)]),
        (25, [(3, 25), (5, 40)]),
        (400, [(5, 400)]),
    ):
        epochs = _epochs()
        epochs.truncate_start(start)
        assert epochs.entries() == expected
        assert epochs.dirty == (start > 0)


def _end(epoch: int, end: int) -> EpochEnd:
    return EpochEnd(LeaderEpoch(epoch), Offset(end))


def _with_a_gap() -> tuple[LeaderEpochs, EpochGap]:
    """Batches up to offset 3 in epoch 0, and from 9 on in epoch 4; nothing is left between them."""
    epochs = LeaderEpochs([(0, 0)])
    epochs.assign_batch(4, 4, 9)
    (gap,) = epochs.gaps
    return epochs, gap


def test_an_epoch_begins_where_the_gap_before_its_first_record_does_until_a_leader_is_asked() -> None:
    epochs, gap = _with_a_gap()
    assert epochs.entries() == [(0, 0), (4, 4)]
    epochs.settle(gap, _end(2, 7))  # a leader's answer about epoch 3
    assert epochs.entries() == [(0, 0), (4, 7)]
    (before,) = epochs.gaps
    assert before == (2, 4, 6)
    epochs.settle(before, _end(0, 5))
    assert epochs.entries() == [(0, 0), (2, 5), (4, 7)]
    assert epochs.gaps == []
    assert epochs.dirty


@pytest.mark.parametrize("end", [_end(-1, -1), _end(3, 3), _end(0, 10)])
def test_an_answer_that_contradicts_the_log_changes_nothing(end: EpochEnd) -> None:
    epochs, gap = _with_a_gap()
    epochs.settle(gap, end)
    assert (epochs.entries(), epochs.gaps) == ([(0, 0), (4, 4)], [])
    epochs.settle(gap, _end(0, 5))  # nobody asked
    assert epochs.entries() == [(0, 0), (4, 4)]


def test_the_first_epoch_of_both_logs_begins_where_this_one_does() -> None:
    epochs = LeaderEpochs()
    epochs.assign_batch(1, 0, 9)
    epochs.settle(epochs.gaps[0], _end(0, 5))
    assert epochs.entries() == [(1, 5)]
    epochs.settle(epochs.gaps[0], _end(-1, -1))
    assert (epochs.entries(), epochs.gaps) == ([(0, 0), (1, 5)], [])


def test_epochs_without_offsets_are_not_asked_for() -> None:
    epochs, gap = _with_a_gap()
    epochs.settle(gap, _end(3, 4))
    assert (epochs.entries(), epochs.gaps) == ([(0, 0), (4, 4)], [])
    epochs.assign_batch(4, 10, 20)
    epochs.assign_batch(5, 21, 21)
    assert (epochs.entries(), epochs.gaps) == ([(0, 0), (4, 4), (5, 21)], [])


def test_every_copy_of_a_compacted_log_has_the_epochs_of_the_first_one() -> None:
    """Whatever is left of it, wherever it is cut off meanwhile, and whenever the leader is asked."""
    for seed in range(300):
        random = Random(seed)
        base, epoch = random.randrange(3), 0
        first = base
        batches: list[tuple[int, int, int]] = []
        for _ in range(random.randrange(1, 14)):
            epoch += random.choice([0, 0, 1, 3])
            batches.append((epoch, base, base + random.randrange(1, 4)))
            base = batches[-1][2]
        leader = LeaderEpochs()
        for epoch, start, _ in batches:
            leader.assign(epoch, start)
        for _ in range(3):
            batches = [*(each for each in batches[:-1] if random.random() < 0.6), batches[-1]]
            copy, end, cuts = LeaderEpochs(), first, 2
            left = list(batches)
            while left or copy.gaps:
                if copy.gaps and (not left or random.random() < 0.4):
                    gap = copy.gaps[-1]
                    copy.settle(gap, leader.end_offset_for(LeaderEpoch(gap.epoch - 1), Offset(base)))
                elif cuts and random.random() < 0.2:
                    cuts, cut = cuts - 1, random.randrange(first, end + 1)
                    left = [each for each in batches if each[2] > cut]
                    end = max((kept[2] for kept in batches if kept[2] <= cut), default=first)
                    copy.truncate_end(min(cut, end))
                elif left:
                    epoch, start, after = left.pop(0)
                    copy.assign_batch(epoch, end, start)
                    end = after
                assert copy.entries() == sorted(copy.entries())
            assert copy.entries() == leader.entries(), seed
            leader = copy


def test_gaps_that_are_cut_off_are_forgotten() -> None:
    for cut in (
        lambda epochs: epochs.truncate_end(9),
        lambda epochs: epochs.truncate_start(4),
        lambda epochs: epochs.assign(3, 9),
    ):
        epochs, _ = _with_a_gap()
        cut(epochs)
        assert epochs.gaps == []
    epochs, gap = _with_a_gap()
    epochs.truncate_end(9)
    assert epochs.entries() == [(0, 0)]  # its only batch begins there
    epochs, gap = _with_a_gap()
    epochs.truncate_end(10)
    epochs.truncate_start(3)
    epochs.assign(7, 10)
    assert epochs.gaps == [gap]


def test_the_file() -> None:
    assert _epochs().encode() == b"0\n3\n2 0\n3 10\n5 40\n"
