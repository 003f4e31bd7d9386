"""Events of a MariaDB 10.11 and a MySQL 8.0, byte for byte."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.connectors.mysql.decoding import binlog_types as codes
from ottla.connect.connectors.mysql.decoding.binlog_types import Described, UnreadableError, column
from ottla.connect.connectors.mysql.decoding.table_map import ABSENT, rows, table_id, table_map

MAP = (
    b"\x12\x00\x00\x00\x00\x00\x01\x00\x04shop\x00\x01u\x00\x13\x03\xfe\xfe\xfe\xfe\xff\xff\xff\xfc\x8c\x8d\r\x10\x0f"
    b"\xfe\x03\xfe\xfe\xfe\x1b\xfe\x10\xfe\x10\xfe\x10\xfe\x04\x04\x04\x04\x04\x02\xb1\x04\x03\x00(\x00\xf7\x01\xf7\x01"
    b"\xfex\xce\xfc\xfe\xff\x07\x01\x01`\x02\r?\x07.\x08-\t-\n6\x0b-\x0c-\x07\x03\x01\x00\x04\x04(\x01i\x01a\x01b\x01d"
    b"\x01e\x01f\x01g\x01h\x01j\x01l\x01m\x01n\x01o\x01p\x01q\x01r\x02q2\x01t\x02t2\x0b\x02#\x07\x06\x07\x01\x02\x046"
    b"\x01\x01\xd6\x08\x01\x00"
)
ROWS = (
    b"\x12\x00\x00\x00\x00\x00\x01\x00\x13\xff\xff\x07\xc0\x91\xfe\x01\x00\x00\x00\x10\xfdoV1\xe6\xa4\x11\xf1\xa5V\x02"
    b"\xfc\x00\x00\x00\x01\x02ab\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x04\x7f\x00\x00\x01"
    b"\x19\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x00@"
    b"\x0f\x00\x8a\x03\xe8\xab\xa8\xac\x18\x85\xa3p\x14\x0es\x08\x00\x08\x00\x89\xfa\xab\xaa\x1a\xa9\x00\x00\x00\x04\x04"
    b"6\x00Z\x01\x01"
)
MARIADB = (10, 11, 19)
CHARSETS = {7: "koi8r", 35: "ucs2", 45: "utf8mb4", 46: "utf8mb4", 54: "utf16", 63: "binary"}


def test_a_table_is_described_by_its_own_event() -> None:
    table = table_map(MAP, CHARSETS, MARIADB)
    assert (table_id(MAP), table.database, table.table, table.key, table.unreadable) == (18, "shop", "u", ("i",), "")
    assert {each.name: each.full for each in table.columns} == {
        "i": "int",
        "a": "binary(16)",
        "b": "binary(16)",
        "d": "binary(16)",
        "e": "binary(4)",
        "f": "point",
        "g": "geometry",
        "h": "multipoint",
        "j": "longtext",
        "l": "text",
        "m": "varchar(300)",
        "n": "year",
        "o": "bit(3)",
        "p": "varchar(10)",
        "q": "enum('ж')",
        "r": "int unsigned",
        "q2": "enum('ж')",
        "t": "char(30)",
        "t2": "char(255)",
    }
    assert [each.name for each in table.columns if not each.nullable] == ["i"]


def test_rows_are_read_by_it() -> None:
    table = table_map(MAP, CHARSETS, MARIADB)
    ((before, after),) = rows(23, ROWS, table)
    assert before is None
    assert after is not None
    found = dict(zip(table.names, after, strict=True))
    assert {name: found[name] for name in "ibelmnpq"} == {
        "i": 1,
        "b": b"ab",
        "e": bytes((127, 0, 0, 1)),
        "l": "xy" * 500,
        "m": "z" * 250,
        "n": 0,
        "p": "жZ",
        "q": "ж",
    }
    assert found["q2"] == "ж"
    assert found["r"] is None


def test_a_table_whose_names_are_not_there_says_so_and_one_of_a_new_type_too() -> None:
    no_names = MAP[: MAP.index(b"\x01\x01`")]
    assert "binlog_row_metadata was not FULL" in table_map(no_names, CHARSETS, MARIADB).unreadable
    assert (
        "type 99 of the binlog, which is not known"
        in table_map(MAP.replace(b"u\x00\x13\x03", b"u\x00\x13\x63"), CHARSETS, MARIADB).unreadable
    )
    without = {number: name for number, name in CHARSETS.items() if number != 54}
    assert "column p has the collation 54" in table_map(MAP, without, MARIADB).unreadable


YEARS = bytes.fromhex(
    "55000000000001000473686f70000179000b0d10f603040303fe030303070100040204f701ff0701014f041901610162016401690166016a016b"
    "01650274310274320274330a03fcff000603010161"
)
"""MySQL 8.0.15: a YEAR, b BIT(1), d DECIMAL(4,2), i INT UNSIGNED, f FLOAT, j INT, k, t1, t2 and t3 INT UNSIGNED."""


def test_signs_are_those_of_columns_that_have_any_by_the_version_of_the_server() -> None:
    described = table_map(YEARS, {255: "utf8mb4"}, (8, 0, 15))
    unsigned = {each.name for each in described.columns if "unsigned" in each.full}
    assert unsigned == {"i", "k", "t1", "t2", "t3"}
    assert table_map(YEARS, {255: "utf8mb4"}, (8, 0, 20)).names == described.names, "nine signs would be two bytes"
    fewer = YEARS.replace(b"\x0d\x10\xf6\x03\x04", b"\x0a\x10\xf6\x0d\x04")
    assert "does not report for certain" in table_map(fewer, {255: "utf8mb4"}, (8, 0, 20)).unreadable


def test_rows_that_end_elsewhere_than_their_event_are_refused() -> None:
    table = table_map(MAP, CHARSETS, MARIADB)
    with pytest.raises(UnreadableError, match="do not end where it ends"):
        rows(23, ROWS[:-1], table)
    with pytest.raises(UnreadableError, match="rows of 19 columns follow a description of 0"):
        rows(23, ROWS, table_map(MAP[:40], CHARSETS, MARIADB))


def test_what_the_binlog_does_not_have_is_not_null() -> None:
    table = table_map(MAP, CHARSETS, MARIADB)
    first_alone = ROWS[:9] + b"\x01\x00\x00" + b"\x00\x07\x00\x00\x00"
    ((_, after),) = rows(23, first_alone, table)
    assert after == [7, *[ABSENT] * 18]


@pytest.mark.parametrize(
    ("code", "meta", "raw", "value"),
    [
        (codes.TIME2, b"\x02", "7fefffe7", -dt.timedelta(hours=1, microseconds=250_000)),
        (codes.TIME2, b"\x00", "7ff000", -dt.timedelta(hours=1)),
        (codes.TIME2, b"\x00", "800000", dt.timedelta()),
        (codes.TIME2, b"\x06", "7fffffffffff", -dt.timedelta(microseconds=1)),
        (codes.DATETIME2, b"\x00", "8000000000", None),
        (codes.DATETIME2, b"\x01", "99b2ba000032", dt.datetime(2024, 2, 29, 0, 0, 0, 500_000)),  # noqa: DTZ001
        (codes.DATE, b"", "000000", None),
        (codes.DATE, b"", "5ee80f", None),
        (codes.DATE, b"", "5dd00f", dt.date(2024, 2, 29)),
        (codes.TIMESTAMP2, b"\x00", "00000000", dt.datetime(1970, 1, 1)),  # noqa: DTZ001
        (codes.TIMESTAMP2, b"\x00", "ffffffff", dt.datetime(2106, 2, 7, 6, 28, 15)),  # noqa: DTZ001
        (codes.YEAR, b"", "00", 0),
        (codes.NEWDECIMAL, b"\x0a\x02", "8000000732", Decimal("7.50")),
        (codes.NEWDECIMAL, b"\x0a\x02", "7ffffff8cd", Decimal("-7.50")),
    ],
)
def test_values_that_are_easily_read_wrong(code: int, meta: bytes, raw: str, value: Any) -> None:
    _, read = column(Described("c", code, meta, nullable=True))
    data = bytes.fromhex(raw)
    assert read(data, 0) == (value, len(data))
