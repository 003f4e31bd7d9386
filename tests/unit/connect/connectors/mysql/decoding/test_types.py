"""What types say of their columns."""

from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.connectors.mysql.decoding.types import MysqlColumn, character_length, map_column
from ottla.connect.connectors.mysql.settings import MysqlSettings


@pytest.mark.parametrize(
    ("kind", "length"),
    [("varchar(20)", 20), ("char(3)", 3), ("text", None), ("int(11)", None), ("enum('char(1)')", None)],
)
def test_only_texts_of_a_said_length_have_one(kind: str, length: int | None) -> None:
    assert character_length(MysqlColumn("a", kind.partition("(")[0], kind, True, 0, 0, 0)) == length


def test_decimals_as_texts_have_all_their_digits_and_are_texts() -> None:
    names: dict[str, Any] = {
        "database.hostname": "h",
        "database.user": "u",
        "topic.prefix": "t",
        "decimal.handling.mode": "string",
    }
    column = MysqlColumn("a", "decimal", "decimal(20,9)", True, 20, 9, 0)
    _, convert, missing = map_column(column, MysqlSettings(**names))
    assert (convert(Decimal("0.000000001")), missing) == ("0.000000001", "0.000000000")
    assert convert is not str, "which is left out, for values are texts"
