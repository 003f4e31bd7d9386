"""What a viewer sees of a record: decoded, then masked."""

from tests.unit.console.messages import Sent

from ottla.console.access.masks import MASKED, parse_masks
from ottla.console.collecting import Found
from ottla.console.expressions import compile_columns, compile_filter
from ottla.console.sight import Sight
from ottla.console.values import Decoded

SENT = Sent(b'{"id": 1}', b'{"card": "first", "card": "4711", "id": 1}', (("token", b"s3cret"), ("source", b"web")))


def test_filters_columns_and_pages_see_the_same() -> None:
    record = Sight().record(SENT)
    assert compile_filter("key.id == 1 and value.card == '4711' and headers.source == 'web'")(record)
    found = Found.of(record, compile_columns("value.card, headers.source, value, value.none, offset"))
    assert found.cells == ("4711", "web", '{"card": "4711", "id": 1}', "", "7")
    assert found.value.text == '{"card": "first", "card": "4711", "id": 1}'


def test_what_is_masked_is_seen_nowhere() -> None:
    sight = Sight(masks=parse_masks(["value.card", "headers.token"]))
    record = sight.record(SENT)
    found = Found.of(record, compile_columns("value.card, header('token'), size, value"), most=10_000)
    assert found.cells == (MASKED, MASKED, "", '{"card": "(masked)", "id": 1}')
    assert found.value.text == '{\n  "card": "(masked)",\n  "id": 1\n}'
    assert [header.text for _, header in found.headers] == [MASKED, "web"]
    for text in ("value.card == '4711'", "headers.token == 's3cret'", "size > 0"):
        assert not compile_filter(text)(record)


def test_a_masked_value_that_is_no_json_is_masked_whole() -> None:
    sight = Sight(masks=parse_masks(["value.card"]))
    for data in (b"text with 4711", b"\0\xff4711", b'{"card": 4711'):
        assert Found.of(sight.record(Sent(b"k", data))).value.text == MASKED
    assert Found.of(sight.record(Sent(b"k", None))).value.kind == "null"


def test_why_a_masked_value_was_not_decoded_is_not_said() -> None:
    sight = Sight(lambda data: Decoded("", None, "not decoded: 4711"), parse_masks(["value.card"]))
    assert sight.record(Sent(b"k", b"\0\0\0\0\1...")).part("value").note == ""


def test_values_are_decoded_by_their_schema_before_they_are_masked() -> None:
    sight = Sight(lambda data: Decoded("avro", {"card": 1, "id": 2}, "Schema 1"), parse_masks(["value.card"]))
    value = sight.record(Sent(b"k", b"\0\0\0\0\1...")).part("value")
    assert (value.kind, value.content, value.data, value.note) == ("avro", {"card": MASKED, "id": 2}, None, "Schema 1")
