from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipeline.rows.python_decoding import decode_array
from ottla.registry.client import RegistryAwayError
from ottla.registry.undecodable import Undecodable, UndecodableYet

ROW = pa.struct([("n", pa.int8())])


def decode(value: bytes) -> dict[str, Any]:
    if value == b"bad":
        raise Undecodable("because")
    return {"n": int(value)}


def decoded(*values: bytes | None) -> list[tuple[Any, str | None]]:
    made = decode_array(pa.array(values, pa.binary()), decode, ROW)
    return [tuple(each.values()) for each in made.to_pylist()]


def test_each_value_becomes_a_row_or_a_reason() -> None:
    assert decoded(b"1", b"bad", None, b"2") == [
        ({"n": 1}, None),
        (None, "because"),
        (None, "no value (a tombstone)"),
        ({"n": 2}, None),
    ]


def test_one_value_that_does_not_fit_its_column_does_not_take_the_others_with_it() -> None:
    (first, fits), (second, why), (third, still_fits) = decoded(b"1", b"300", b"3")

    assert (first, fits, third, still_fits) == ({"n": 1}, None, {"n": 3}, None)
    assert second is None
    assert why is not None
    assert why.startswith("wrong type: ")


def test_nothing_becomes_nothing() -> None:
    assert decoded() == []


def test_a_schema_that_is_not_known_yet_is_waited_for_a_minute() -> None:
    def unknown(value: bytes) -> dict[str, Any]:
        raise UndecodableYet("unknown schema id 7")

    def decoded_at(time: datetime | None) -> list[Any]:
        written_at = pa.array([time], pa.timestamp("us", "UTC"))
        made: list[Any] = decode_array(pa.array([b"1"]), unknown, ROW, written_at).to_pylist()
        return [tuple(each.values()) for each in made]

    now = datetime.now(UTC)
    with pytest.raises(RegistryAwayError, match="unknown schema id 7"):
        decoded_at(now - timedelta(seconds=20))
    for time in (now - timedelta(seconds=100), None):
        assert decoded_at(time) == [(None, "unknown schema id 7")]
