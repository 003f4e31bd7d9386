"""Rows as COPY reads them: each value as if it stood alone, whatever else is in its column."""

import datetime as dt
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.connectors.relational.copy_text import copy_text

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
    lines = copy_text(written).split("\n")
    assert lines.pop() == ""
    read = [[_read(field) for field in line.split("\t")] for line in lines]
    assert read == [[None if each is None else _text(each) for each in row] for row in written]


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
    assert copy_text(written) == "1\ta\t\\N\t1.10\tt\n2\tb\\tc\\\\\t1.5\t\\N\tf\n"
    assert copy_text([]) == ""
