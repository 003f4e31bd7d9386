"""Comparisons of runs: by a process, one at a time, bounded, without a secret among its arguments."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.brokers.properties import read_properties
from ottla.console import diffs
from ottla.console.diffs import SHOWN, Comparison, Comparisons, as_properties
from ottla.pipeline.errors import PipelineError

ANSWER: dict[str, Any] = {
    "a": "shop",
    "b": "v2",
    "flows": {
        "copies": {
            "equal": 3,
            "only_in_a": 0,
            "only_in_b": 0,
            "differing": 0,
            "keys": {"equal": 3, "only_in_a": 0, "only_in_b": 0, "differing": 0},
            "columns": {},
            "examples": [],
        },
        "totals": {
            "equal": 1,
            "only_in_a": 2,
            "only_in_b": 0,
            "differing": 1,
            "keys": {"equal": 1, "only_in_a": 2, "only_in_b": 0, "differing": 1},
            "columns": {"few": 1, "many": 2},
            "examples": [{"key": '"k"', "in_a": ["x" * 1_000, "y"], "in_b": [], "columns": ["many"]}],
        },
    },
}


def compared(tmp_path: Path, program: str, client: dict[str, Any] | None = None) -> Comparison:
    comparisons = Comparisons(tmp_path, lambda a, b: [sys.executable, "-c", program, a, b])
    begun = comparisons.begin("shop", "v2", client or {})
    begun.thread.join(20)
    assert comparisons.of("shop", "v2") is begun
    return begun


def test_what_differs_comes_first_and_is_cut(tmp_path: Path) -> None:
    found = compared(tmp_path, f"print({json.dumps(ANSWER)!r}); raise SystemExit(1)").found
    assert found is not None
    totals, copies = found
    assert (copies.is_equal, totals.is_equal) == (True, False)
    assert totals.columns == [("many", 2), ("few", 1)]
    assert totals.examples[0].in_a == "x" * SHOWN + "…"


def test_the_command_has_the_properties_in_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = f"""
import shutil, sys, pathlib
there = sys.argv[sys.argv.index("--command-config") + 1]
assert "secret" not in str(sys.argv), sys.argv
assert pathlib.Path(there).parent.stat().st_mode & 0o077 == 0
shutil.copy(there, {str(seen)!r})
print('{{"flows": {{}}}}')
"""
    done = compared(tmp_path, program, {"bootstrap.servers": "h:1", "sasl.password": "secret\\ = 1 #"})
    assert (done.found, done.problem) == ([], "")
    assert read_properties(seen.read_text()) == {"bootstrap.servers": "h:1", "sasl.password": "secret\\ = 1 #"}


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import sys; sys.exit('ottla: jobs need pyspark')", "jobs need pyspark"),
        ("raise SystemExit(7)", "it ended with exit code 7"),
        ("print('no json')", "Expecting value"),
        ("print('x' * 5_000_000)", "too large"),
    ],
)
def test_a_comparison_that_fails_is_a_sentence(tmp_path: Path, program: str, problem: str) -> None:
    assert problem in compared(tmp_path, program).problem


def test_one_at_a_time_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffs, "LONGEST_S", 0.5)
    comparisons = Comparisons(tmp_path, lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    begun = comparisons.begin("a", "b", {})
    with pytest.raises(PipelineError, match="a and b are being compared"):
        comparisons.begin("c", "d", {})
    begun.thread.join(20)
    assert "given up" in begun.problem
    assert begun.is_over


def test_properties_are_read_as_they_are_written() -> None:
    client = {"a": "x=y:z # !", "b": "\\u0041", "c": "", "d": 5}
    assert read_properties(as_properties(client)) == {name: str(value) for name, value in client.items()}


@pytest.mark.parametrize("value", [" first", "last ", "two\nlines", "back\\", "a\x85b", "a\x0bb"])
def test_a_value_that_no_line_can_have_is_refused(value: str) -> None:
    with pytest.raises(PipelineError, match="the property p has"):
        as_properties({"p": value})
