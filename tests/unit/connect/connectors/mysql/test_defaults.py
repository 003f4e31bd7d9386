"""Defaults as MariaDB and MySQL write them, as the values of schemas."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.connectors.mysql.decoding.types import MysqlColumn
from ottla.connect.connectors.mysql.defaults import default_value


def default(kind: str, text: str | None, server: str = "mariadb", *, expression: bool = False) -> Any:
    column = MysqlColumn("c", kind.partition("(")[0], kind, True, 6, 2, 0, text, expression)
    return default_value(column, server, lambda value: value, "now")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int(11)", "7", 7),
        ("decimal(6,2)", "1.5", Decimal("1.50")),
        ("double", "-1e3", -1000.0),
        ("varchar(9)", r"'it''s \\ \n'", "it's \\ \n"),
        ("bit(2)", "b'01'", "01"),
        ("date", "'2024-02-29'", dt.date(2024, 2, 29)),
        ("datetime", "'2024-02-29 01:02:03.5'", dt.datetime(2024, 2, 29, 1, 2, 3, 500_000)),  # noqa: DTZ001 (a wall clock)
        ("time", "'-100:00:01.5'", -dt.timedelta(hours=100, seconds=1.5)),
        ("timestamp", "current_timestamp()", "now"),
        ("varchar(9)", "NULL", None),
        ("varchar(9)", None, None),
        ("varchar(36)", "uuid()", None),
        ("varchar(9)", "concat('a','b')", None),
        ("date", "'0000-00-00'", None),
        ("time", "'soon'", None),
    ],
)
def test_mariadb_writes_expressions(kind: str, text: str | None, value: Any) -> None:
    assert default(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "expression", "value"),
    [
        ("varchar(9)", "NULL", False, "NULL"),
        ("varchar(9)", "it's", False, "it's"),
        ("varchar(9)", "now", False, "now"),
        ("int", "7", False, 7),
        ("timestamp", "CURRENT_TIMESTAMP", True, "now"),
        ("varchar(36)", "uuid()", True, None),
    ],
)
def test_mysql_writes_values_and_says_what_is_an_expression(kind: str, text: str, expression: bool, value: Any) -> None:
    assert default(kind, text, "mysql", expression=expression) == value
