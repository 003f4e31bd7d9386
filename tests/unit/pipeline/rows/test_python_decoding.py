from typing import Any

import pyarrow as pa

from ottla.pipeline.rows.python_decoding import decode_array
from ottla.pipeline.rows.undecodable import Undecodable

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
