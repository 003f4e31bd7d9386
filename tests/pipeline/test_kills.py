"""A few kills, and that the harness sees what goes wrong; `make kills` has many."""

from pathlib import Path

import pytest

from tests.pipeline.kills.records import KEYS, Found
from tests.pipeline.kills.run import Run
from tests.pipeline.kills.victims import Victim
from tests.support.broker_process import BrokerProcess


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whoever_is_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    kills = {Victim.TASK: 2, Victim.EXECUTOR: 1, Victim.HUNG: 1, Victim.DRIVER: 1}
    verdict = Run(broker, tmp_path, kills=kills, seed=7, pause_s=(0.2, 1.0))()
    assert verdict.is_right, verdict
    assert verdict.kills == {victim.value: count for victim, count in kills.items()}
    assert verdict.sent > 0


def found(numbers: dict[str, list[int]]) -> Found:
    given = Found()
    for key, values in numbers.items():
        for number in values:
            given.take(key, number, "sink-0@0")
    return given


def test_what_is_complete_and_in_order_is_right() -> None:
    whole = found({str(key): [0, 1] for key in range(KEYS)})
    whole.compare(2 * KEYS)
    assert (whole.records, whole.doubled, whole.missing, whole.problems) == (2 * KEYS, 0, 0, [])


@pytest.mark.parametrize(
    ("numbers", "doubled", "missing"),
    [([0, 1, 1, 2], 1, 0), ([0, 1, 0, 1, 2], 2, 0), ([0, 2], 0, 1), ([0, 1], 0, 1), ([0, 2, 1], 1, 1)],
    ids=["twice", "a batch twice", "a gap", "no end", "out of order"],
)
def test_what_is_wrong_is_counted(numbers: list[int], doubled: int, missing: int) -> None:
    given = found({"0": numbers} | {str(key): [0, 1, 2] for key in range(1, KEYS)})
    given.compare(3 * KEYS)
    assert (given.doubled, given.missing) == (doubled, missing)
    assert given.problems
