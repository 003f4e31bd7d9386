import gzip
import os

import lz4.frame
import pytest
import snappy
import zstandard

from ottla.errors import CorruptMessage
from ottla.records.batch import Compression
from ottla.records.compression import compress, decompress

CODECS = [codec for codec in Compression if codec]
PAYLOADS = [b"", b"a", b"abc" * 50_000, os.urandom(100_000), os.urandom(65_536)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
@pytest.mark.parametrize("level", [None, 1, 9])
def test_round_trip(codec: Compression, payload: bytes, level: int | None) -> None:
    assert bytes(decompress(codec, compress(codec, payload, level))) == payload


@pytest.mark.parametrize("payload", PAYLOADS[1:], ids=len)
def test_others_read_what_we_write(payload: bytes) -> None:
    assert gzip.decompress(compress(Compression.GZIP, payload)) == payload
    assert lz4.frame.decompress(compress(Compression.LZ4, payload)) == payload
    assert lz4.frame.decompress(compress(Compression.LZ4, payload, 12)) == payload
    assert zstandard.ZstdDecompressor().decompress(compress(Compression.ZSTD, payload), len(payload)) == payload


def test_lz4_blocks_are_independent_as_javas_reader_demands() -> None:
    descriptor = compress(Compression.LZ4, b"x" * 100)[4]
    assert descriptor >> 6 == 1
    assert descriptor & 0x20


@pytest.mark.parametrize("payload", PAYLOADS[1:], ids=len)
def test_we_read_what_others_write(payload: bytes) -> None:
    assert decompress(Compression.GZIP, gzip.compress(payload)) == payload
    half = len(payload) // 2
    members = gzip.compress(payload[:half]) + gzip.compress(payload[half:])
    assert decompress(Compression.GZIP, members) == payload
    assert bytes(decompress(Compression.SNAPPY, snappy.compress(payload))) == payload
    assert bytes(decompress(Compression.LZ4, lz4.frame.compress(payload, content_checksum=True))) == payload
    assert bytes(decompress(Compression.ZSTD, zstandard.ZstdCompressor().compress(payload))) == payload


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: Compression) -> None:
    bomb = compress(codec, bytes(20 << 20))
    with pytest.raises(CorruptMessage, match="exceed"):
        decompress(codec, bomb, 1 << 20)
    assert len(decompress(codec, bomb, 20 << 20)) == 20 << 20


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", [b"", b"\x01", b"garbage garbage garbage", b"\x82SNAPPY\x00\x00\x00"])
def test_garbage_is_corrupt(codec: Compression, damage: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decompress(codec, damage)


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_payload_is_corrupt(codec: Compression) -> None:
    whole = compress(codec, os.urandom(5000))
    with pytest.raises(CorruptMessage):
        decompress(codec, whole[: len(whole) // 2])


def test_snappy_in_javas_framing_may_not_end_within_it() -> None:
    whole = compress(Compression.SNAPPY, b"abc" * 20)
    assert whole.startswith(b"\x82SNAPPY")
    for cut, problem in ((12, "within their framing"), (18, "within a block's length")):
        with pytest.raises(CorruptMessage, match=problem):
            decompress(Compression.SNAPPY, whole[:cut])
