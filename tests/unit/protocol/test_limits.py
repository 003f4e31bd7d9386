"""The dearest request of each API costs little to decode: elements and bytes are limited where they are read."""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.protocol.message_values import all_messages, empty, narrowed

from ottla.protocol import codec, compiled
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import decode_request_header
from ottla.protocol.limits import BETWEEN_BROKERS, BYTES_PER_ELEMENT_SHIFT, max_elements, max_request_bytes
from ottla.protocol.primitives import Primitive, uvarint
from ottla.protocol.schema import Array, Message, Struct, Type, fields_of

REQUESTS = [cls for cls in all_messages() if max_elements(cls) is not None]
LOOP_S = 0.15  # 50 ms of a core of one's own; a shared one takes three times as long


def with_many(kind: Type, count: int, version: int) -> list[Any]:
    """Values of a type that have `count` elements in one of their arrays, each of them as short as can be."""
    if isinstance(kind, Array):
        is_byte = isinstance(kind.element, Primitive) and kind.element.size == 1
        found: list[Any] = [[empty(kind.element)] * (count << BYTES_PER_ELEMENT_SHIFT if is_byte else count)]
        return found + [[value] for value in with_many(kind.element, count - 1, version)]
    if not isinstance(kind, type):
        return []
    found = []
    for field in fields_of(kind):
        if field.in_version(version):
            for value in with_many(field.type, count, version):
                struct = empty(kind)
                setattr(struct, field.name, value)
                found.append(struct)
    return found


def encoded(message: Message, version: int) -> bytes:
    return b"".join(bytes(piece) for piece in compiled.encode(message, version))  # type: ignore[arg-type]


def narrow(message: Any, version: int) -> Any:
    """As `narrowed`, without building every one of many equal elements."""
    if isinstance(message, list):
        return [narrow(message[0], version)] * len(message) if message else []
    if not isinstance(message, Struct):
        return message
    shell = narrowed(type(message)(**{f.name: empty(f.type) for f in fields_of(type(message))}), version)
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if isinstance(value, list | Struct) and field.in_version(version):
            setattr(shell, field.name, narrow(value, version))
    return shell


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_the_dearest_request(cls: type[Message]) -> None:
    limit = max_elements(cls)
    assert limit is not None
    assert cls.API_KEY is not None
    if cls.API_KEY in BETWEEN_BROKERS:
        return  # of a broker that the cluster knows
    version = cls.VERSIONS[-1]
    for message in with_many(cls, limit - 100, version):
        data = encoded(narrow(message, version), version)
        taken = []
        gc.disable()  # a broker's collector does not look at what was there when it started
        try:
            for _ in range(3):
                begun = time.process_time()
                with suppress(MalformedMessage):  # of elements with tagged fields there may be fewer
                    compiled.decode(cls, data, version)
                taken.append(time.process_time() - begun)
        finally:
            gc.enable()
        assert min(taken) < LOOP_S
    for message in with_many(cls, limit + 1, version):
        data = encoded(narrow(message, version), version)
        with pytest.raises(MalformedMessage, match="more than"):
            compiled.decode(cls, data, version)


@pytest.mark.parametrize("name", ["MetadataRequest", "SyncGroupRequest", "ShareAcknowledgeRequest"])
def test_the_reference_codec_counts_alike(name: str) -> None:
    (cls,) = (cls for cls in REQUESTS if cls.__name__ == name)
    version = cls.VERSIONS[-1]
    for count in (24_900, 25_001):
        for message in with_many(cls, count, version):
            data = encoded(narrow(message, version), version)
            outcomes = []
            for decode in (compiled.decode, codec.decode):
                try:
                    decode(cls, data, version)
                    outcomes.append("")
                except MalformedMessage as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]
            assert ("more than" in outcomes[0]) == (count > 25_000)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_tagged_fields_count(cls: type[Message]) -> None:
    limit = max_elements(cls)
    assert limit is not None
    version = cls.VERSIONS[-1]
    if version < cls.FLEXIBLE_SINCE or any(field.tagged_in(version) for field in fields_of(cls)):
        return
    data = encoded(narrow(empty(cls), version), version)
    assert data[-1] == 0
    unknown = uvarint(5000) + b"\0"
    compiled.decode(cls, data[:-1] + uvarint(1) + unknown, version)
    many = data[:-1] + uvarint(limit + 1) + unknown * (limit + 1)
    for decode in (compiled.decode, codec.decode):
        with pytest.raises(MalformedMessage, match="more than"):
            decode(cls, many, version)


def test_tagged_fields_of_the_header_count() -> None:
    frame = b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01x" + uvarint(1_000_000) + b"\x01\x00" * 1_000_000
    with pytest.raises(MalformedMessage, match="tagged fields"):
        decode_request_header(frame)


def test_ten_thousand_partitions_in_as_many_topics_are_few() -> None:
    from ottla.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics = [
        OffsetCommitRequestTopic(
            name=f"a-topic-with-a-name-of-some-length-{number}",
            partitions=[
                OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="")
            ],
        )
        for number in range(10_000)
    ]
    data = encoded(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 9)
    assert compiled.decode(OffsetCommitRequest, data, 9).topics == topics
    limit = max_request_bytes(ApiKey.OFFSET_COMMIT)
    assert limit is not None
    assert len(data) < limit


def test_what_producers_and_controllers_send_is_limited_by_the_setting_alone() -> None:
    unlimited = {key for key in ApiKey if max_request_bytes(key) is None}
    assert unlimited == {ApiKey.PRODUCE, *BETWEEN_BROKERS}
