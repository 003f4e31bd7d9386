"""Columns hidden and cut off: what becomes of values, and which rule counts."""

import hashlib

import pytest

from ottla.connect.connectors.capture.masks import Masks
from ottla.connect.connectors.capture.types import ZONED_TIMESTAMP
from ottla.connect.schema import BYTES, INT64, STRING

ABC = hashlib.sha256(b"pepperabc").hexdigest()


def changed(rule: str, value: object, *, length: int | None = None) -> object:
    mask = Masks({rule: "public.people.name, other.*"}).of("public.People.name", STRING, length)
    assert mask is not None
    return mask.change(value)


def test_asterisks_stand_for_every_value_and_for_none() -> None:
    assert changed("column.mask.with.3.chars", "secret") == "***"
    assert changed("column.mask.with.3.chars", None) == "***"


def test_hashes_are_of_the_salt_and_the_text_and_fit_the_column() -> None:
    rule = "column.mask.hash.v2.SHA-256.with.salt.pepper"
    assert changed(rule, "abc") == ABC
    assert changed(rule, "abc", length=10) == ABC[:10]
    assert changed(rule, None) is None


@pytest.mark.parametrize(
    ("text", "serialized"),
    [
        ("abc", b"\xac\xed\x00\x05t\x00\x03abc"),
        ("\0ü😀", b"\xac\xed\x00\x05t\x00\x0a\xc0\x80\xc3\xbc\xed\xa0\xbd\xed\xb8\x80"),
        ("x" * 65_536, b"\xac\xed\x00\x05|\x00\x00\x00\x00\x00\x01\x00\x00" + b"x" * 65_536),
    ],
    ids=["plain", "modified", "long"],
)
def test_the_older_hash_is_of_javas_serialized_form(text: str, serialized: bytes) -> None:
    found = changed("column.mask.hash.SHA-1.with.salt.a.b", text)
    assert found == hashlib.sha1(b"a.b" + serialized, usedforsecurity=False).hexdigest()


def test_texts_are_cut_where_java_counts_and_short_columns_are_left_alone() -> None:
    rule = "column.truncate.to.3.chars"
    assert [changed(rule, each) for each in ("abcd", "ab", None, b"abcd")] == ["abc", "ab", None, b"abc"]
    assert changed(rule, "a😀😀") == "a😀"
    assert Masks({rule: ".*"}).of("a.b.c", STRING, 3) is None


def test_only_texts_are_masked_and_the_first_rule_counts() -> None:
    masks = Masks(
        {
            "topic.prefix": "t",
            "column.mask.hash.MD5.with.salt.s": ".*",
            "column.mask.with.1.chars": r".*\.b",
            "column.truncate.to.2.chars": r".*\.a",
        }
    )
    cut, hidden, hashed = (masks.of(f"s.t.{name}", STRING, None) for name in "abc")
    assert cut is not None
    assert hidden is not None
    assert hashed is not None
    assert (cut.change("xyz"), hidden.change("xyz"), len(hashed.change("xyz"))) == ("xy", "*", 32)
    assert (cut.parameters, hidden.parameters) == ({"truncateLength": "2"}, {"masked": "true"})
    for schema, value in ((INT64, 7), (BYTES, b"7"), (ZONED_TIMESTAMP, "2024-02-29T11:00:00Z")):
        number = masks.of("s.t.b", schema, None)
        assert number is not None
        assert (number.change(value), number.parameters) == (value, {"masked": "true"})
    assert masks.of("nothing", STRING, None) is not None
    assert Masks({}).of("s.t.a", STRING, None) is None


@pytest.mark.parametrize(
    ("rule", "columns", "words"),
    [
        ("column.mask.with.x.chars", "a", "no column would be masked"),
        ("column.mask.hash.SHA-99.with.salt.s", "a", "SHA-99 is no known hash"),
        ("column.truncate.to.3.chars", "(", "no regular expressions"),
    ],
)
def test_a_rule_that_cannot_be_read_is_no_rule_left_alone(rule: str, columns: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Masks({rule: columns})
