"""Late rows merged into written ones: the same as if all rows had been aggregated together."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.corrections import Closing, Corrections, Mean, Rule
from ottla.pipeline.errors import PipelineError

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("total", pa.decimal128(38, 2)),
        ("least", pa.float64()),
        ("most", pa.float64()),
        ("every", pa.bool_()),
        ("any", pa.bool_()),
        ("mean", pa.float64()),
        ("name", pa.string()),
    ]
)
RULES: dict[str, Rule | Mean] = {
    "n": Rule.SUM,
    "total": Rule.SUM,
    "least": Rule.LEAST,
    "most": Rule.GREATEST,
    "every": Rule.EVERY,
    "any": Rule.ANY,
    "mean": Mean("total", "n"),
    "name": Rule.LATE,
}
CORRECTIONS = Corrections(("k",), RULES, Closing("end"))
Value = tuple[Decimal, float, bool] | None
VALUES = st.one_of(
    st.none(),
    st.tuples(
        st.decimals(-1000, 1000, places=2), st.floats(allow_infinity=True, allow_nan=False, width=32), st.booleans()
    ),
)


def aggregated(key: str, values: list[Value], name: str) -> dict[str, Any]:
    """As Spark does: nulls are no values."""
    known = [value for value in values if value is not None]
    total = sum((value[0] for value in known), Decimal(0)) if known else None
    return {
        "k": key,
        "n": len(known),
        "total": total,
        "least": min((value[1] for value in known), default=None),
        "most": max((value[1] for value in known), default=None),
        "every": all(value[2] for value in known) if known else None,
        "any": any(value[2] for value in known) if known else None,
        "mean": float(total) / len(known) if total is not None else None,
        "name": name,
    }


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


@given(st.lists(VALUES), st.lists(VALUES, min_size=1))
def test_merged_is_as_if_aggregated_together(before: list[Value], late: list[Value]) -> None:
    written = table(aggregated("other", [(Decimal(7), 7.0, True)], "o"), aggregated("k", before, "old"))

    merged = CORRECTIONS.merge(written, table(aggregated("k", late, "new"), aggregated("first", late, "f")))

    expected = [aggregated("k", before + late, "new"), aggregated("first", late, "f")]
    assert merged.to_pylist() == table(*expected).to_pylist()


def test_nan_is_the_greatest_as_in_spark() -> None:
    one, nan = aggregated("k", [(Decimal(1), 1.0, True)], ""), aggregated("k", [(Decimal(1), math.nan, True)], "")
    for written, late in ((one, nan), (nan, one)):
        (merged,) = CORRECTIONS.merge(table(written), table(late)).to_pylist()
        assert merged["least"] == 1.0
        assert math.isnan(merged["most"])


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    full = {**aggregated("k", [], ""), "n": 2**63 - 1}
    with pytest.raises(PipelineError, match="a sum is larger than its column can hold"):
        CORRECTIONS.merge(table(full), table(aggregated("k", [(Decimal(1), 1.0, True)], "")))
    nines = {**full, "n": 1, "total": Decimal("9" * 36 + ".99")}
    with pytest.raises(PipelineError, match="a sum is larger than its column can hold"):
        CORRECTIONS.merge(table(nines), table(aggregated("k", [(Decimal(1), 1.0, True)], "")))
