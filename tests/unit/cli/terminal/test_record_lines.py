"""Records as lines of text and JSON, both ways."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.terminal.record_lines import (
    BadLine,
    IncomingRecord,
    JsonInput,
    OutgoingRecord,
    TextInput,
    TextOutput,
    for_terminal,
    to_json,
    unescape,
)

JSON_INPUT = JsonInput(now_ms=1_767_225_600_000)
RECORD = IncomingRecord("orders", 3, 17, 1_767_225_600_000, b"k", b"v", [("h", b"1"), ("n", None)])


def test_a_plain_line_is_the_value() -> None:
    assert TextInput().parse(b"a\tb") == OutgoingRecord(b"a\tb")
    assert TextInput().parse(b"") == OutgoingRecord(b"")


def test_key_and_value_split_at_the_first_separator() -> None:
    assert TextInput(b"::").parse(b"k::v::w") == OutgoingRecord(b"v::w", b"k")


def test_headers_come_first_and_values_may_hold_colons() -> None:
    parsed = TextInput(b"|", with_headers=True).parse(b"a:1,b:x:y\tk|v")
    assert parsed == OutgoingRecord(b"v", b"k", [("a", b"1"), ("b", b"x:y")])
    assert TextInput(with_headers=True).parse(b"\tv") == OutgoingRecord(b"v")


def test_null_marker_makes_tombstones() -> None:
    parsed = TextInput(b",", null_marker=b"NULL").parse(b"k,NULL")
    assert parsed == OutgoingRecord(None, b"k")


@pytest.mark.parametrize(
    ("form", "line", "complaint"),
    [
        (TextInput(b"\t"), b"no tab", r"no key separator '\\t'"),
        (TextInput(with_headers=True), b"no tab", "no tab after the headers"),
        (TextInput(with_headers=True), b"a\tv", "'a' is not NAME:VALUE"),
        (JSON_INPUT, b"{", "no JSON"),
        (JSON_INPUT, b"[1]", "no JSON object"),
        (JSON_INPUT, b'{"a": 1}', 'neither "value" nor "key"'),
        (JSON_INPUT, b'{"value": "v", "partition": "x"}', "not a partition number"),
        (JSON_INPUT, b'{"value": "v", "partition": -2}', "not a partition number"),
        (JSON_INPUT, b'{"value_base64": "!"}', "is not base 64"),
        (JSON_INPUT, b'{"value": "v", "headers": "x"}', "neither an object nor a list"),
        (JSON_INPUT, b'{"value": "v", "headers": [["a"]]}', r"is not \[name, value\]"),
        (JSON_INPUT, b'{"value": "v", "timestamp": "soon"}', "is not a time"),
    ],
)
def test_bad_lines_say_why(form: TextInput | JsonInput, line: bytes, complaint: str) -> None:
    with pytest.raises(BadLine, match=complaint):
        form.parse(line)


def test_json_values_that_are_no_strings_stay_json() -> None:
    assert JSON_INPUT.parse('{"key": 1, "value": {"a": [1, "ä"]}}'.encode()) == OutgoingRecord(
        '{"a":[1,"ä"]}'.encode(), b"1"
    )


def test_json_null_and_absent_are_null() -> None:
    assert JSON_INPUT.parse(b'{"key": "k", "value": null}') == OutgoingRecord(None, b"k")
    assert JSON_INPUT.parse(b'{"key": "k"}') == OutgoingRecord(None, b"k")


def test_json_headers_as_object_and_timestamp_as_time() -> None:
    parsed = JSON_INPUT.parse(b'{"value": "v", "headers": {"a": "1", "b": null}, "timestamp": "1s"}')
    assert parsed == OutgoingRecord(b"v", headers=[("a", b"1"), ("b", None)], timestamp_ms=1_767_225_599_000)


nullable_bytes = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8"))


@settings(deadline=None)  # the machine may be busy
@given(
    key=nullable_bytes,
    value=nullable_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3),
    partition=st.integers(0, 100),
    timestamp_ms=st.integers(1, 1 << 50),
)
def test_what_consume_prints_as_json_produce_reads_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp_ms: int,
) -> None:
    line = to_json(IncomingRecord("t", partition, 5, timestamp_ms, key, value, headers))
    assert line.count(b"\n") == 1
    assert JSON_INPUT.parse(line.rstrip(b"\n")) == OutgoingRecord(value, key, headers, partition, timestamp_ms)


def test_json_shape() -> None:
    assert json.loads(to_json(RECORD)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "timestamp_ms": 1_767_225_600_000,
        "headers": [["h", "1"], ["n", None]],
        "key": "k",
        "value": "v",
    }


def test_text_shows_the_value_alone_unless_asked() -> None:
    assert TextOutput().renderer()(RECORD) == b"v\n"


def test_text_shows_the_parts_in_their_order() -> None:
    render = TextOutput(True, True, True, True, True, True, separator=b"|", null_marker=b"-").renderer()
    assert render(RECORD) == b"orders|2026-01-01T00:00:00.000Z|3|17|h:1,n:-|k|v\n"
    assert render(IncomingRecord("t", 0, 0, None, None, None)) == b"t|-|0|0||-|-\n"


def test_a_terminal_is_never_given_control_characters_or_broken_text() -> None:
    assert for_terminal(b"\x1b[2J\xff\ta\n") == "\\x1b[2J\\xff\ta\n"
    assert for_terminal("\x9b1m".encode()) == "\\x9b1m"


def test_separators_may_be_escaped() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape(r"a\x01\\") == b"a\x01\\"
    assert unescape("→") == "→".encode()
