"""Rows as COPY reads them: each value as if it stood alone, whatever else is in its column."""

import datetime as dt
import enum
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.connectors.relational import copy_text as module
from ottla.connect.connectors.relational.copy_text import copy_text, copy_text_twin
from ottla.connect.connectors.relational.steps import Row

ESCAPED = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
columns = (
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from(("\\N", "\\", "a\tb", "\n", "\r\n", "", "\\\\.", "None")),
    st.binary(max_size=4),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.one_of(st.integers(), st.text(max_size=2), st.booleans(), st.dates(), st.datetimes()),
    st.none(),
)
rows = st.lists(st.sampled_from(columns).map(lambda each: st.one_of(each, st.none())), min_size=1, max_size=4).flatmap(
    lambda kinds: st.lists(st.tuples(*kinds), min_size=1, max_size=5)
)


@settings(max_examples=80)
@given(rows)
def test_a_reader_of_the_format_finds_every_value(written: list[tuple[Any, ...]]) -> None:
    lines = copy_text(written).decode().split("\n")
    assert lines.pop() == ""
    read = [[_read(field) for field in line.split("\t")] for line in lines]
    assert read == [[None if each is None else _text(each) for each in row] for row in written]


@pytest.mark.skipif(not module.IS_NATIVE, reason="not compiled: there is no compiler")
@settings(max_examples=200)
@given(rows)
def test_what_is_in_c_writes_what_python_writes(written: list[tuple[Any, ...]]) -> None:
    assert copy_text(written) == copy_text_twin(written)


@pytest.mark.parametrize("made", [copy_text, copy_text_twin])
def test_values_of_all_kinds_are_written_by_both(made: Callable[[list[Row]], bytes]) -> None:
    values = (math.nan, math.inf, -math.inf, -0.0, 1e300, 1 << 80, -(1 << 63), Level.HIGH, Decimal("1E+5"), b"\x00\xff")
    assert made([values] * 9000) == (
        b"nan\tinf\t-inf\t-0.0\t1e+300\t1208925819614629174706176\t-9223372036854775808\t3\t1E+5\t\\\\x00ff\n" * 9000
    )
    raw = (b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff"))
    assert made([raw]) == b"\\\\x00ff\t\\\\x00ff\t\\\\x00ff\n"
    with pytest.raises(UnicodeEncodeError):
        made([("\ud800",)])
    with pytest.raises(ValueError, match=r"length|argument"):
        made([(1, 2), (1,)])


class Level(enum.IntEnum):
    HIGH = 3


def _read(field: str) -> str | None:
    if field == "\\N":
        return None
    text = ""
    rest = iter(field)
    for each in rest:
        text += ESCAPED[each + next(rest)] if each == "\\" else each
    return text


def _text(value: Any) -> str:
    """As PostgreSQL reads values of these types."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)


def test_lines_are_as_they_are_documented() -> None:
    written = [(1, "a", None, Decimal("1.10"), True), (2, "b\tc\\", 1.5, None, False)]
    assert copy_text(written) == b"1\ta\t\\N\t1.10\tt\n2\tb\\tc\\\\\t1.5\t\\N\tf\n"
    assert copy_text([]) == b""
