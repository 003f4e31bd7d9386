from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.offsets import OffsetRange, Partition, admit, split

A, B, C = (Partition("t", number) for number in range(3))

offsets = st.dictionaries(
    st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 5)), st.integers(0, 10_000), min_size=1
)


def test_a_limit_is_shared_out_by_lag() -> None:
    assert admit({A: 0, B: 100}, {A: 900, B: 200}, 100) == {A: 90, B: 110}


def test_without_a_limit_everything_is_admitted() -> None:
    assert admit({A: 0}, {A: 900, B: 200}, None) == {A: 900, B: 200}


def test_what_rounding_leaves_goes_to_the_longest_lag() -> None:
    assert admit({}, {A: 10, B: 10, C: 11}, 1) == {A: 0, B: 0, C: 1}


def test_a_quiet_partition_does_not_wait_for_a_backlog() -> None:
    assert admit({}, {A: 10_000_000, B: 5, C: 0}, 1_000) == {A: 999, B: 1, C: 0}


def test_a_log_that_shrank_moves_nothing() -> None:
    assert admit({A: 50, B: 0}, {A: 10, B: 10}, 5) == {A: 50, B: 5}


@given(start=offsets, grown=offsets, limit=st.integers(1, 20_000))
def test_batches_stay_within_limit_and_log_and_come_to_the_end(
    start: dict[Partition, int], grown: dict[Partition, int], limit: int
) -> None:
    latest = {partition: start.get(partition, 0) + more for partition, more in grown.items()}
    at = {partition: start.get(partition, 0) for partition in latest}
    batches = 0
    while at != latest:
        end = admit(at, latest, limit)
        assert all(at[partition] <= end[partition] <= latest[partition] for partition in latest)
        taken = sum(end.values()) - sum(at.values())
        assert taken == min(limit, sum(latest.values()) - sum(at.values()))
        at = end
        batches += 1
    assert batches == -(-sum(grown.values()) // limit)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=4), st.integers(0, 12))
def test_pieces_cover_the_ranges_without_gap_or_overlap(sizes: list[tuple[int, int]], pieces: int) -> None:
    whole = [OffsetRange(Partition("t", n), start, start + size) for n, (start, size) in enumerate(sizes)]
    cut = split(whole, pieces)

    def covered(ranges: list[OffsetRange]) -> list[tuple[Partition, int]]:
        return [(each.partition, offset) for each in ranges for offset in range(each.start, each.end)]

    assert covered(cut) == covered(whole)
    assert all(each.start < each.end for each in cut)


def test_a_long_range_is_cut_more_often() -> None:
    assert split([OffsetRange(A, 0, 300), OffsetRange(B, 0, 100)], 4) == [
        OffsetRange(A, 0, 100),
        OffsetRange(A, 100, 200),
        OffsetRange(A, 200, 300),
        OffsetRange(B, 0, 100),
    ]
