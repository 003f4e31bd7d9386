"""Keys and values as they are shown, whatever is in them."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.values import human_bytes, plain, recognise, show


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", ""),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b" [1]", "json", "[1]"),
        (b'{"a": 1', "text", '{"a": 1'),
        (b"17", "text", "17"),
        ("grün".encode(), "text", "grün"),
        (b"\xff\xfe", "bytes", "ff fe"),
        (b"\0\0\0\x01", "bytes", "00 00 00 01"),
        (b"[" * 100_000, "text", "[" * 2_000),
    ],
)
def test_kinds(data: bytes | None, kind: str, text: str) -> None:
    shown = show(recognise(data))
    assert (shown.kind, shown.text) == (kind, text)


def test_what_is_large_is_cut() -> None:
    shown = show(recognise("ä".encode() * (25 << 20)))
    assert (shown.kind, len(shown.text), shown.size, shown.is_cut) == ("text", 2_000, 50 << 20, True)


def test_json_of_very_many_parts_is_text() -> None:
    assert recognise(b"[" + b"0," * 100_000 + b"0]").kind == "json"
    assert recognise(b"[" + b"[]," * 1_000_000 + b"0]").kind == "text"
    assert recognise(b'{"a": "' + b"x" * 1_000_000 + b'"}').kind == "json"


@given(st.binary(max_size=200))
def test_any_bytes_are_shown(data: bytes) -> None:
    value = recognise(data)
    assert show(value).size == len(data)
    assert isinstance(plain(value), str)


def test_a_whole_record_is_laid_out() -> None:
    assert show(recognise(b'{"a":[1]}'), 100_000).text == '{\n  "a": [\n    1\n  ]\n}'


def test_a_small_value_becomes_no_large_page() -> None:
    """Each of its numbers stands on a line of its own, after 360 spaces."""
    tracemalloc.start()
    try:
        found = show(recognise(b"[" * 180 + b"1," * 50_000 + b"1" + b"]" * 180), 20_000)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert (len(found.text), found.is_cut, found.kind) == (20_000, True, "json")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2.5 TB")],
)
def test_sizes(size: float, text: str) -> None:
    assert human_bytes(size) == text
