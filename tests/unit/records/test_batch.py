from struct import pack_into

import pytest

from ottla.errors import CorruptMessage, UnsupportedForMessageFormat
from ottla.records.batch import (
    HEADER_SIZE,
    Compression,
    is_intact,
    iter_batches,
    last_batch,
    read_header,
    seal,
)
from ottla.records.record import Record, encode_batch


def _batch(count: int = 3, offset: int = 0, **options: object) -> bytearray:
    records = [Record(offset + i, 1000 + i, b"k", b"v" * i) for i in range(count)]
    return encode_batch(records, **options)  # type: ignore[arg-type] # named options of encode_batch


def test_header_says_what_was_encoded() -> None:
    batch = _batch(
        3, 7, leader_epoch=4, producer_id=9, producer_epoch=2, base_sequence=11, transactional=True,
        compression=Compression.GZIP,
    )  # fmt: skip
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 9, 10)
    assert header.size_bytes == len(batch) == header.end_position
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 11, 13)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert header.is_transactional
    assert not header.is_control
    assert header.compression is Compression.GZIP
    assert header.leader_epoch == 4
    assert is_intact(batch, header)


@pytest.mark.parametrize("cut", [0, 1, 60, 61, 70])
def test_the_last_whole_batch_is_found_by_lengths(cut: int) -> None:
    batches = _batch(3) + _batch(1, 3) + _batch(2, 4)
    assert last_batch(batches + _batch(9, 6)[:cut]) == len(batches) - len(_batch(2, 4))
    assert [header.position for header in iter_batches(batches)][-1] == last_batch(memoryview(batches))


@pytest.mark.parametrize("data", [b"", b"\0" * 60, b"\0" * 61, b"\xff" * 61, _batch(3)[:-1]])
def test_where_there_is_no_whole_batch_none_is_found(data: bytes) -> None:
    assert last_batch(data) == 0


def test_last_sequence_wraps() -> None:
    header = read_header(_batch(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_batches_lie_end_to_end() -> None:
    parts = [_batch(2, 0), _batch(1, 2), _batch(5, 3)]
    headers = list(iter_batches(b"".join(parts)))
    assert [h.base_offset for h in headers] == [0, 2, 3]
    assert [h.position for h in headers] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]


@pytest.mark.parametrize("cut", [1, 11, 60, 61, 100])
def test_incomplete_last_batch_is_refused_or_left_out(cut: int) -> None:
    first, second = _batch(2, 0), _batch(50, 2)
    data = bytes(first + second[:cut])
    with pytest.raises(CorruptMessage):
        list(iter_batches(data))
    assert [h.base_offset for h in iter_batches(data, allow_partial_end=True)] == [0]


def test_every_flipped_bit_past_the_crc_is_noticed() -> None:
    batch = _batch(2)
    header = read_header(batch)
    for bit in range(21 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        assert not is_intact(batch, header)
        batch[bit // 8] ^= 1 << bit % 8


def test_offset_and_leader_epoch_lie_outside_the_crc() -> None:
    batch = _batch(2)
    pack_into(">q", batch, 0, 123456)
    pack_into(">i", batch, 12, 77)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (123456, 77)
    assert is_intact(batch, header)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named(magic: int) -> None:
    batch = _batch(1)
    batch[16] = magic
    with pytest.raises(UnsupportedForMessageFormat, match=f"format {magic}"):
        read_header(batch)


def test_lying_lengths_and_magic_are_corrupt() -> None:
    batch = _batch(1)
    pack_into(">i", batch, 8, 48)
    with pytest.raises(CorruptMessage, match="illegal length"):
        read_header(batch)
    batch = _batch(1)
    batch[16] = 3
    with pytest.raises(CorruptMessage, match="magic 3"):
        read_header(batch)
    with pytest.raises(CorruptMessage, match="too few"):
        read_header(bytes(HEADER_SIZE - 1))


def test_seal_writes_the_crc() -> None:
    batch = _batch(2)
    batch[-1] ^= 0xFF
    assert not is_intact(batch, read_header(batch))
    seal(batch)
    assert is_intact(batch, read_header(batch))


def test_a_codec_that_nobody_has_is_corrupt() -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v")])
    pack_into(">h", batch, 21, 7)
    seal(batch)
    with pytest.raises(CorruptMessage, match="unknown compression id 7"):
        _ = read_header(batch).compression
