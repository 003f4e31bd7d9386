"""Values as a database takes them."""

import datetime as dt

import pytest

from ottla.connect.connectors.relational.mapping.columns import target
from ottla.connect.schema import Schema, Type

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [
        (0, dt.time()),
        (24 * HOUR_US - 1, dt.time(23, 59, 59, 999_999)),
        (24 * HOUR_US, "24:00:00.000000"),
        (-1, "-00:00:00.000001"),
        (-HOUR_US // 2, "-00:30:00.000000"),
        (839 * HOUR_US - 1_000_000, "838:59:59.000000"),
    ],
)
def test_times_beyond_a_day_are_not_wrapped_into_it(microseconds: int, expected: dt.time | str) -> None:
    convert = target(Schema(Type.INT64, name="io.debezium.time.MicroTime")).convert
    assert convert is not None
    assert convert(microseconds) == expected
