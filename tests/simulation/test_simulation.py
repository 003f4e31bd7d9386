"""Some runs of the simulated cluster, each in a process of its own; `python -m tests.simulation` does more."""

import json
import os
import subprocess
import sys
from typing import Any


def runs(seeds: str, *options: str, hash_seed: str = "0") -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", seeds, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, [report for report in reports if "problem" in report] or done.stderr
    return reports


def test_one_broker_loses_nothing_to_kills_and_power_failures() -> None:
    reports = runs("0:5", "--brokers", "1", "--seconds", "20")
    assert len(reports) == 5
    assert min(report["acknowledged"] for report in reports) > 100
    happened = {kind for report in reports for kind in report["faults"]}
    assert {"kill", "power", "cut", "storm"} <= happened


def test_a_seed_says_everything() -> None:
    def story(hash_seed: str) -> dict[str, Any]:
        (report,) = runs("3", "--brokers", "1", "--seconds", "10", hash_seed=hash_seed)
        del report["seconds"]
        return report

    assert story("0") == story("random")
