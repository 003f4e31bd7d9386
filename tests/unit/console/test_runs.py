"""Runs of a home as the console shows them, beside their replays, and the queries of Spark that no run has."""

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.run_homes import QUERY, run_home

from ottla.console import runs
from ottla.console.runs import Letters, Redrives, Runs, letter_counts, spark_queries
from ottla.pipeline.errors import PipelineError, RunNotFoundError
from ottla.pipeline.redrive import Account, Fate, Plan
from ottla.pipeline.task_names import TaskNames


def test_every_run_is_listed_also_one_that_cannot_be_read(tmp_path: Path) -> None:
    run_home(tmp_path)
    listed = {each.name: each for each in asyncio.run(Runs(tmp_path).listed())}
    assert list(listed) == ["broken", "shop", "v2"]
    assert (listed["shop"].state, listed["shop"].flows, listed["shop"].process) == ("stopped", 2, None)
    assert listed["v2"].replays == "shop"
    assert listed["broken"].state == "unreadable"
    assert listed["broken"].problem
    assert asyncio.run(Runs(tmp_path / "nowhere").listed()) == []


def test_a_run_that_runs_comes_first(tmp_path: Path) -> None:
    directory = run_home(tmp_path)
    with directory.claimed():
        first = asyncio.run(Runs(tmp_path).listed())[0]
    assert first.name == "shop"
    assert first.process


def test_a_replay_stands_beside_its_original_on_both_pages(tmp_path: Path) -> None:
    run_home(tmp_path)
    home = Runs(tmp_path)
    for name in ("shop", "v2"):
        page = asyncio.run(home.run(name))
        (beside,) = page.beside
        assert (beside.original, beside.replay) == ("shop", "v2")
        assert [(each.flow, each.records) for each in beside.behind] == [("copies", 4), ("orders.dead-letters", 4)]
        outputs = [(first["output"], second["output"]) for flow, first, second in beside.flows if flow == "copies"]
        assert outputs == [("topic copies", "topic copies-v2")]
    assert asyncio.run(home.run("shop")).letters == ["shop.dead-letters"]
    with pytest.raises(RunNotFoundError):
        asyncio.run(home.run("nobody"))
    with pytest.raises(RunNotFoundError):
        asyncio.run(home.run("../shop"))


def test_letters_are_counted_by_reason_for_a_few_seconds_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_client: Mapping[str, Any], plan: Plan, show: Any) -> Account:
        assert plan.dry_run
        account = Account(Counter({(Fate.SENT, "odd", "orders"): 2, (Fate.HOMELESS, "odd", None): 3}))
        show(account)
        account.add(Fate.SENT_BEFORE, "", None)
        return account

    monkeypatch.setattr(runs, "redrive", read)
    whole = runs._letters({}, tmp_path, "t")
    assert whole == Letters("t", letter_counts(read({}, Plan("t", dry_run=True), lambda _: None)), 2, 0, is_whole=True)
    assert [(each.letters, each.fate) for each in whole.counts] == [
        (3, "left: no topic to send it to"),
        (2, "would be sent"),
    ]
    monkeypatch.setattr(runs, "LOOKED_AT_S", -1.0)
    cut = runs._letters({}, tmp_path, "t")
    assert not cut.is_whole
    assert cut.would_go == 2


def test_one_redrive_a_topic_and_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def send(_client: Mapping[str, Any], plan: Plan, show: Any) -> Account:
        account = Account(Counter({(Fate.SENT, "odd", "orders"): 2}))
        show(account)
        assert go_on.wait(10)
        if plan.letters == "a":
            raise PipelineError("fenced")
        return account

    monkeypatch.setattr(runs, "redrive", send)
    redrives = Redrives()
    begun = [redrives.begin({}, Plan(name)) for name in ("a", "b")]
    with pytest.raises(PipelineError, match="already"):
        redrives.begin({}, Plan("a"))
    with pytest.raises(PipelineError, match="wait for one of them"):
        redrives.begin({}, Plan("c"))
    go_on.set()
    for each in begun:
        assert each.end is not None
        each.end.result(10)
    assert [(each.is_over, each.problem, each.sent) for each in begun] == [(True, "fenced", 2), (True, "", 2)]
    assert redrives.of("b") is begun[1]
    assert redrives.of("c") is None
    again = redrives.begin({}, Plan("a")).end
    assert again is not None
    again.result(10)


def test_queries_of_spark_by_the_groups_of_their_tasks(tmp_path: Path) -> None:
    run_home(tmp_path)
    other = "1" + QUERY[1:]
    names = [f"ottla-spark-{QUERY}-{task}" for task in range(3)] + [f"ottla-spark-{other}-0"]
    marks = {names[0]: {("copies", 0): 4}, names[1]: {("copies", 0): 5}}
    first, second = spark_queries(names, marks, TaskNames(tmp_path))
    assert (first.query, first.tasks, first.next_batch) == (QUERY, 3, 5)
    assert first.flow in ("shop.copies", "v2.copies")
    assert (second.query, second.flow, second.next_batch) == (other, None, None)
