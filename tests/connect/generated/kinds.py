"""PURE: the types of columns that plans use, as SQL has them and as records have them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Database = Literal["postgres", "mariadb"]
Make = Callable[[random.Random], tuple[str, Any]]
"""A literal of SQL, and the value that a record has for it."""

TEXTS: Final = ("", "a", "Zoë", "two words", "it's", "жZ", "tab\tbed", 'say "x"', "trailing ")
WIDE_TEXTS: Final = (*TEXTS, "😀ж", "漢字")
LATIN_TEXTS: Final = ("", "a", "Zoë", "ß", "two words")


@dataclass(frozen=True, slots=True)
class Kind:
    """A type. make: a random value. select: SQL for the value that a record has, with {c} for the column.

    grows_to: kinds that the column may be changed to, each with what that does to a value.
    """

    sql: str
    make: Make
    select: str = "{c}"
    grows_to: tuple[tuple[str, Callable[[Any], Any]], ...] = ()


def _number(low: int, high: int) -> Make:
    def make(dice: random.Random) -> tuple[str, Any]:
        value = dice.choice((low, high, 0, dice.randint(low, high)))
        return str(value), value

    return make


def _text(texts: tuple[str, ...], prefix: str = "") -> Make:
    def make(dice: random.Random) -> tuple[str, Any]:
        value = dice.choice(texts)
        return prefix + "'" + value.replace("'", "''") + "'", value

    return make


def _one_of(*pairs: tuple[str, Any]) -> Make:
    return lambda dice: dice.choice(pairs)


def _decimal(dice: random.Random) -> tuple[str, Any]:
    value = f"{dice.choice(('', '-'))}{dice.randint(1, 10**9)}.{dice.randint(0, 99):02d}"
    return value, value


def _day(dice: random.Random) -> tuple[str, Any]:
    day = dice.choice(("1970-01-01", "1969-12-31", "2024-02-29", "9999-12-31"))
    return f"'{day}'", {"1970-01-01": 0, "1969-12-31": -1, "2024-02-29": 19782, "9999-12-31": 2932896}[day]


def _long_text(dice: random.Random) -> tuple[str, Any]:
    letter = dice.choice("abcxyz")
    return f"repeat('{letter}', 9000)", letter * 9000


def _same(value: Any) -> Any:
    return value


def _to_text(value: Any) -> Any:
    return None if value is None else str(value)


def _to_decimal(value: Any) -> Any:
    return None if value is None else f"{value}.00"


def _to_moment(value: Any) -> Any:
    return None if value is None else value * 86_400_000_000


_SECONDS: Final = (
    ("'1970-01-01 00:00:00.000001'", 1),
    ("'1969-12-31 23:59:59.5'", -500_000),
    ("'2024-02-29 12:00:00'", 1_709_208_000_000_000),
)

POSTGRES: Final[Mapping[str, Kind]] = {
    "smallint": Kind("smallint", _number(-(2**15), 2**15 - 1), grows_to=(("int", _same),)),
    "int": Kind(
        "int", _number(-(2**31), 2**31 - 1), grows_to=(("bigint", _same), ("text", _to_text), ("decimal", _to_decimal))
    ),
    "bigint": Kind("bigint", _number(-(2**63), 2**63 - 1), grows_to=(("text", _to_text),)),
    "text": Kind("text", _text(WIDE_TEXTS)),
    "varchar": Kind("varchar(40)", _text(WIDE_TEXTS), grows_to=(("text", _same),)),
    "decimal": Kind("numeric(14,2)", _decimal, "{c}::text", grows_to=(("text", _same),)),
    "boolean": Kind("boolean", _one_of(("true", True), ("false", False))),
    "double": Kind("double precision", _one_of(("0.1", 0.1), ("-2.5", -2.5), ("1e300", 1e300))),
    "bytes": Kind("bytea", _one_of(("'\\x00ff'", "00ff"), ("''", "")), "encode({c}, 'hex')"),
    "date": Kind("date", _day, "{c} - date '1970-01-01'", grows_to=(("timestamp", _to_moment),)),
    "timestamp": Kind("timestamp", _one_of(*_SECONDS), "(extract(epoch FROM {c}) * 1000000)::bigint"),
    "uuid": Kind(
        "uuid",
        _one_of(("'6f1b0b9c-4a0e-4d56-9a53-0f1b1b9c4a0e'", "6f1b0b9c-4a0e-4d56-9a53-0f1b1b9c4a0e")),
        "{c}::text",
        grows_to=(("text", _same),),
    ),
    "json": Kind("jsonb", _one_of(("'{\"a\": [1, null]}'", '{"a": [1, null]}'), ("'null'", "null")), "{c}::text"),
    "list": Kind("int[]", _one_of(("'{}'", []), ("'{1,NULL,3}'", [1, None, 3]))),
    "toast": Kind("text", _long_text),
}
MARIADB: Final[Mapping[str, Kind]] = {
    "tiny": Kind("TINYINT", _number(-128, 127), grows_to=(("int", _same),)),
    "int": Kind(
        "INT",
        _number(-(2**31), 2**31 - 1),
        grows_to=(("bigint", _same), ("varchar", _to_text), ("decimal", _to_decimal)),
    ),
    "unsigned": Kind("INT UNSIGNED", _number(0, 2**32 - 1), grows_to=(("bigint", _same),)),
    "bigint": Kind("BIGINT", _number(-(2**63), 2**63 - 1), grows_to=(("varchar", _to_text),)),
    "varchar": Kind("VARCHAR(40)", _text(WIDE_TEXTS), grows_to=(("text", _same), ("utf16", _same))),
    "latin1": Kind("VARCHAR(40) CHARACTER SET latin1", _text(LATIN_TEXTS), grows_to=(("varchar", _same),)),
    "utf16": Kind("VARCHAR(40) CHARACTER SET utf16", _text(WIDE_TEXTS)),
    "utf32": Kind("VARCHAR(40) CHARACTER SET utf32", _text(WIDE_TEXTS), grows_to=(("varchar", _same),)),
    "text": Kind("TEXT", _text(WIDE_TEXTS)),
    "decimal": Kind("DECIMAL(14,2)", _decimal, "CAST({c} AS CHAR)", grows_to=(("varchar", _same),)),
    "double": Kind("DOUBLE", _one_of(("0.1", 0.1), ("-2.5", -2.5), ("1e300", 1e300))),
    "date": Kind("DATE", _day, "DATEDIFF({c}, '1970-01-01')"),
    "datetime": Kind("DATETIME(6)", _one_of(*_SECONDS), "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {c})"),
    "time": Kind(
        "TIME(6)",
        _one_of(
            ("'-01:00:00.25'", -3_600_250_000), ("'838:59:59.999999'", 3_020_399_999_999), ("'00:00:00.000001'", 1)
        ),
        "TIMESTAMPDIFF(MICROSECOND, '2000-01-01', ADDTIME(CAST('2000-01-01' AS DATETIME(6)), {c}))",
    ),
    "bytes": Kind("VARBINARY(9)", _one_of(("x'00ff'", "00ff"), ("''", "")), "LOWER(HEX({c}))"),
    "enum": Kind(
        "ENUM('happy','so so')", _one_of(("'happy'", "happy"), ("'so so'", "so so")), grows_to=(("varchar", _same),)
    ),
    "set": Kind("SET('a','b')", _one_of(("'a,b'", "a,b"), ("''", "")), grows_to=(("varchar", _same),)),
    "year": Kind("YEAR", _one_of(("2024", 2024), ("1901", 1901))),
}
KINDS: Final[Mapping[Database, Mapping[str, Kind]]] = {"postgres": POSTGRES, "mariadb": MARIADB}


def grown(database: Database, before: str, after: str, value: Any) -> Any:
    """What a change of a column's kind has made of a value, through any number of such changes at once."""
    return value if before == after else dict(KINDS[database][before].grows_to)[after](value)
