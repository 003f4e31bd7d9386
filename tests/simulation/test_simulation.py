"""Runs of the simulated cluster, each in a process of its own; `make simulate` does thousands."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.broken import BREAKAGES, Breakage

RUNS_PER_TEST = 15
SEEDS = [pytest.param(first, marks=[] if first < 30 else pytest.mark.soak) for first in range(0, 150, RUNS_PER_TEST)]
"""The first seed of each test: `make test` has 30 runs, `make soak` all 150."""

QUORUM_RUNS_PER_TEST = 5
QUORUM_SEEDS = [
    pytest.param(first, marks=pytest.mark.soak if first else []) for first in range(0, 60, QUORUM_RUNS_PER_TEST)
]
"""The first seed of each test: `make test` has 5 runs, `make soak` all 60."""

LATE_FOUND = {Breakage.NO_EPOCH_FENCING, Breakage.IDLE_FOLLOWERS} | {
    breakage for breakage, case in BREAKAGES.items() if case.quorum and breakage is not Breakage.ENDLESS_LEASE
}
"""By `make soak`: their seeds run for long, or there are many of them."""

pytestmark = pytest.mark.timeout(400)
"""Half a second of processor time a run may be ten on a machine that is busy."""


def runs(seeds: str, *options: str, hash_seed: str = "0") -> tuple[int, list[dict[str, Any]]]:
    """The exit status, and the reports."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", seeds, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert not done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def sound_runs(seeds: str, *options: str) -> list[dict[str, Any]]:
    status, reports = runs(seeds, *options)
    assert status == 0, [report for report in reports if "problem" in report]
    return reports


@pytest.mark.parametrize("first", SEEDS)
def test_three_brokers_keep_what_they_acknowledge(first: int) -> None:
    reports = sound_runs(f"{first}:{first + RUNS_PER_TEST}")
    assert len(reports) == RUNS_PER_TEST
    assert sum(report["acknowledged"] for report in reports) > RUNS_PER_TEST * 40
    happened = {kind for report in reports for kind in report["faults"]}
    assert len(happened) > 10


def test_a_broker_that_is_cut_off_from_the_controller_in_one_direction_loses_nothing() -> None:
    reports = sound_runs("0:10", "--faults", "from controller,elect,kill")
    assert sum(report["faults"].get("from controller", 0) for report in reports) > 20
    assert min(report["acknowledged"] for report in reports) > 30


@pytest.mark.parametrize("first", QUORUM_SEEDS)
def test_three_brokers_under_a_quorum_keep_what_they_acknowledge(first: int) -> None:
    """With controllers in their processes, and apart."""
    reports = sound_runs(f"{first}:{first + QUORUM_RUNS_PER_TEST}", "--quorum", "--seconds", "5")
    assert sum(report["acknowledged"] for report in reports) > QUORUM_RUNS_PER_TEST * 20
    assert len({kind for report in reports for kind in report["faults"]}) > 8


@pytest.mark.soak
def test_voters_come_and_go_while_brokers_write() -> None:
    reports = sound_runs("0:16", "--quorum", "--faults", "voters,kill,power,one way")
    assert sum(report["faults"].get("voters", 0) for report in reports) > 20


@pytest.mark.soak
def test_a_seed_says_everything_of_a_quorum() -> None:
    def fingerprints(hash_seed: str) -> list[str]:
        return [report["fingerprint"] for report in runs("0:4", "--quorum", hash_seed=hash_seed)[1]]

    first = fingerprints("0")
    assert first == fingerprints("random")
    assert len(set(first)) == 4


@pytest.mark.soak
def test_disks_are_replaced_and_nothing_is_lost() -> None:
    reports = sound_runs("0:15", "--faults", "replace disk,kill,stop,elect")
    assert sum(report["faults"].get("replace disk", 0) for report in reports) > 20


@pytest.mark.parametrize("seed", [30004, 30076, 30099])
def test_a_seed_that_has_found_something_finds_nothing_now(seed: int) -> None:
    """Segments that a full disk refused, within a compacted log; a leader that lacked a compacted epoch."""
    sound_runs(f"{seed}:{seed + 1}", "--faults", "trim,power all,power,kill,disk")


@pytest.mark.parametrize("seed", [806, 976, 7511, 26052, 50093])
def test_a_seed_in_which_a_disk_was_replaced_finds_nothing_now(seed: int) -> None:
    """The replaced disk came after two that had failed; before a process knew that its replica was filled again; it
    held the only copy so far, while the others were lost, or made; or its replica copied a compacted log, and led."""
    sound_runs(f"{seed}:{seed + 1}", "--quorum")


def test_a_commit_that_a_former_coordinator_takes_for_a_repetition_is_not_lost() -> None:
    sound_runs("77038:77039", "--quorum")


def test_one_broker_under_three_controllers_loses_nothing() -> None:
    """Fenced, it acknowledges records of partitions that nobody else can lead."""
    reports = sound_runs("0:3", "--quorum", "--brokers", "1")
    assert min(report["acknowledged"] for report in reports) > 30


def test_one_broker_loses_nothing_to_kills_and_power_failures() -> None:
    reports = sound_runs("0:5", "--brokers", "1", "--faults", "kill,power,cut,storm")
    assert len(reports) == 5
    assert min(report["acknowledged"] for report in reports) > 30
    happened = {kind for report in reports for kind in report["faults"]}
    assert happened - {"bit"} == {"kill", "power", "cut", "storm"}  # a bit flips when power fails, or none does


def test_a_seed_says_everything() -> None:
    """Alone, or after other seeds, and whatever the order of the program's sets."""

    def stories(seeds: str, hash_seed: str) -> list[dict[str, Any]]:
        _, reports = runs(seeds, hash_seed=hash_seed)
        for report in reports:
            del report["cpu_seconds"]
        return reports

    first = stories("3:8", "0")
    assert first == stories("3:8", "random")
    assert first[-1:] == stories("7", "random")
    assert len({report["fingerprint"] for report in first}) == 5


@pytest.mark.parametrize(
    "breakage", [pytest.param(each, marks=pytest.mark.soak if each in LATE_FOUND else []) for each in Breakage]
)
def test_a_broken_cluster_is_found_out(breakage: Breakage) -> None:
    """By the seed that the documentation names, or, as the code is another one by now, by one of the first forty."""
    case = BREAKAGES[breakage]
    problems: list[str] = []
    for seeds in (str(case.seed), "0:40"):
        _, reports = runs(seeds, "--broken", breakage.value, "--until-caught")
        problems += [report["problem"] for report in reports if "problem" in report]
        if any(re.search(case.finds, problem) for problem in problems):
            return
    pytest.fail(f"not found out: {problems}")


def test_the_documentation_names_the_seeds_that_find_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    for breakage, case in BREAKAGES.items():
        assert re.search(rf"^\| `{breakage.value}` \|.*\| {case.seed} \|", text, re.MULTILINE), breakage
