"""Records are neither copied nor looked at, on the way in and on the way out."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from ottla.protocol import codec, compiled
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CODECS = pytest.mark.parametrize("codec", [codec, compiled], ids=["reference", "compiled"])


class Region:
    """Something that is sent without being read, such as a part of a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def produce(*records: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=value) for index, value in enumerate(records)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def fetched(*records: Any) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=9, aborted_transactions=None, records=value)
        for index, value in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@CODECS
class TestRecords:
    @pytest.mark.parametrize("version", [3, 9, 12])
    def test_decoding_gives_views_of_the_input(self, codec: ModuleType, version: int) -> None:
        frame = bytearray(b"".join(codec.encode(produce(b"first", b"", None, bytes(200)), version)))
        decoded = codec.decode(ProduceRequest, memoryview(frame), version)
        views = [partition.records for partition in decoded.topic_data[0].partition_data]
        assert views == [b"first", b"", None, bytes(200)]
        assert all(isinstance(view, memoryview) and view.obj is frame for view in views if view is not None)
        frame[frame.index(b"first")] = ord("F")
        assert views[0] == b"First"

    @pytest.mark.parametrize("version", [4, 11, 12, 17])
    def test_encoding_passes_values_through(self, codec: ModuleType, version: int) -> None:
        view, region = memoryview(bytes(20_000)), Region(3_000_000)
        sliced = [b"one", Region(4), b"three"]
        pieces = codec.encode(fetched(view, region, sliced, tuple(sliced), None, []), version)
        kept = [piece for piece in pieces if not isinstance(piece, bytearray)]
        assert [id(piece) for piece in kept] == [id(piece) for piece in (view, region, *sliced, *sliced)]

        whole = b"".join(bytes(len(piece)) if isinstance(piece, Region) else piece for piece in pieces)
        partitions = codec.decode(FetchResponse, whole, version).responses[0].partitions
        assert [None if p.records is None else len(p.records) for p in partitions] == [
            20_000,
            3_000_000,
            12,
            12,
            None,
            0,
        ]
        assert partitions[2].records == b"one\0\0\0\0three"

    @pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
    def test_every_width_of_length(self, codec: ModuleType, size: int) -> None:
        encoded = b"".join(codec.encode(produce(bytes(size), b"next"), 9))
        first, second = codec.decode(ProduceRequest, encoded, 9).topic_data[0].partition_data
        assert (len(first.records), bytes(second.records)) == (size, b"next")


def test_both_codecs_split_alike() -> None:
    for version in FetchResponse.VERSIONS:
        message = fetched(b"a", [b"b", b"c"], None, [], b"", (b"d",))
        assert codec.encode(message, version) == compiled.encode(message, version)
