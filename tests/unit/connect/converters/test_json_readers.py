"""Readers of JSON's bytes against the decoders after a parser: what one takes, the other makes the same of."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.converters.json_converter import JsonConverter, json_text
from ottla.connect.converters.json_decoders import JsonDecoders
from ottla.connect.converters.json_encoders import JsonEncoders
from ottla.connect.converters.json_readers import reader
from ottla.connect.converters.json_schema_text import to_json
from ottla.connect.errors import BadRecord
from ottla.connect.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
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

ORDER = struct("Order", id=INT64, note=STRING.as_optional())
scalars = st.sampled_from(
    (BOOLEAN, BYTES, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, STRING, decimal(2), date(), time(), timestamp())
)
with_default = st.sampled_from(
    (
        Schema(Type.INT32, default=7, has_default=True),
        Schema(Type.STRING, optional=True, default="x", has_default=True),
        Schema(Type.STRING, optional=True, default=None, has_default=True),
    )
)


def optional(schema: Schema) -> Schema:
    return schema.as_optional()


schemas = st.recursive(
    st.one_of(scalars, scalars.map(optional), with_default),
    lambda inner: st.one_of(
        inner.map(array),
        inner.map(lambda items: map_of(STRING, items)),
        inner.map(lambda items: map_of(INT32, items)),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda fields: struct_of("s", fields)),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda fields: struct_of("s", fields, optional=True)
        ),
    ),
    max_leaves=6,
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-200, 200),
    st.floats(),
    st.sampled_from(("", "AQI=", "a\n\\é", "1", "NaN", "\ud800", "\x00")),
)


def fitting(schema: Schema) -> st.SearchStrategy[Any]:
    """Documents that mostly fit a schema."""
    if schema.type is Type.STRUCT:
        fields = {each.name: fitting(each.schema) for each in schema.fields}
        made: st.SearchStrategy[Any] = st.fixed_dictionaries({}, optional=fields)
    elif schema.type is Type.ARRAY:
        assert schema.items is not None
        made = st.lists(fitting(schema.items), max_size=3)
    elif schema.type is Type.MAP:
        assert schema.items is not None
        assert schema.keys is not None
        made = (
            st.dictionaries(st.text(max_size=2), fitting(schema.items), max_size=3)
            if schema.keys.type is Type.STRING
            else st.lists(st.tuples(st.integers(-9, 9), fitting(schema.items)), max_size=3)
        )
    else:
        kinds: dict[Type, st.SearchStrategy[Any]] = {
            Type.STRING: st.text(max_size=3),
            Type.BOOLEAN: st.booleans(),
            Type.FLOAT32: st.floats(),
            Type.FLOAT64: st.floats(),
            Type.BYTES: st.sampled_from(("", "AQI=", "/w==")),
        }
        made = kinds.get(schema.type, st.integers(-128, 127))
    return st.one_of(made, made, made, leaves, st.none())


cases = schemas.flatmap(lambda schema: st.tuples(st.just(schema), fitting(schema)))


@settings(max_examples=60)
@given(cases)
def test_a_reader_makes_of_bytes_what_the_decoder_makes_of_them(case: tuple[Schema, Any]) -> None:
    schema, document = case
    decoders = JsonDecoders(fill=True)
    payload = json.dumps(document).encode()
    try:
        read = reader(schema, decoders)(payload)
    except (ValueError, BadRecord):
        return
    parse_float: Any = Decimal if schema.has(decimal(0).name or "") else float
    expected = decoders.of(schema)(json.loads(payload, parse_float=parse_float))
    assert repr(read) == repr(expected)  # types and order too, and NaN


@settings(max_examples=60)
@given(cases)
def test_a_record_is_read_the_same_whether_its_schema_is_that_of_the_one_before(case: tuple[Schema, Any]) -> None:
    schema, document = case
    head = b'{"schema":' + json_text(to_json(schema, JsonEncoders(fill=True, numeric=False).of)).encode()
    payload = head + b',"payload":' + json.dumps(document).encode() + b"}"
    results = []
    known = JsonConverter({})
    for converter in (JsonConverter({}), known, known, known):
        try:
            results.append(repr(converter.to_value("t", payload)[1]))
        except BadRecord as wrong:
            results.append(str(wrong))
    assert len(set(results)) == 1, results


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b'{"note":"x"}', b'{"id":null}', b'{"id":1.0}', b'{"id":"1"}', b'{"id":true}', b'{"id":1} x',
     b'{"id":9223372036854775808}', b'{"id":1,"note":2}', b'{"id":1,"note":"\xff"}', b'"{}"', b"null", b'{"id":1'],
)  # fmt: skip
def test_what_fits_badly_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        reader(ORDER, JsonDecoders(fill=True))(payload)


def test_what_fits_is_taken() -> None:
    read = reader(ORDER, JsonDecoders(fill=True))
    assert read(b' {"more":[1,{}],"note":null,"id":9223372036854775807} ') == {"id": 9223372036854775807, "note": None}
    assert read(b'{"id":1,"id":2}') == {"id": 2, "note": None}
    assert list(read(b'{"note":"\\u00e9\\n","id":-1}').items()) == [("id", -1), ("note", "é\n")]


def test_a_number_as_a_text_is_read_and_so_is_what_follows() -> None:
    converter = JsonConverter({})
    head = '{"schema":{"type":"double","optional":false},"payload":'
    found = [converter.to_value("t", f"{head}{each}}}".encode())[1] for each in ("1.5", '"2.5"', "3.5", '"4.5"')]
    assert found == [1.5, 2.5, 3.5, 4.5]


def test_decimals_that_are_numbers_keep_their_digits() -> None:
    converter = JsonConverter({"decimal.format": "NUMERIC"})
    schema = decimal(20)
    value = Decimal("1.23456789012345678901")
    payload = converter.to_bytes("t", schema, value)
    assert [converter.to_value("t", payload)[1] for _ in range(3)] == [value] * 3


@pytest.mark.parametrize("written", ['"ten"', '""', "1" + "0" * 400, "[]", "true", "null"])
def test_what_is_no_number_is_refused_by_a_sentence(written: str) -> None:
    with pytest.raises(BadRecord, match="float64"):
        JsonConverter({}).to_value("t", f'{{"schema":{{"type":"double"}},"payload":{written}}}'.encode())


def test_schemas_of_a_topic_are_told_apart_however_they_alternate() -> None:
    names = [f"field{number}" for number in range(20)]
    payloads = {name: JsonConverter({}).to_bytes("t", struct_of("s", {name: INT64}), {name: 5}) for name in names}
    converter = JsonConverter({})
    for name in [*names, *names[:3] * 3, *names]:
        schema, value = converter.to_value("t", payloads[name])
        assert schema == struct_of("s", {name: INT64})
        assert value == {name: 5}


def test_a_zero_with_a_sign_is_the_same_whether_its_schema_is_that_of_the_one_before() -> None:
    """C made -0.0 of the whole number -0, and Python 0.0."""
    converter = JsonConverter({})
    schema = to_json(struct_of("s", {"n": FLOAT64}), JsonEncoders(fill=True, numeric=False).of)
    head = b'{"schema":' + json_text(schema).encode()
    for written, expected in ((b"-0", "0.0"), (b"-0.0", "-0.0"), (b"0", "0.0")):
        payload = head + b',"payload":{"n":' + written + b"}}"
        found = [repr(converter.to_value("t", payload)[1]["n"]) for _ in range(3)]
        assert found == [expected] * 3
