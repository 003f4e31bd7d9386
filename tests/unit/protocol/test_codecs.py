"""The compiled codec against the reference codec, for every message in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.protocol.message_values import all_messages, narrowed, values_of

from ottla.protocol import codec, compiled
from ottla.protocol.errors import MalformedMessage, ProtocolError, UnencodableMessage
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import Int8
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.slices import run_at_once

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def joined(pieces: list[Any]) -> bytes:
    return b"".join(pieces)


def outcome(decode: Any, cls: type[Message], data: bytes, version: int) -> Any:
    try:
        return decode(cls, data, version)
    except ProtocolError as error:
        return type(error)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
class TestEveryMessage:
    @few
    @given(data=st.data())
    def test_both_codecs_agree_and_round_trip(self, cls: type[Message], data: st.DataObject) -> None:
        full = data.draw(values_of(cls))
        for version in cls.VERSIONS:
            message = narrowed(full, version)
            pieces = compiled.encode(message, version)
            encoded = joined(pieces)
            assert pieces == codec.encode(message, version)
            assert compiled.decode_from(cls, encoded, version) == (message, len(encoded))
            assert codec.decode_from(cls, encoded, version) == (message, len(encoded))
            # Anywhere in a larger buffer, of any kind.
            around = memoryview(b"\x01" * 3 + encoded + b"\x7f" * 5)
            assert compiled.decode_from(cls, around, version, 3) == (message, 3 + len(encoded))
            assert codec.decode_from(cls, around, version, 3) == (message, 3 + len(encoded))

    @settings(few, max_examples=2)
    @given(data=st.data())
    def test_in_steps_it_is_the_same(self, cls: type[Message], data: st.DataObject) -> None:
        version = cls.VERSIONS[-1]
        message = narrowed(data.draw(values_of(cls)), version)
        encoded = compiled.encode(message, version)
        assert run_at_once(compiled.encode_steps(bytearray(), message, version)) == encoded
        assert run_at_once(compiled.decode_steps(cls, joined(encoded), version)) == message
        if joined(encoded):
            with pytest.raises(MalformedMessage):
                run_at_once(compiled.decode_steps(cls, joined(encoded)[:-1], version))

    @few
    @given(data=st.data())
    def test_damage_is_malformed_or_another_message(self, cls: type[Message], data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(cls.VERSIONS))
        encoded = joined(compiled.encode(narrowed(data.draw(values_of(cls)), version), version))
        for cut in data.draw(st.lists(st.integers(0, max(0, len(encoded) - 1)), max_size=8)):
            if encoded:
                with pytest.raises(MalformedMessage):
                    compiled.decode(cls, encoded[:cut], version)
                with pytest.raises(MalformedMessage):
                    codec.decode(cls, encoded[:cut], version)
        for _ in range(8):
            damaged = bytearray(encoded)
            for _ in range(data.draw(st.integers(1, 3)) if encoded else 0):
                damaged[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            fast = outcome(compiled.decode, cls, bytes(damaged), version)
            slow = outcome(codec.decode, cls, bytes(damaged), version)
            assert repr(fast) == repr(slow)  # repr, because a flipped float may be a NaN


@message(versions=(0, 0), flexible=0)
class Owner(Message):
    pet: Pet | None
    second: Pet | None = since(0, tag=0, default_factory=lambda: Pet(age=0))


@struct
class Pet(Struct):
    age: Int8


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (Owner(pet=None), "ff00"),
        (Owner(pet=Pet(age=3)), "01030000"),
        (Owner(pet=None, second=None), "ff01000100"),
        (Owner(pet=None, second=Pet(age=3)), "ff010003010300"),
    ],
)
def test_a_structure_that_is_null_is_told_otherwise_in_a_tagged_field(owner: Owner, expected: str) -> None:
    """As Kafka 4.1 writes `ClassicMemberMetadata` of a consumer group's member, its only such field."""
    assert joined(compiled.encode(owner, 0)).hex() == joined(codec.encode(owner, 0)).hex() == expected
    assert compiled.decode(Owner, bytes.fromhex(expected), 0) == owner
    assert codec.decode(Owner, bytes.fromhex(expected), 0) == owner


@message(versions=(0, 2), flexible=1)
class Shelf(Message):
    name: str
    books: list[Book]
    closed: Int8 = 0


@struct
class Book(Struct):
    title: str
    pages: list[Page]
    isbn: str | None = since(1, default=None, ignorable=True)


@struct
class Page(Struct):
    number: Int8


@pytest.mark.parametrize("version", Shelf.VERSIONS)
def test_a_part_that_was_encoded_before_takes_the_place_of_the_structure(version: int) -> None:
    first = Book(title="a", pages=[Page(number=1), Page(number=2)], isbn="x")
    second = Book(title="b", pages=[])
    whole = Shelf(name="s", books=[first, second, first], closed=1)
    part = compiled.encode_part(first, Shelf, version)
    mixed: list[Any] = [part, second, part]
    spliced = Shelf(name="s", books=mixed, closed=1)

    assert joined(compiled.encode(spliced, version)) == joined(codec.encode(whole, version))
    assert joined(codec.encode(spliced, version)) == joined(codec.encode(whole, version))


def test_a_part_of_a_version_that_is_not_there_is_refused() -> None:
    with pytest.raises(ProtocolError):
        compiled.encode_part(Page(number=1), Shelf, 3)
    with pytest.raises(ProtocolError, match="Page version 2"):
        compiled.encode_part(Page(number=1000), Shelf, 2)


@pytest.mark.parametrize("version", [4, 7])
@pytest.mark.parametrize(("letter", "shown"), [("x", 32_763), ("\u20ac", 10_921)])
def test_the_text_of_an_error_is_cut_to_what_a_string_may_have(version: int, letter: str, shown: int) -> None:
    """Whoever makes the answer need not know how much of a request its text repeats."""
    topics = [CreatableTopicResult(name="t", error_message=text) for text in (letter * 75_000, letter * 10_000, None)]
    answer = CreateTopicsResponse(topics=topics)
    encoded = compiled.encode(answer, version)
    assert encoded == codec.encode(answer, version)
    assert encoded == run_at_once(compiled.encode_steps(bytearray(), answer, version))
    read = compiled.decode(CreateTopicsResponse, joined(encoded), version).topics
    assert [topic.error_message for topic in read] == [letter * shown + " ...", letter * 10_000, None]


def test_other_strings_that_are_too_long_are_refused() -> None:
    answer = CreateTopicsResponse(topics=[CreatableTopicResult(name="t" * 32_768)])
    for encode in (codec.encode, compiled.encode):
        with pytest.raises(UnencodableMessage, match="a string of 32768 bytes is too long"):
            encode(answer, 7)


def test_large_messages_have_many_steps() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(1000)])
    assert len(list(compiled.encode_steps(bytearray(), request, 13))) > 50
    assert len(list(compiled.decode_steps(MetadataRequest, joined(compiled.encode(request, 13)), 13))) > 50
