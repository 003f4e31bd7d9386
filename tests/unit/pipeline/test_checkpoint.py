"""Which changes of a flow go with its checkpoint."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.checkpoint import Fit, has_unfinished_batch

BEFORE = Fit(
    inputs=["topic flights"],
    output="topic delays",
    mode="update",
    stateful=["an aggregation by (carrier string) of (count(1))"],
    shuffle_partitions="2",
)


def changes(*, asks_for_partitions: bool = False, **changed: object) -> list[str]:
    now = replace(BEFORE, **changed)  # type: ignore[arg-type]
    return list(BEFORE.changes_to(now, asks_for_partitions=asks_for_partitions))


def test_the_same_fits() -> None:
    assert changes() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"inputs": ["topic flights", "topic weather"]},
            "read topic flights and now reads topic flights and topic weat",
        ),
        ({"output": "topic late"}, "it wrote topic delays and now writes topic late"),
        ({"mode": "append"}, "its output mode was update and is append"),
        ({"stateful": []}, "it kept state for an aggregation by (carrier string) of (count(1)), and now for nothing"),
        (
            {"stateful": ["an aggregation by (carrier string) of (sum(delay))"]},
            "its state was that of an aggregation by (carrier string) of (count(1)), and is that of an aggregation by "
            "(carrier string) of (sum(delay))",
        ),
    ],
)
def test_what_does_not_fit_is_said(changed: dict[str, Any], said: str) -> None:
    (found,) = changes(**changed)
    assert said in found


def test_values_in_another_order_would_be_mixed_up() -> None:
    stateful = ["an aggregation by (carrier string) of (max(delay), min(delay))"]
    before = replace(BEFORE, stateful=stateful, values=[["min(delay)", "max(delay)"]])
    swapped = replace(before, values=[["max(delay)", "min(delay)"]])
    (found,) = before.changes_to(swapped, asks_for_partitions=False)
    assert found == (
        "it kept the values (min(delay), max(delay)), and now (max(delay), min(delay)): Spark finds them in the state "
        "by their place"
    )
    hourly, longer = replace(before, windows=["windows of 3600 s"]), replace(before, windows=["windows of 7200 s"])
    assert list(hourly.changes_to(longer, asks_for_partitions=False)) == [
        "it kept windows of 3600 s, and now windows of 7200 s"
    ]
    of_earlier_times = replace(before, values=None)
    assert list(of_earlier_times.changes_to(swapped, asks_for_partitions=False)) == []


def test_shuffle_partitions_matter_to_state_and_only_if_they_are_asked_for() -> None:
    assert changes(shuffle_partitions="8") == []
    (found,) = changes(shuffle_partitions="8", asks_for_partitions=True)
    assert found == "its state is in 2 partitions, and spark.sql.shuffle.partitions asks for 8"
    without_state = replace(BEFORE, stateful=[])
    now = replace(without_state, shuffle_partitions="8")
    assert list(without_state.changes_to(now, asks_for_partitions=True)) == []


def test_a_micro_batch_that_was_begun_and_not_finished(tmp_path: Path) -> None:
    for kind in ("offsets", "commits"):
        (tmp_path / kind).mkdir()
    assert not has_unfinished_batch(tmp_path)
    (tmp_path / "offsets" / "9").touch()
    assert has_unfinished_batch(tmp_path)
    (tmp_path / "commits" / "9").touch()
    assert not has_unfinished_batch(tmp_path)
    (tmp_path / "offsets" / "10").touch()
    (tmp_path / "offsets" / ".10.crc").touch()
    assert has_unfinished_batch(tmp_path)
