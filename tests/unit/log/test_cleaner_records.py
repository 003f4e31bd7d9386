"""The quick outlines of records are the same as the obvious ones, and malformed records are refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage
from ottla.log.cleaner_map import MIN_ENTRIES, OffsetMap
from ottla.log.cleaner_records import outlines, rebased
from ottla.records.record import Record, append_record, iter_slices

SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 127, 128, 129, 8190, 8193, 17_000])
RECORDS = st.lists(
    st.builds(
        lambda key, value, name, delta: Record(delta, delta * 40, key, value, ((name, value),)),
        st.one_of(st.none(), SIZES.map(lambda size: b"k" * size)),
        st.one_of(st.none(), SIZES.map(lambda size: b"v" * size)),
        st.text(max_size=3),
        st.sampled_from([-1, 0, 1, 63, 64, 8191, 8192, 2**31 - 1]),
    ),
    max_size=6,
)


def encoded(records: list[Record]) -> bytes:
    out = bytearray()
    for record in records:
        append_record(out, record.offset, record.timestamp_ms, record)
    return bytes(out)


@given(records=RECORDS)
def test_they_are_the_same_as_the_slow_ones(records: list[Record]) -> None:
    data = encoded(records)
    assert outlines(data, len(records)) == [tuple(piece) for piece in iter_slices_in_order(data, len(records))]


def iter_slices_in_order(data: bytes, count: int) -> list[tuple[object, ...]]:
    return [
        (piece.start, piece.end, piece.offset_delta, piece.timestamp_delta, piece.key, piece.has_value)
        for piece in iter_slices(data, count)
    ]


@settings(max_examples=300)
@given(
    records=RECORDS, cut=st.integers(0, 40_000), flip=st.integers(0, 40_000), bit=st.integers(0, 7), more=st.booleans()
)
def test_nonsense_is_refused_or_read_as_the_slow_ones_read_it(
    records: list[Record], cut: int, flip: int, bit: int, more: bool
) -> None:
    data = bytearray(encoded(records))
    if data:
        del data[cut % (len(data) + 1) :]
    if data:
        data[flip % len(data)] ^= 1 << bit
    count = len(records) + more
    try:
        expected = iter_slices_in_order(bytes(data), count)
    except CorruptMessage:
        with pytest.raises(CorruptMessage):
            outlines(bytes(data), count)
    else:
        assert outlines(bytes(data), count) == expected


@given(records=RECORDS, shift_ms=st.integers(-(2**40), 2**40))
def test_rebased_records_differ_in_their_timestamps_alone(records: list[Record], shift_ms: int) -> None:
    data = encoded(records)
    moved = bytes(rebased(data, outlines(data, len(records)), shift_ms))
    back = bytes(rebased(moved, outlines(moved, len(records)), -shift_ms))
    assert back == data
    shifted = [delta for _, _, _, delta, _, _ in outlines(moved, len(records))]
    assert shifted == [record.timestamp_ms + shift_ms for record in records]


def test_the_map_knows_long_and_short_keys_apart() -> None:
    offsets = OffsetMap(0)
    keys = [b"", b"k" * 15, b"k" * 16, b"k" * 17, b"k" * 5000]
    data = encoded([Record(number, 0, key, b"") for number, key in enumerate(keys)])
    offsets.put(outlines(data, 5), 100, 0)
    offsets.put(outlines(data, 5)[:3], 200, 0)
    offsets.latest_offset = 300
    assert [record[2] for record in offsets.newest(outlines(data, 5), 100)] == [3, 4]
    assert len(offsets) == 5
    assert not offsets.is_full
    assert offsets.capacity == MIN_ENTRIES
