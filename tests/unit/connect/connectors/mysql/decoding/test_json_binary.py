"""Documents as MySQL 8.0 writes them."""

from decimal import Decimal

import pytest

from ottla.connect.connectors.mysql.decoding.json_binary import text


@pytest.mark.parametrize(
    ("raw", "document"),
    [
        (b"\x0c\x04text", '"text"'),
        (b"\x04\x00", "null"),
        (b"\x05\xfb\xff", "-5"),
        (b"\x0a" + b"\xff" * 8, "18446744073709551615"),
        (b"\x02\x02\x00\x0a\x00\x05\x01\x00\x04\x01\x00", "[1, true]"),
        (b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x07\x00a", '{"a": 7}'),
        (b"\x0f\xf6\x04\x04\x02\x8c\x32", "12.5"),
        (b"\x0f\x0f\x02\x00\xff", '"base64:type15:AP8="'),
    ],
)
def test_documents_are_as_a_query_has_them(raw: bytes, document: str) -> None:
    assert text(raw, lambda _precision, _scale, _data: Decimal("12.50")) == document


def test_what_is_no_document_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON has no type 13"):
        text(b"\x0d\x00", lambda _precision, _scale, _data: Decimal(0))
