"""What declarations mean, and which of them are refused."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from ottla.protocol import codec, compiled
from ottla.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Records
from ottla.protocol.schema import Message, Struct, fields_of, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned, version_of

CODECS = pytest.mark.parametrize("codec", [codec, compiled], ids=["reference", "compiled"])


@message(versions=(1, 4), flexible=3)
class Parcel(Message):
    weight: Int32
    label: str | None = since(nullable_since=2)
    fragile: bool = since(2, default=True)
    notes: list[str] = since(2, until=3, default_factory=list, ignorable=True)
    owner: Owner | None = since(3, tag=5, default=None, optional=True)
    tracking: uuid.UUID = since(3, tag=2, default=NULL_UUID, ignorable=True)


@struct
class Owner(Struct):
    name: str
    age: Int16 = 7


@message(versions=(0, 1))
class Gap(Message):
    late: Int32 = since(1)


@message(versions=(0, 0))
class Odd(Message):
    strange: dict[str, str]


class Undeclared(Message):
    weight: Int32


def body(module: object, value: Message, version: int) -> bytes:
    return b"".join(module.encode(value, version))  # type: ignore[attr-defined]  # either codec


class TestConstructor:
    def test_takes_keywords_and_fills_in_defaults(self) -> None:
        parcel = Parcel(weight=3, label=None)
        assert (parcel.fragile, parcel.notes, parcel.owner, parcel.tracking) == (True, [], None, NULL_UUID)

    def test_lists_are_not_shared(self) -> None:
        Parcel(weight=1, label="").notes.append("mine")
        assert Parcel(weight=1, label="").notes == []

    def test_refuses_what_a_function_would_refuse(self) -> None:
        with pytest.raises(TypeError, match="missing"):
            Parcel(label="x")  # type: ignore[call-arg]  # the test
        with pytest.raises(TypeError, match="wieght"):
            Parcel(weight=1, label="x", wieght=2)  # type: ignore[call-arg]  # the test
        with pytest.raises(AttributeError):
            Parcel(weight=1, label="x").wieght = 2  # type: ignore[attr-defined]  # the test

    def test_equality_and_repr(self) -> None:
        assert Owner(name="a") == Owner(name="a", age=7) != Owner(name="b")
        assert repr(Owner(name="a")) == "Owner(name='a', age=7)"
        with pytest.raises(TypeError):
            hash(Owner(name="a"))

    def test_undeclared_classes_say_so(self) -> None:
        with pytest.raises(TypeError, match="Undeclared is not declared"):
            Undeclared(weight=1)  # type: ignore[call-arg]  # the test


class TestDeclarations:
    def test_a_field_missing_from_some_version_needs_a_default(self) -> None:
        with pytest.raises(TypeError, match=r"Gap\.late is not in every version"):
            fields_of(Gap)

    def test_a_type_the_protocol_lacks(self) -> None:
        with pytest.raises(TypeError, match=r"Odd\.strange"):
            fields_of(Odd)

    def test_facts_are_on_the_class(self) -> None:
        assert (Parcel.API_KEY, list(Parcel.VERSIONS), Parcel.FLEXIBLE_SINCE) == (None, [1, 2, 3, 4], 3)


@CODECS
class TestBytes:
    """Drawn by hand, so that neither codec is right only because the other is wrong in the same way."""

    def test_each_version(self, codec: Any) -> None:
        assert body(codec, Parcel(weight=5, label="ab"), 1) == b"\0\0\0\5\0\2ab"
        parcel = Parcel(weight=5, label=None, fragile=False, notes=["x"])
        assert body(codec, parcel, 2) == b"\0\0\0\5\xff\xff\0\0\0\0\1\0\1x"
        assert body(codec, parcel, 3) == b"\0\0\0\5\0\0\2\2x\0"
        assert body(codec, parcel, 4) == b"\0\0\0\5\0\0\0"

    def test_tags_are_written_in_order_when_set(self, codec: Any) -> None:
        parcel = Parcel(weight=0, label="", owner=Owner(name="o"), tracking=uuid.UUID(int=1))
        tags = b"\2\2\x10" + bytes(15) + b"\1\5\5\2o\0\7\0"
        assert body(codec, parcel, 4) == b"\0\0\0\0\1\1" + tags

    def test_unknown_tags_are_skipped(self, codec: Any) -> None:
        data = b"\0\0\0\0\1\1\2\x63\3abc\xff\1\0"
        assert codec.decode(Parcel, data, 4) == Parcel(weight=0, label="")

    def test_a_value_the_version_cannot_carry(self, codec: Any) -> None:
        with pytest.raises(UnencodableMessage, match=r"Parcel\.fragile is set, which version 1 cannot carry"):
            body(codec, Parcel(weight=1, label="", fragile=False), 1)
        with pytest.raises(UnencodableMessage, match="owner"):
            body(codec, Parcel(weight=1, label="", owner=Owner(name="")), 2)
        ignored = Parcel(weight=1, label="", notes=["dropped"], tracking=uuid.UUID(int=5))
        assert body(codec, ignored, 1) == body(codec, Parcel(weight=1, label=""), 1)

    def test_a_value_that_does_not_fit(self, codec: Any) -> None:
        for bad in (
            Parcel(weight=2**31, label=""),
            Parcel(weight=0, label=None),
            Parcel(weight=0, label="x" * 32_768),
            Parcel(weight=0, label="\ud800"),
            Parcel(weight="heavy", label=""),  # type: ignore[arg-type]  # the test
        ):
            with pytest.raises(UnencodableMessage):
                body(codec, bad, 1)
        with pytest.raises(UnencodableMessage):
            body(codec, Parcel(weight=0, label="x" * 32_768), 3)
        longest = Parcel(weight=0, label="x" * 32_767)
        assert codec.decode(Parcel, body(codec, longest, 3), 3) == longest

    def test_versions_that_are_not_there(self, codec: Any) -> None:
        for version in (-1, 0, 5):
            with pytest.raises(UnsupportedVersion, match="Parcel has versions 1 to 4"):
                body(codec, Parcel(weight=0, label=""), version)
            with pytest.raises(UnsupportedVersion):
                codec.decode(Parcel, bytes(50), version)

    @pytest.mark.parametrize(
        ("version", "data"),
        [
            (1, b""),
            (1, b"\0\0\0\5\xff\xff"),  # null label
            (1, b"\0\0\0\5\0\3ab"),  # string past the end
            (1, b"\0\0\0\5\0\2\xff\xff"),  # not UTF-8
            (2, b"\0\0\0\5\0\0\0\x7f\xff\xff\xff"),  # two thousand million notes
            (2, b"\0\0\0\5\0\0\0\xff\xff\xff\xff"),  # null notes
            (3, b"\0\0\0\5\1\0\xff\xff\xff\xff\x07"),  # the same, compact
            (3, b"\0\0\0\5\1\0\xff\xff\xff\xff\xff\xff\1"),  # varint without end
            (3, b"\0\0\0\5\x82\x80\2"),  # compact string of 32,769 bytes
            (3, b"\0\0\0\5\1\0\1\1\2\xff\xff\xff\xff\7"),  # tagged field past the end
            (3, b"\0\0\0\5\1\0\1\1\2\x0f" + bytes(16)),  # a UUID in 15 bytes
            (3, b"\0\0\0\5\1\0\1\xff\xff\xff\xff\7"),  # tags without end
        ],
    )
    def test_malformed(self, codec: Any, version: int, data: bytes) -> None:
        with pytest.raises(MalformedMessage, match=f"Parcel version {version}"):
            codec.decode(Parcel, data, version)


class TestVersioned:
    def test_the_version_is_in_front(self) -> None:
        raw = encode_versioned(Parcel(weight=5, label="ab"), 1)
        assert raw == b"\0\1\0\0\0\5\0\2ab"
        assert version_of(raw) == 1
        assert decode_versioned(Parcel, memoryview(raw)) == Parcel(weight=5, label="ab")

    def test_what_is_refused(self) -> None:
        with pytest.raises(MalformedMessage):
            decode_versioned(Parcel, b"\0")
        with pytest.raises(UnsupportedVersion):
            decode_versioned(Parcel, b"\xff\xff")
        with pytest.raises(MalformedMessage):
            decode_versioned(Parcel, b"\0\1\0")


@message(versions=(0, 0))
class Nested(Message):
    wanted: list[str | None]


@message(versions=(0, 0), flexible=0)
class Loaded(Message):
    load: Records = since(0, tag=0, default=None)


@message(versions=(0, 1), flexible=1)
class Heavy(Message):
    load: Records


class TestRefusedDeclarations:
    def test_elements_of_arrays_are_not_null(self) -> None:
        with pytest.raises(TypeError, match=r"Nested\.wanted: elements of arrays cannot be null"):
            fields_of(Nested)

    @CODECS
    def test_records_are_in_no_tagged_field(self, codec: Any) -> None:
        with pytest.raises((TypeError, UnencodableMessage), match="records cannot be in a tagged field"):
            codec.encode(Loaded(load=b"x"), 0)

    def test_a_field_without_a_default_has_none_to_give(self) -> None:
        weight = next(field for field in fields_of(Parcel) if field.name == "weight")
        with pytest.raises(TypeError, match="field weight has no default"):
            weight.make_default()

    def test_facts_are_shown(self) -> None:
        fields = {field.name: repr(field) for field in fields_of(Parcel)}
        assert fields["weight"].startswith("<weight: int32 ")
        assert fields["notes"] == "<notes: []string 2-3>"


@CODECS
@pytest.mark.parametrize("version", [0, 1])
def test_records_that_may_not_be_null_are_not(codec: Any, version: int) -> None:
    with pytest.raises(UnencodableMessage):
        codec.encode(Heavy(load=None), version)
