"""What types say of their columns."""

import pytest

from ottla.connect.connectors.mysql.types import MysqlColumn, character_length


@pytest.mark.parametrize(
    ("kind", "length"),
    [("varchar(20)", 20), ("char(3)", 3), ("text", None), ("int(11)", None), ("enum('char(1)')", None)],
)
def test_only_texts_of_a_said_length_have_one(kind: str, length: int | None) -> None:
    assert character_length(MysqlColumn("a", kind.partition("(")[0], kind, True, 0, 0, 0)) == length
