"""Which flows can have their open windows computed anew, where they begin, and what a crash leaves."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline import regroup
from ottla.pipeline.checkpoint import Fit, kept_fit
from ottla.pipeline.regroup import OpenWindows, Regrouped, complete, formers_of, starting_of, starts_of, why_not
from ottla.pipeline.savepoint import write_file
from ottla.spark.offsets import Partition

WINDOW = "window struct<start:timestamp,end:timestamp>"
OLD = Fit(
    inputs=["topic flights"],
    output="topic hourly",
    mode="append",
    stateful=[f"an aggregation by ({WINDOW}) of (count(1))"],
    shuffle_partitions="2",
    values=[["count(1)"]],
    windows=["windows of 3600 s"],
)
NEW = replace(OLD, stateful=[f"an aggregation by ({WINDOW}, carrier string) of (count(1))"])
ONE, TWO = Partition("flights", 0), Partition("flights", 1)


def test_another_key_and_other_values_can_be() -> None:
    assert why_not(OLD, NEW) is None
    maximum = f"an aggregation by ({WINDOW}) of (max(delay))"
    assert why_not(OLD, replace(OLD, stateful=[maximum], values=[["max(delay)"]])) is None
    sliding = ["windows of 3600 s every 600 s"]
    assert why_not(replace(OLD, windows=sliding), replace(NEW, windows=sliding)) is None


@pytest.mark.parametrize(
    ("both", "now", "said"),
    [
        ({}, {"inputs": ["topic others"]}, "its inputs, its output or its mode have changed"),
        ({"mode": "update"}, {}, "it writes in mode 'update', so that open windows are in its output already"),
        ({"inputs": ["json files new"]}, {}, "it reads json files new, and only plain topics"),
        ({"inputs": ["topic enriched, aligned"]}, {}, "it reads topic enriched, aligned, and only plain topics"),
        ({"inputs": ["topic weather, which may be idle"]}, {}, "only plain topics"),
        ({}, {"stateful": ["an aggregation by (carrier string) of (count(1))"]}, "it does not group by a window"),
        ({}, {"stateful": ["a deduplication by (id)", *NEW.stateful]}, "is not that of one aggregation"),
        ({"windows": None}, {}, "its windows have changed"),
        ({}, {"windows": ["windows of 7200 s"]}, "its windows have changed: those of both lengths would overlap"),
        (
            {"windows": ["sessions with a gap of 5 minutes"]},
            {},
            "it has sessions with a gap of 5 minutes, and where an",
        ),
    ],
)
def test_others_are_refused_with_the_reason(both: dict[str, Any], now: dict[str, Any], said: str) -> None:
    reason = why_not(replace(OLD, **both), replace(NEW, **both, **now))
    assert reason is not None
    assert said in reason


def test_a_flow_begins_at_the_time_and_not_behind_what_was_read() -> None:
    read = {ONE: 10, TWO: 20}
    assert starts_of(read, {ONE: 0, TWO: 0}, {ONE: 4, TWO: 25}) == {ONE: 4, TWO: 20}
    assert starts_of(read, {ONE: 0, TWO: 0}, {ONE: -1, TWO: 0}) == {ONE: 10, TWO: 0}
    assert starts_of(read, {ONE: 3, TWO: 20}, {ONE: 4, TWO: 21}) == {ONE: 4, TWO: 20}, "all of it is later"
    assert starts_of(read, {ONE: 3, TWO: 0}, {ONE: 3, TWO: 5}) == ONE, "the first record there is may not be the first"


def test_what_is_done_is_said() -> None:
    done = Regrouped("hourly", OpenWindows(2, 30, 0), 12_000, 3_600_000)
    assert done.in_words(None) == (
        "hourly: 2 open windows with 30 groups are computed anew: 12,000 records are read again. "
        "Windows that ended by 1970-01-01T01:00:00.000Z stay as they are"
    )
    assert "are read again, which takes about 6 s." in done.in_words(2000)


class _CrashError(Exception):
    pass


@contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[Callable[[], int]]:
    """Within it, the call of this number that changes files does not come to anything, and none after it."""
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if calls == at:
                raise _CrashError
            calls += 1
            return call(*arguments, **options)

        return counting

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted(Path.rename))
        patched.setattr(Path, "mkdir", counted(Path.mkdir))
        patched.setattr(os, "replace", counted(os.replace))
        patched.setattr(shutil, "rmtree", counted(shutil.rmtree))
        patched.setattr(regroup, "write_file", counted(write_file))
        yield lambda: calls


def state(checkpoint: Path) -> tuple[Any, ...]:
    """What a start finds."""
    fit = kept_fit(checkpoint)
    assert fit is not None
    last = max(checkpoint.glob("offsets/*"), key=lambda file: int(file.name))
    return fit.stateful, last.name, json.loads(last.read_text().splitlines()[2]), starting_of(checkpoint)


def test_a_crash_at_any_step_leaves_the_old_checkpoint_or_the_new_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (OLD.stateful, "7", {"flights": {"0": 9}}, None)
    new = (NEW.stateful, "0", {"flights": {"0": 4}}, {"flights": {"0": 4}})
    found = []
    for step in range(100):
        checkpoint = tmp_path / str(step) / "hourly"
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / "7").write_text('v1\n{"batchWatermarkMs": 60000, "conf": {"a": "b"}}\n'
            '{"flights": {"0": 9}}')  # fmt: skip
        checkpoint.with_name("hourly.json").write_text(json.dumps(asdict(OLD)))
        try:
            with crashing(monkeypatch, step):
                regroup._make(checkpoint, 7, [{"flights": {"0": 4}}], NEW, {ONE: 4}, ("old",))
                complete(checkpoint)
        except _CrashError:
            for again in range(20):  # and while it recovers
                try:
                    with crashing(monkeypatch, again):
                        complete(checkpoint)
                    break
                except _CrashError:
                    continue
            found.append(state(checkpoint))
            continue
        break
    assert step < 99
    assert state(checkpoint) == new
    assert set(map(str, found)) == {str(old), str(new)}
    assert sorted(map(str, found), key=str(new).__eq__) == list(map(str, found)), "once it is new, it stays so"
    assert formers_of(checkpoint) == ("old",)
    batch = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[1])
    assert (batch["batchWatermarkMs"], batch["conf"]) == (60000, {"a": "b"})
    assert sorted(each.name for each in checkpoint.parent.iterdir()) == [
        "hourly",
        "hourly.json",
        "hourly.starting.json",
    ]
