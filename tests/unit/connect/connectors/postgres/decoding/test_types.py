"""Defaults of columns in schemas, arrays and hstores as PostgreSQL writes them, modes of types."""

from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.api import ConnectError
from ottla.connect.connectors.postgres.decoding.literals import hstore_json, parse_array
from ottla.connect.connectors.postgres.decoding.types import PostgresType, default_value, map_type
from ottla.connect.connectors.postgres.settings import PostgresSettings

NAMES = ["bool", "int4", "text", "numeric", "bytea", "timestamptz", "point", "date", "interval", "money"]
KNOWN = {number: PostgresType(number, name) for number, name in enumerate(NAMES)}


def mapped(name: str, modifier: int = -1, **settings: str) -> Any:
    given = {"database_hostname": "h", "database_user": "u", "database_dbname": "d", "topic_prefix": "p"} | settings
    modes = PostgresSettings.model_validate(given)
    return map_type(NAMES.index(name), modifier, KNOWN, modes)


@pytest.mark.parametrize(
    ("name", "modifier", "expression", "default"),
    [
        ("int4", -1, "7", 7),
        ("int4", -1, "'-7'::integer", -7),
        ("int4", -1, "nextval('items_id_seq'::regclass)", 0),
        ("bool", -1, "true", True),
        ("text", -1, "'it''s'::text", "it's"),
        ("text", -1, "NULL::text", None),
        ("text", -1, "upper(CURRENT_USER)", ""),
        ("numeric", (9 << 16) + 2 + 4, "1.5", Decimal("1.50")),
        ("timestamptz", -1, "now()", "1970-01-01T00:00:00.000000Z"),
        ("date", -1, "CURRENT_DATE", 0),
        ("point", -1, "'(1,2)'::point", None),
    ],
)
def test_defaults(name: str, modifier: int, expression: str, default: Any) -> None:
    found = default_value(expression, mapped(name, modifier))
    assert (found, type(found)) == (default, type(default))


def test_modes_decide_about_types() -> None:
    precise = (9 << 16) + 2 + 4
    assert mapped("numeric", precise, decimal_handling_mode="string").convert("1.50") == "1.50"
    assert mapped("numeric", precise, decimal_handling_mode="double").convert("1.50") == 1.5
    with pytest.raises(ConnectError, match=r"holds NaN, .* set decimal\.handling\.mode to string or double"):
        mapped("numeric", precise).convert("NaN")
    assert mapped("money", decimal_handling_mode="string").convert("-$1,234.50") == "-1234.50"
    assert mapped("bytea", binary_handling_mode="base64").convert(r"\x00ff") == "AP8="
    assert mapped("bytea", binary_handling_mode="hex").convert(r"\x00ff") == "00ff"
    assert mapped("interval", interval_handling_mode="string").convert("P1Y2M") == "P1Y2M0DT0H0M0S"
    assert mapped("numeric", (3 << 16) + (2048 - 2) + 4).schema.parameters["scale"] == "-2"


def test_arrays() -> None:
    assert parse_array("{}", int) == []
    assert parse_array("{(1,1),(0,0);NULL;(2,2),(1,1)}", str, of_boxes=True) == ["(1,1),(0,0)", None, "(2,2),(1,1)"]
    assert parse_array('{1,NULL,"2"}', int) == [1, None, 2]
    assert parse_array('{"a,\\"}",NULL,"NULL",b}', str) == ['a,"}', None, "NULL", "b"]
    for text in ("{{1},{2}}", "[0:1]={1,2}"):
        with pytest.raises(ConnectError, match="leave the column out by"):
            parse_array(text, int)


def test_hstores() -> None:
    assert hstore_json('"a"=>"1", "b\\""=>NULL, "c"=>"x, y"') == '{"a":"1","b\\"":null,"c":"x, y"}'
