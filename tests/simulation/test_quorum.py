"""The simulated quorum: `python -m tests.simulation.quorum` runs thousands of seeds, these tests two hundred."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.quorum.__main__ import run
from tests.simulation.quorum.broken import BREAKAGES, Breakage
from tests.simulation.quorum.world import KINDS, World

RUNS_PER_TEST = 50

FOUND_BY = {
    Breakage.UNSYNCED_VOTE: 1,
    Breakage.COMMIT_WITHOUT_QUORUM: 0,
    Breakage.STALE_FETCH: 0,
    Breakage.EARLIER_EPOCH: 0,
    Breakage.TWO_CHANGES: 7,
    Breakage.UNSYNCED_LOG: 0,
    Breakage.SECOND_VOTE: 0,
    Breakage.UNSYNCED_START: 2,
    Breakage.UNSAVED_VOTE: 2,
}
"""Seeds of docs/simulation.md."""


@pytest.mark.parametrize("first", range(0, 200, RUNS_PER_TEST))
def test_quorums_keep_rafts_invariants_and_recover(first: int) -> None:
    reports = [run(seed) for seed in range(first, first + RUNS_PER_TEST)]
    assert [report for report in reports if report["problem"]] == []
    assert sum(report["committed"] for report in reports) > RUNS_PER_TEST * 30
    assert sum(report["elections"] for report in reports) > RUNS_PER_TEST
    happened = Counter(kind for report in reports for kind in report["faults"])
    assert set(happened) >= set(KINDS)
    assert happened["AddRaftVoterRequest done"]
    assert happened["RemoveRaftVoterRequest done"]


@pytest.mark.parametrize("breakage", Breakage, ids=lambda breakage: breakage.value)
def test_a_careless_quorum_is_found(breakage: Breakage) -> None:
    assert re.search(BREAKAGES[breakage].finds, run(FOUND_BY[breakage], breakage)["problem"] or "nothing")


def test_messages_arrive_as_they_are_encoded_in_older_versions_too() -> None:
    for seed in range(5):
        assert World(seed, encodes=True).run().problem is None


def test_a_seed_decides_everything() -> None:
    """Alone in a process, or after other seeds, and whatever the order of its sets."""
    after_others = [run(seed) for seed in range(5, 8)][-1]
    alone = subprocess.run(
        [sys.executable, "-m", "tests.simulation.quorum", "--seeds", "7"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    assert json.loads(alone.stdout) == after_others
