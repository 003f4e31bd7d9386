from ottla.ids import LeaderEpoch, Offset
from ottla.log.leader_epochs import LeaderEpochs

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


def test_the_file() -> None:
    assert _epochs().encode() == b"0\n3\n2 0\n3 10\n5 40\n"
