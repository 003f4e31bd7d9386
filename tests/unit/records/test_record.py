from collections.abc import Callable
from struct import pack_into

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, InvalidRecord, OttlaError
from ottla.records.batch import Compression, read_header, seal
from ottla.records.control import ControlType, EndTransaction, decode_end_transaction, encode_end_transaction
from ottla.records.record import (
    Record,
    append_varint,
    decode_records,
    decode_values,
    encode_batch,
    iter_slices,
    read_varint,
    unpack_records,
)

_maybe_bytes = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=20), _maybe_bytes), max_size=4).map(tuple)
_rows = st.lists(st.tuples(st.integers(0, 2**41), _maybe_bytes, _maybe_bytes, _headers), min_size=1, max_size=30)


def _records(rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]) -> list[Record]:
    return [Record(i, *row) for i, row in enumerate(rows)]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varint(bytes(out), 0) == (value, len(out))


def test_varints_are_zig_zag() -> None:
    for value, encoded in {0: b"\x00", -1: b"\x01", 1: b"\x02", 63: b"\x7e", 64: b"\x80\x01", -65: b"\x81\x01"}.items():
        out = bytearray()
        append_varint(out, value)
        assert bytes(out) == encoded
    with pytest.raises(CorruptMessage):
        read_varint(b"\xff" * 11, 0)


@settings(max_examples=60)
@given(_rows, st.sampled_from(Compression))
def test_records_round_trip(rows: list[tuple], codec: Compression) -> None:  # type: ignore[type-arg] # see _rows
    records = _records(rows)
    assert list(decode_records(encode_batch(records, compression=codec))) == records


@settings(max_examples=60)
@given(_rows, st.sampled_from(Compression))
def test_aiokafka_reads_what_we_write(rows: list[tuple], codec: Compression) -> None:  # type: ignore[type-arg] # as above
    records = _records(rows)
    theirs = DefaultRecordBatch(bytes(encode_batch(records, compression=codec)))
    assert theirs.validate_crc()
    got = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert got == records


@settings(max_examples=60)
@given(_rows, st.sampled_from(Compression))
def test_we_read_what_aiokafka_writes(rows: list[tuple], codec: Compression) -> None:  # type: ignore[type-arg] # as above
    records = _records(rows)
    builder = DefaultRecordBatchBuilder(2, codec.value, 0, -1, -1, -1, 1 << 20)
    for record in records:
        assert builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    assert list(decode_records(bytes(builder.build()))) == records


def test_header_keys_that_are_no_utf8_survive() -> None:
    record = Record(0, 0, None, None, (("\udcff", b"x"),))
    assert list(decode_records(encode_batch([record]))) == [record]


def test_gaps_and_ends_of_a_compacted_batch_are_kept() -> None:
    records = [Record(12, 5, b"a", None), Record(17, 9, b"b", b"x")]
    batch = encode_batch(records, base_offset=10, last_offset=20)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 20, 2)
    assert list(decode_records(batch)) == records
    empty = read_header(encode_batch([], base_offset=3, last_offset=8))
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (3, 8, 0)
    with pytest.raises(InvalidRecord):
        encode_batch([])


def test_append_time_replaces_the_records_times() -> None:
    batch = encode_batch([Record(0, 5, None, b"x"), Record(1, 6, None, b"y")], log_append_time_ms=99)
    assert [r.timestamp_ms for r in decode_records(batch)] == [99, 99]


def test_slices_outline_the_records() -> None:
    records = [Record(0, 5, b"key", None), Record(1, 7, None, b"value", (("h", b""),))]
    batch = encode_batch(records)
    pieces = list(iter_slices(unpack_records(batch, read_header(batch)), 2))
    assert [(p.key, p.has_value, p.offset_delta, p.timestamp_delta) for p in pieces] == [
        (b"key", False, 0, 0),
        (None, True, 1, 2),
    ]
    assert pieces[1].start == pieces[0].end


@pytest.mark.parametrize("count", [0, 1, 3, -1, 2**31 - 1])
def test_a_lying_record_count_is_corrupt(count: int) -> None:
    batch = encode_batch([Record(0, 1, b"a", b"b"), Record(1, 1, b"a", b"b")])
    pack_into(">i", batch, 57, count)
    seal(batch)
    with pytest.raises(CorruptMessage):
        list(decode_records(batch))


@settings(max_examples=300)
@given(st.data())
def test_damaged_records_never_crash_the_decoder(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Compression))
    batch = encode_batch(
        [Record(i, i, b"key%d" % i, b"value" * i, (("h", b"x"),)) for i in range(5)], compression=codec
    )
    at = data.draw(st.integers(57, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    try:
        list(decode_records(batch, max_bytes=1 << 20))
    except OttlaError as problem:
        assert isinstance(problem, CorruptMessage)  # noqa: PT017 # either all is well or it is this


def _values_by(decode: Callable[[bytearray], list[bytes | None]], batch: bytearray) -> list[bytes | None] | str:
    try:
        return decode(batch)
    except CorruptMessage as problem:
        return str(problem)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 2**41), st.none() | st.binary(max_size=200)), min_size=1, max_size=20),
    st.none() | st.tuples(st.integers(0, 2**16), st.integers(0, 255)),
    st.booleans(),
    st.sampled_from(Compression),
)
def test_values_alone_are_those_of_the_records(
    rows: list[tuple[int, bytes | None]], damage: tuple[int, int] | None, has_keys: bool, codec: Compression
) -> None:
    records = [Record(i, at, b"k" if has_keys and i % 3 else None, value) for i, (at, value) in enumerate(rows)]
    batch = encode_batch(records, compression=codec)
    if damage is not None:
        batch[61 + damage[0] % (len(batch) - 61)] = damage[1]
    header = read_header(batch)
    expected = _values_by(lambda it: [record.value for record in decode_records(it, header)], batch)
    assert _values_by(lambda it: decode_values(it, header), batch) == expected


def test_end_markers_round_trip() -> None:
    for kind in ControlType:
        marker = EndTransaction(kind, 5, 1234)
        batch = encode_end_transaction(marker, producer_id=3, producer_epoch=1)
        header = read_header(batch)
        assert header.is_control
        assert header.is_transactional
        assert decode_end_transaction(batch, header) == marker
    emptied = encode_batch([], base_offset=4, control=True)
    assert decode_end_transaction(emptied, read_header(emptied)) is None
    other = encode_batch([Record(0, 0, b"\0\0\0\2", b"\0\0\0\0\0\0")], control=True)
    with pytest.raises(InvalidRecord):
        decode_end_transaction(other, read_header(other))


def test_a_header_without_a_key_is_corrupt() -> None:
    batch = encode_batch([Record(0, 1, None, None, (("", b"x"),))])
    batch[-3] = 1  # the length of the header's key, as a varint: -1
    seal(batch)
    with pytest.raises(CorruptMessage, match="a record header without a key"):
        list(decode_records(batch))


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    """KIP-534; the records keep their times."""
    batch = encode_batch([Record(0, 1_000, b"k", None)], delete_horizon_ms=5_000)
    header = read_header(batch)
    assert header.delete_horizon_ms == header.base_timestamp == 5_000
    assert [record.timestamp_ms for record in decode_records(batch)] == [1_000]


def test_an_incomplete_control_record_is_no_marker() -> None:
    for key, value in ((None, b"\0\0\0\0\0\0"), (b"\0\0", b"\0\0\0\0\0\0"), (b"\0\0\0\1", None)):
        batch = encode_batch([Record(0, 0, key, value)], control=True)
        with pytest.raises(InvalidRecord, match="is incomplete"):
            decode_end_transaction(batch, read_header(batch))
