from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.errors import CorruptMessage
from ottla.records.batch import Compression, iter_batches
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, decode_records, encode_batch
from ottla.spark.chunk import chunks
from ottla.spark.columns import Aborted, Visible, as_record_batches, collect
from ottla.spark.schema import read_schema

SCHEMA = to_arrow_schema(read_schema(include_headers=True), timezone="UTC")
END = 1 << 40

texts = st.binary(max_size=200)
sizes = st.one_of(st.none(), texts, st.integers(0, 20_000).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Batches end to end, with gaps in offsets inside and between."""
    found, offset = [], draw(st.integers(0, 1 << 35))
    for _ in range(draw(st.integers(1, 4))):
        records = []
        for _ in range(draw(st.integers(1, 12))):
            stamp = draw(st.integers(0, 1 << 41))
            records.append(Record(offset, stamp, draw(sizes), draw(sizes), draw(headers)))
            offset += draw(st.integers(1, 300))
        codec = draw(st.sampled_from([Compression.NONE, Compression.NONE, Compression.ZSTD, Compression.LZ4]))
        found.append(bytes(encode_batch(records, compression=codec)))
    return found


def rows(records: bytes, first: int = 0, end: int = END, visible: Visible | None = None) -> list[dict[str, object]]:
    headers, _ = collect(memoryview(records), first, end, visible)
    return [
        row
        for chunk in chunks(memoryview(records), headers, max_bytes=100)
        for batch in as_record_batches(chunk, "t", 3, first, end, SCHEMA, max_rows=5)
        for row in batch.to_pylist()
    ]


def expected(records: bytes, offsets: Iterable[int]) -> list[tuple[object, ...]]:
    wanted = set(offsets)
    return [
        (each.offset, each.timestamp_ms, each.key, each.value, each.headers)
        for header in iter_batches(records)
        for each in decode_records(records, header)
        if each.offset in wanted
    ]


def outline(row: dict[str, object]) -> tuple[object, ...]:
    stamp = pa.scalar(row["timestamp"], pa.timestamp("us", "UTC")).cast(pa.int64()).as_py() // 1000
    pairs = tuple((each["key"], each["value"]) for each in row["headers"] or ())  # type: ignore[attr-defined]
    assert (row["topic"], row["partition"], row["timestampType"]) == ("t", 3, 0)
    return row["offset"], stamp, row["key"], row["value"], pairs


@settings(deadline=None)
@given(batches(), st.integers(0, 60), st.integers(0, 60))
def test_columns_are_what_the_records_are(found: list[bytes], skipped: int, left: int) -> None:
    records = b"".join(found)
    offsets = [each.offset for header in iter_batches(records) for each in decode_records(records, header)]
    first = offsets[min(skipped, len(offsets) - 1)]
    end = max(first, offsets[-1] + 1 - left)
    wanted = [offset for offset in offsets if first <= offset < end]
    assert [outline(row) for row in rows(records, first, end)] == expected(records, wanted)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.integers(0, 90), min_size=1, max_size=30), min_size=30, max_size=50), st.integers(0, 2))
def test_many_batches_walked_abreast_are_what_the_records_are(values: list[list[int]], long_ones: int) -> None:
    found, offset = [], 0
    for number, sizes in enumerate(values):
        lengths = [9_000, *sizes] if number < long_ones else sizes  # lengths of three bytes
        found.append(batch(offset, *map(bytes, lengths)))
        offset += len(lengths)
    records = b"".join(found)
    assert [outline(row) for row in rows(records)] == expected(records, range(offset))


@pytest.mark.parametrize("damage", [(61, 0x7E), (61, 1), (57, 0x7F), (65, 0xFF)])
def test_damage_among_many_batches_is_found(damage: tuple[int, int]) -> None:
    records = bytearray(b"".join(batch(2 * number, b"one", b"two") for number in range(40)))
    at, value = damage
    records[len(records) // 40 * 7 + at] = value
    headers, _ = collect(memoryview(records), 0, END, None, check_crcs=False)
    (chunk,) = chunks(memoryview(records), headers, max_bytes=100)
    with pytest.raises(CorruptMessage):
        list(as_record_batches(chunk, "t", 0, 0, END, SCHEMA, max_rows=5))


def test_compressed_batches_are_unpacked_a_few_at_a_time() -> None:
    found = [bytes(encode_batch([Record(n, 0, None, bytes(60))], compression=Compression.ZSTD)) for n in range(7)]
    found.insert(2, batch(100, b"plain"))
    records = memoryview(b"".join(found))
    headers = list(iter_batches(records))
    sizes = [len(chunk.headers) for chunk in chunks(records, headers, max_bytes=140)]
    assert sizes == [2, 1, 2, 2, 1]
    assert [len(chunk.headers) for chunk in chunks(records, headers, max_bytes=1)] == [1] * 8


def batch(offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False) -> bytes:
    records = [Record(offset + number, 1_000, None, value) for number, value in enumerate(values)]
    return bytes(
        encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(
        encode_end_transaction(
            EndTransaction(kind, 0, 0), producer_id=producer_id, producer_epoch=0, base_offset=offset
        )
    )


LOG = b"".join(
    (
        batch(0, b"aborted", producer_id=7, transactional=True),
        batch(1, b"plain"),
        batch(2, b"committed", producer_id=8, transactional=True),
        marker(3, 7, ControlType.ABORT),
        batch(4, b"second try", producer_id=7, transactional=True),
        marker(5, 8, ControlType.COMMIT),
        marker(6, 7, ControlType.COMMIT),
    )
)


def test_a_reader_of_committed_records_sees_no_aborted_ones_and_nobody_sees_markers() -> None:
    def values(visible: Visible | None) -> list[object]:
        return [row["value"] for row in rows(LOG, visible=visible)]

    assert values(Visible([Aborted(7, 0)])) == [b"plain", b"committed", b"second try"]
    assert values(None) == [b"aborted", b"plain", b"committed", b"second try"]


def test_the_next_offset_lies_behind_markers_and_never_behind_the_end() -> None:
    assert collect(memoryview(LOG), 0, 100, None)[1] == 7
    assert collect(memoryview(LOG), 0, 5, None)[1] == 5
    assert collect(memoryview(LOG[:-10]), 0, 100, None)[1] == 6  # a batch cut off is asked for again


def test_a_flipped_bit_is_found() -> None:
    damaged = bytearray(batch(0, b"one", b"two"))
    damaged[-3] ^= 1
    with pytest.raises(CorruptMessage, match="offset 0 has a wrong CRC"):
        collect(memoryview(damaged), 0, END, None)


@pytest.mark.parametrize("cut", [(61, 0xFE), (61, 2), (66, 0x7E)])
def test_records_that_do_not_fit_their_batch_are_refused(cut: tuple[int, int]) -> None:
    damaged = bytearray(batch(0, b"one", b"two"))
    damaged[cut[0]] = cut[1]
    headers, _ = collect(memoryview(damaged), 0, END, None, check_crcs=False)
    (chunk,) = chunks(memoryview(damaged), headers, max_bytes=100)
    with pytest.raises(CorruptMessage):
        list(as_record_batches(chunk, "t", 0, 0, END, SCHEMA, max_rows=5))


def test_records_without_a_timestamp_have_none() -> None:
    records = bytes(encode_batch([Record(0, -1, None, b"v")]))
    (row,) = rows(records)
    assert (row["timestamp"], row["timestampType"]) == (None, -1)


def test_a_timestamp_too_far_for_microseconds_is_null() -> None:
    records = bytes(encode_batch([Record(0, 1_000, None, b"v"), Record(1, (1 << 63) // 1_000, None, b"w")]))
    first, second = rows(records)
    assert first["timestamp"] is not None
    assert (second["timestamp"], second["timestampType"]) == (None, 0)


def test_a_header_whose_name_is_not_utf_8_ends_nothing() -> None:
    records = bytearray(encode_batch([Record(0, 0, None, b"v", (("name", b"1"),))]))
    at = records.index(b"name")
    records[at] = 0xFF
    headers = list(iter_batches(memoryview(records)))
    (chunk,) = chunks(memoryview(records), headers, max_bytes=100)
    (found,) = as_record_batches(chunk, "t", 0, 0, END, SCHEMA, max_rows=5)
    assert found.column("headers")[0].as_py() == [{"key": "\ufffdame", "value": b"1"}]
