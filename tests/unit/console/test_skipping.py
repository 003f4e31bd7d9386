"""What is skipped by its bytes would not have passed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.console.messages import Sent

from ottla.console.expressions import compile_filter
from ottla.console.sight import Sight
from ottla.console.skipping import possible

WORDS = st.sampled_from(["a", "b", "x", "ä", 'q"', "\\", "/", "\u2028", "ab", ""])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
PATHS = st.sampled_from(["value", "value.a", "value.ab.x", "value['ä']", "value.a[0]", "value.x[-1].a", "key", "key.a"])
CONSTANTS = WORDS.map(repr) | st.sampled_from(["1", "0", "-1", "0.5", "null", "true", "[1, 'a']"])
LEAVES = st.one_of(
    st.tuples(PATHS, st.sampled_from(["==", "!=", "<", ">=", "in", "not in"]), CONSTANTS).map(" ".join),
    st.tuples(CONSTANTS, st.sampled_from(["==", "<", ">", "in"]), PATHS).map(" ".join),
    PATHS.map("matches({}, 'a')".format),
    PATHS.map("lower({}) == 'a'".format),
    PATHS.map("len({}) > 0".format),
    PATHS,
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda each: f"({each[0]}{each[1]}{each[2]})"),
        inner.map("not ({})".format),
    ),
    max_leaves=4,
)


@settings(max_examples=400)
@given(FILTERS, DOCUMENTS, DOCUMENTS, st.booleans())
def test_nothing_that_passes_is_skipped(text: str, key: Any, value: Any, ascii_only: bool) -> None:
    sent = Sent(_bytes(key, ascii_only), _bytes(value, ascii_only))
    may = possible(text)
    if may is not None and not may(sent.key(), sent.value()):
        assert not compile_filter(text)(Sight().record(sent))


def _bytes(document: Any, ascii_only: bool) -> bytes | None:
    if isinstance(document, str) or document is None:
        return document.encode() if document is not None else None
    return json.dumps(document, ensure_ascii=ascii_only).encode()


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("value.name == 'alice'", b'{"name": "bob"}', False),
        ("value.name < 'b'", b'{"name": "a"}', True),
        ("value.name < 'b'", b'{"other": "a"}', False),
        ("value.name == 'alice'", b'{"name": "alice"}', True),
        ("value.name == 'alice'", b'{"name": "\\u0061lice"}', True),
        ("value.name == 'alice'", b"\0\0\0\0\1", True),
        ("value.name == 'alice' and value.amount > 1", b'{"name": "alice"}', False),
        ("value.name == 'alice' or value.amount > 1", b'{"amount": 5}', True),
        ("value.name == 'alice' or value.amount > 1", b'{"sum": 5}', False),
        ("100 < value.amount", b'{"sum": 5}', False),
        ("100 < value.amount", b'{"amount": 5, "deep": [{"amount" : 1e2}]}', False),
        ("100 < value.amount", b'{"amount": 5, "deep": [{"amount" : 1.01e2}]}', True),
        ("100 < value.amount", b'{"amount": "500"}', False),
        ("100 < value.amount", b'{"amount": Infinity}', True),
        ("value.amount == 1", b'{"amount":true}', True),
        ("value.amount[0] > 1", b'{"amount":[0]}', True),
        ("'error' in value", b"warning", False),
        ("value.name == 'alice'", None, False),
    ],
)
def test_what_is_skipped(text: str, value: bytes | None, expected: bool) -> None:
    may = possible(text)
    assert may is not None
    assert may(None, value) is expected


@pytest.mark.parametrize(
    "text", ["value.a == null", "not value.a == 'x'", "value.a != 'x'", "offset > 5", "header('x') == 'y'", "1 < 2 < 3"]
)
def test_what_says_nothing_about_bytes(text: str) -> None:
    assert possible(text) is None
