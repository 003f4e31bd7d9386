"""The codecs chunk by chunk: what is held is bounded, and nothing is accepted that clients cannot read."""

import gzip
import os
import zlib
from random import Random

import lz4.frame
import pytest

from ottla.errors import CorruptMessage, MessageTooLarge
from ottla.records.batch import Compression
from ottla.records.compression import compress, decompress
from ottla.records.unpacking import CHUNK_BYTES, Packer, unpacked

CODECS = list(Compression)
PAYLOADS = [b"", b"a", b"abc" * 500_000, os.urandom(100_000), bytes(3 << 20)]


def whole(codec: Compression, payload: bytes) -> bytes:
    return b"".join(unpacked(codec, payload))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_chunks_are_small_and_complete(codec: Compression, payload: bytes) -> None:
    packed = compress(codec, payload)
    assert whole(codec, packed) == payload
    assert max((len(chunk) for chunk in unpacked(codec, packed)), default=0) <= CHUNK_BYTES


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
@pytest.mark.parametrize("level", [None, 1, 9])
def test_packed_in_chunks(codec: Compression, payload: bytes, level: int | None) -> None:
    packer = Packer(codec, level, 1 << 24)
    position = 0
    random = Random(len(payload))
    while position < len(payload):
        size = random.choice([1, 100, 40_000, 300_000])
        packer.feed(memoryview(payload)[position : position + size])
        position += size
    packed = bytes(packer.finish())
    assert bytes(decompress(codec, packed)) == payload
    if codec in (Compression.SNAPPY, Compression.LZ4):
        assert packed == compress(codec, payload, level)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_packed_is_bounded(codec: Compression) -> None:
    def pack(pieces: int, max_bytes: int) -> None:
        packer = Packer(codec, None, max_bytes)
        for _ in range(pieces):
            packer.feed(os.urandom(10_000))
        packer.finish()

    pack(4, 50_000)
    for pieces in (6, 100):
        with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
            pack(pieces, 50_000)


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_end_at_the_limit(codec: Compression) -> None:
    seen: list[int] = []
    chunks = unpacked(codec, compress(codec, bytes(20 << 20)), 1 << 20)
    with pytest.raises(MessageTooLarge, match="exceed"):
        seen.extend(map(len, chunks))
    assert sum(seen) <= 1 << 20


@pytest.mark.parametrize("codec", CODECS[1:])
def test_whatever_is_cut_or_left_is_refused(codec: Compression) -> None:
    packed = compress(codec, os.urandom(1000) * 300)
    for cut in (0, 1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptMessage):
            whole(codec, packed[:cut])
    with pytest.raises(CorruptMessage):
        whole(codec, packed + b"\0\1\2")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damage_is_an_error_of_ours_or_goes_unnoticed(codec: Compression) -> None:
    random = Random(codec)
    packed = compress(codec, random.randbytes(500) * 20)
    for _ in range(500):
        damaged = bytearray(packed)
        for _ in range(random.choice([1, 2, 10])):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            whole(codec, bytes(damaged))
        except CorruptMessage:
            continue


def test_several_frames_as_kafkas_clients_read_them() -> None:
    payload = os.urandom(100_000)
    for codec in (Compression.GZIP, Compression.ZSTD):
        assert whole(codec, compress(codec, payload) + compress(codec, b"more")) == payload + b"more"
    with pytest.raises(CorruptMessage, match="bytes left"):
        whole(Compression.LZ4, compress(Compression.LZ4, payload) * 2)
    with pytest.raises(CorruptMessage, match="depend on each other"):
        whole(Compression.LZ4, lz4.frame.compress(payload, block_linked=True))


def test_frames_without_contents_are_limited() -> None:
    with pytest.raises(CorruptMessage, match="bytes left"):
        whole(Compression.GZIP, gzip.compress(b"") * 50_000)


def test_a_lying_snappy_block_allocates_nothing() -> None:
    with pytest.raises(CorruptMessage, match="exceed"):
        whole(Compression.SNAPPY, b"\xff\xff\xff\x7f" + b"x" * 100)


def test_other_containers_than_gzips_are_refused() -> None:
    with pytest.raises(CorruptMessage):
        whole(Compression.GZIP, zlib.compress(b"records"))


def test_zstd_compressors_are_used_again_and_one_batch_leaves_nothing_in_the_next() -> None:
    plain = bytes(range(256)) * 1000

    def packed() -> bytes:
        packer = Packer(Compression.ZSTD, None, 1 << 20)
        packer.feed(plain[:100_000])
        packer.feed(plain[100_000:])
        return bytes(packer.finish())

    first = packed()
    refused = Packer(Compression.ZSTD, None, 10)
    with pytest.raises(MessageTooLarge):
        refused.feed(os.urandom(1 << 20))
    abandoned = Packer(Compression.ZSTD, None, 1 << 20)
    abandoned.feed(b"never finished")
    assert [packed(), packed()] == [first, first]
    assert b"".join(unpacked(Compression.ZSTD, first)) == plain


def test_snappy_without_javas_framing_is_one_block() -> None:
    import snappy

    payload = b"abc" * 10_000
    assert whole(Compression.SNAPPY, snappy.compress(payload)) == payload
    with pytest.raises(CorruptMessage, match="end within their framing"):
        whole(Compression.SNAPPY, compress(Compression.SNAPPY, b"abc")[:12])
