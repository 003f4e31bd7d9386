"""Names that databases do not hold, or hold for others."""

import pytest

from ottla.connect.api import ConnectError
from ottla.connect.connectors.relational.mapping.names import check_names

LONG = "prefix.inventory." + "ü" * 32


@pytest.mark.parametrize(
    ("dialect", "table", "fields", "columns", "sentence"),
    [
        ("postgresql", LONG, [], [], "cannot be made: names have at most 63 bytes, and this one 64"),
        ("postgresql", "t" * 64, [], [], "give it a shorter name by table.name.format or a transform"),
        ("postgresql", "t", ["a", "f" * 64], [], "table t cannot have column f+: names have at most 63 bytes"),
        ("mariadb", "t" * 65, [], [], "names have at most 64 characters, and this one 65"),
        ("mysql", "t", ["Name", "name"], [], "both columns Name and name, which differ in case alone: rename"),
        ("mariadb", "t", ["id", "name"], ["id", "NAME"], "both columns NAME and name"),
        ("sqlite", "t", ["a", "A"], [], "both columns a and A"),
    ],
)  # fmt: skip
def test_names_that_a_database_does_not_hold_are_refused_in_a_sentence(
    dialect: str, table: str, fields: list[str], columns: list[str], sentence: str
) -> None:
    with pytest.raises(ConnectError, match=sentence):
        check_names(dialect, table, fields, columns)


@pytest.mark.parametrize(
    ("dialect", "table", "fields"),
    [
        ("postgresql", "s" * 63 + "." + "t" * 63, ["a", "A"]),
        ("mariadb", "ü" * 64, ["a", "b"]),
        ("sqlite", "t" * 200, ["a", "b"]),
        ("oracle", "t" * 200, ["a", "A"]),
    ],
)
def test_other_names_are_left_to_the_database(dialect: str, table: str, fields: list[str]) -> None:
    check_names(dialect, table, fields, fields)
