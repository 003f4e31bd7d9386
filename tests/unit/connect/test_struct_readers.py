"""Readers of structs in C against the decoders after a parser: what one takes, the other makes the same of."""

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.connect.converters import json_readers
from ottla.connect.converters.json_decoders import JsonDecoders
from ottla.connect.converters.json_readers import struct_reader
from ottla.connect.errors import BadRecord
from ottla.connect.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    STRING,
    Schema,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    struct_of,
    time,
    timestamp,
)

pytestmark = pytest.mark.skipif(not json_readers.IS_NATIVE, reason="not compiled: there is no compiler")

HEAD = b'{"schema":{},"payload":'
INNER = struct("Inner", n=INT64, t=STRING.as_optional(), d=decimal(3))
ORDER = struct(
    "Order",
    id=INT8,
    note=STRING.as_optional(),
    amount=decimal(2),
    at=timestamp(),
    day=date(),
    time=time(),
    size=FLOAT64.as_optional(),
    small=FLOAT32,
    yes=BOOLEAN,
    blob=BYTES,
    tags=array(STRING).as_optional(),
    more=map_of(STRING, INT64),
    inner=INNER.as_optional(),
    filled=Schema(Type.INT32, default=7, has_default=True),
    last=STRING,
)
WRITTEN: dict[str, Any] = {
    "id": -128, "note": 'a "quoted"\n\té', "amount": "AQI=", "at": 1_760_000_000_123, "day": 20000, "time": 1,
    "size": 1.5, "small": 2, "yes": True, "blob": "/w==", "tags": ["a", "b"], "more": {"a": 1},
    "inner": {"n": 9, "t": None, "d": "/w=="}, "filled": None, "last": "",
}  # fmt: skip


def read(schema: Schema, text: str | bytes, *unread: str) -> dict[str, Any] | None:
    made = struct_reader(schema, JsonDecoders(fill=True), unread)
    assert made is not None
    payload = text.encode() if isinstance(text, str) else text
    return made.read(HEAD + payload + b"}", HEAD)


def decoded(schema: Schema, text: bytes) -> Any:
    return JsonDecoders(fill=True).of(schema)(json.loads(text, parse_float=Decimal))


def compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def test_what_kafka_writes_is_read_in_one_pass() -> None:
    text = compact(WRITTEN)
    found = read(ORDER, text)
    assert found is not None
    assert repr(found) == repr(decoded(ORDER, text.encode()))
    assert list(found) == list(WRITTEN)


def test_fields_that_are_not_read_are_left_out_and_must_be_json() -> None:
    schema = struct("s", a=STRING, b=INT64, c=ORDER.as_optional())
    rest = compact(WRITTEN)
    assert read(schema, f'{{"a":"é\\n","b":1,"c":{rest}}}', "a", "c") == {"b": 1}
    for wrong in ('"a', '"\\x"', "01", "-", "1.", "nul", "[1,]", "{1:2}", '{"a" :1}', "[" * 100 + "]" * 100, '"\n"'):
        assert read(schema, f'{{"a":"","b":1,"c":{wrong}}}', "a", "c") is None, wrong
    assert read(schema, b'{"a":"\xff","b":1,"c":null}', "a", "c") is None


@pytest.mark.parametrize("text", [
    '{"n":1,"t":null}', '{"t":null,"n":1,"d":"AA=="}', '{"n":1 ,"t":null,"d":"AA=="}', '{"n":1,"t":null,"d":"AA==",}',
    '{"n":null,"t":null,"d":"AA=="}', '{"n":1,"t":"\\u0041","d":"AA=="}', '{"n":1.0,"t":null,"d":"AA=="}',
    '{"n":1000000000000000000,"t":null,"d":"AA=="}', '{"n":1,"t":null,"d":"A=A="}', '{"n":1,"t":null,"d":"AAA"}',
    '{"n":1,"t":"\ud800","d":"AA=="}', '{"n":1,"t":null,"d":"AA=="} ', "{}", "", "null", "[]",
])  # fmt: skip
def test_what_is_written_otherwise_is_left_to_the_slower_reader(text: str) -> None:
    assert read(INNER, text.encode("utf-8", "surrogatepass")) is None


@settings(max_examples=300)
@given(st.integers(-(1 << 70), 1 << 70), st.integers(-3, 30))
@example(0, 2)
@example(-1, 0)
@example(-(1 << 47), 5)
def test_decimals_are_those_of_the_decoder(unscaled: int, scale: int) -> None:
    schema = struct_of("s", {"d": decimal(scale)})
    raw = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    text = compact({"d": base64.b64encode(raw).decode()})
    found = read(schema, text)
    assert found is not None
    assert found["d"].as_tuple() == decoded(schema, text.encode())["d"].as_tuple()


@settings(max_examples=300)
@given(st.integers(-62_135_596_800_000 - 99, 253_402_300_799_999 + 99))
@example(951_782_400_000)
@example(-30_609_792_000_000)
@example(-1)
def test_times_are_those_of_the_decoder(ms: int) -> None:
    schema = struct_of("s", {"at": timestamp()})
    text = compact({"at": ms})
    try:
        expected = decoded(schema, text.encode())
    except BadRecord:
        assert read(schema, text) is None
    else:
        assert read(schema, text) == expected


def test_days_of_four_hundred_years_are_those_of_the_calendar() -> None:
    schema = struct_of("s", {"at": timestamp()})
    made = struct_reader(schema, JsonDecoders(fill=True))
    assert made is not None
    ordinals = set()
    for day in range(-100_000, 50_000):
        found = made.read(HEAD + b'{"at":%d}}' % (day * 86_400_000), HEAD)
        assert found is not None
        ordinals.add(found["at"].toordinal() - day)
    assert ordinals == {719_163}


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=3), st.integers(0, 400), st.integers(0, 3))
def test_of_what_is_broken_nothing_is_taken_that_the_decoder_refuses(patch: bytes, at: int, cut: int) -> None:
    text = compact(WRITTEN).encode()
    broken = text[: at % len(text)] + patch + text[at % len(text) + cut :]
    found = read(ORDER, broken)
    if found is not None:
        expected = decoded(ORDER, broken)
        expected["small"] = float(expected["small"])
        assert repr(found) == repr(expected)


scalars = st.one_of(
    st.text(max_size=4), st.integers(-(1 << 64), 1 << 64), st.floats(), st.booleans(), st.none(), st.just("AQI=")
)
kinds = st.sampled_from((STRING, INT8, INT64, FLOAT64, BOOLEAN, BYTES, decimal(1), timestamp(), date(), time(), INNER))


@settings(max_examples=200)
@given(st.lists(st.tuples(kinds, st.booleans(), scalars), min_size=1, max_size=4))
def test_any_value_in_any_field(given_fields: list[tuple[Schema, bool, Any]]) -> None:
    named = {
        f"f{n}": schema.as_optional() if nullable else schema for n, (schema, nullable, _) in enumerate(given_fields)
    }
    schema = struct_of("s", named)
    text = compact({f"f{n}": value for n, (_, _, value) in enumerate(given_fields)}).encode("utf-8", "surrogatepass")
    found = read(schema, text)
    if found is not None:
        assert repr(found) == repr(decoded(schema, text))
