"""How a worker executes what its herder decides: in which order, and what happens when an effect fails.

The worker is real, and alone with a file; its turns run in the test's thread.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually

from ottla.connect.errors import ConfigError, ConnectError, Fenced, Retriable
from ottla.connect.herder.state import CONNECTOR, RESTART, TARGET_STATE, Target, TaskId
from ottla.connect.runtime import worker as worker_module
from ottla.connect.runtime.task import BasicContext
from ottla.connect.runtime.worker import Worker

TASK = TaskId("tested", 0)


class FakeTask:
    """A task that reports from the test's thread, and ends when it is to."""

    is_stubborn = False

    def __init__(self, task: TaskId, config: Mapping[str, str], _environment: Any, report: Any, _on_topic: Any) -> None:
        self.id, self.config, self.report = task, config, report
        self.context = BasicContext(task, {})
        self.alive, self.failed, self.is_given_up = False, False, False

    def start(self) -> None:
        self.alive = True
        self.report(self.id, "RUNNING", None)

    def stop(self) -> None:
        self.context.stopped.set()

    def join(self, _seconds: float) -> bool:
        if self.alive and not self.is_stubborn:
            self.alive = False
            self.report(self.id, "UNASSIGNED", None)
        return not self.alive

    def give_up(self) -> None:
        self.is_given_up = True

    def tell_again(self) -> None:
        self.report(self.id, "RUNNING", None)

    def fail(self, failure: str) -> None:
        self.alive, self.failed = False, True
        self.report(self.id, "FAILED", failure)


class Rig:
    """A worker, and what its connectors answer."""

    def __init__(self, file: Path) -> None:
        self.worker: Any = Worker({"offset.storage.file.filename": str(file)}, "here:1")
        self.worker.environment.logs.start()
        self.worker.ready.set()
        self.done: list[str] = []
        self.tasks: Callable[[str], list[dict[str, str]]] = lambda _: [{"n": "0"}]
        self.fence_fails: Callable[[TaskId], bool] = lambda _: False

    def put(self, name: str, target: Target = Target.STARTED, **config: str) -> None:
        self.worker.put_config(TARGET_STATE + name, {"state": target, "state.v2": target})
        self.worker.put_config(CONNECTOR + name, {"properties": config})

    def turns(self) -> None:
        """Until nothing changes."""
        self.turn()
        while self.worker._wake.is_set():
            self.turn()

    def turn(self) -> None:
        """One turn, and the planning that it has begun."""
        self.worker._wake.clear()
        self.worker._turn()
        for thread in threading.enumerate():
            if thread.name.startswith("connect plan"):
                thread.join(60)

    def state(self, name: str = "tested") -> str | None:
        status = self.worker.statuses.connector(name)
        return None if status is None else status["state"]

    def running(self, task: TaskId = TASK) -> FakeTask:
        found: FakeTask = self.worker._tasks[task]
        return found


@pytest.fixture
def tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    tested = Rig(tmp_path / "state")

    def fence(task: TaskId, _config: Any, _environment: Any) -> None:
        if tested.fence_fails(task):
            raise Retriable(f"{task} cannot be fenced")
        tested.done.append(f"fenced {task}")

    monkeypatch.setattr(worker_module, "tasks_of", lambda name, *_: tested.tasks(name))
    monkeypatch.setattr(worker_module, "fence", fence)
    monkeypatch.setattr(worker_module, "connector_class", lambda *_: None)
    monkeypatch.setattr(worker_module, "kind_of", lambda _: "source")
    monkeypatch.setattr(worker_module, "SourceTask", FakeTask)
    yield tested
    tested.worker.environment.logs.close()


def test_a_connector_runs_changes_pauses_and_stops(tested: Rig) -> None:
    tested.put("tested")
    tested.turns()
    assert tested.state() == "RUNNING"
    assert tested.running().config == {"n": "0"}

    tested.tasks = lambda _: [{"n": "new"}]
    tested.put("tested", changed="yes")
    tested.turns()
    assert tested.done == [f"fenced {TASK}"]
    assert tested.running().config == {"n": "new"}

    tested.put("tested", Target.PAUSED, changed="yes")
    tested.turns()
    assert (tested.state(), tested.worker._tasks) == ("PAUSED", {})
    assert tested.worker.statuses.task(TASK)["state"] == "PAUSED"

    tested.put("tested", Target.STOPPED, changed="yes")
    tested.turns()
    assert (tested.state(), tested.worker.statuses.tasks("tested")) == ("STOPPED", {})


def test_a_failed_task_waits_for_its_restart(tested: Rig) -> None:
    tested.put("tested")
    tested.turns()
    tested.running().fail("no")
    tested.turns()
    assert tested.worker._tasks == {}
    assert tested.worker.statuses.task(TASK)["trace"] == "no"
    tested.worker.put_config(RESTART + "tested", {"include-tasks": True, "only-failed": True})
    tested.turns()
    assert tested.worker.statuses.task(TASK)["state"] == "RUNNING"
    before = tested.running()
    tested.worker.restart_task(TASK)
    tested.turns()
    assert tested.running() is not before


def test_a_task_whose_class_is_gone_has_failed(tested: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:
        raise ConfigError("no such connector")

    monkeypatch.setattr(worker_module, "connector_class", unknown)
    tested.put("tested")
    tested.turns()
    assert tested.worker.statuses.task(TASK)["trace"] == "no such connector"


def test_a_task_that_does_not_end_is_given_up(tested: Rig) -> None:
    tested.put("tested")
    tested.turns()
    stubborn = tested.running()
    stubborn.is_stubborn = True
    tested.worker.restart_task(TASK)
    tested.turns()
    assert stubborn.is_given_up
    assert tested.running() is not stubborn


def test_an_effect_that_fails_holds_up_none_of_the_others(tested: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status that cannot be written must not cost a task its start: the herder counts it as started."""
    for name in ("a", "b"):
        tested.put(name)
    tested.turns()
    before = tested.running(TaskId("b", 0))
    tested.put("a", Target.PAUSED)
    tested.worker.restart_task(before.id)
    report = tested.worker._reports.task

    def failing(task: TaskId, state: str, *others: Any) -> None:
        if state == "PAUSED":
            raise ConnectError("the disk is full")
        report(task, state, *others)

    monkeypatch.setattr(tested.worker._reports, "task", failing)
    with pytest.raises(ConnectError, match="the disk is full"):
        tested.turns()
    assert tested.running(before.id) is not before
    assert tested.running(before.id).alive


def test_a_connector_that_cannot_be_fenced_holds_up_no_other(tested: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("first", "second"):
        tested.put(name)
    tested.turns()
    tested.fence_fails = lambda task: task.connector == "first"
    for name in ("first", "second"):
        tested.put(name, Target.STOPPED)
    tested.turns()
    tested.turns()
    assert (tested.state("first"), tested.state("second")) == ("RUNNING", "STOPPED")
    assert "connector first: planning its tasks failed: first-0 cannot be fenced" in caplog.text
    tested.fence_fails = lambda _: False
    tested.turns()
    assert tested.state("first") == "STOPPED"


def test_a_worker_that_no_longer_leads_reports_nothing_about_a_connector(
    tested: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def fenced(*_: Any) -> None:
        raise Fenced("another worker leads now")

    tested.put("tested")
    tested.worker._commit = fenced
    tested.turn()
    assert tested.state() is None
    assert "connector tested is planned by the worker that leads: another worker leads now" in caplog.text


def test_why_a_connector_has_no_tasks_is_reported_and_logged_without_secrets(
    tested: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def exits(_name: str) -> list[dict[str, str]]:
        raise SystemExit("correct horse")

    tested.worker.environment.secrets.remember("correct horse")
    tested.tasks = exits
    tested.put("tested")
    with caplog.at_level(logging.ERROR):
        tested.turns()
    status = tested.worker.statuses.connector("tested")
    assert (status["state"], status["trace"].split(" (")[0]) == ("FAILED", "SystemExit: [hidden]")
    assert "connector tested has no tasks: SystemExit: [hidden]" in caplog.text
    assert "correct horse" not in caplog.text


def test_a_warning_of_a_task_has_no_secrets(tested: Rig) -> None:
    tested.worker.environment.secrets.remember("correct horse")
    tested.put("tested")
    tested.turns()
    tested.running().context.warn("no answer from https://me:correct horse@there")
    tested.worker._reports._looked_at = float("-inf")
    tested.turns()
    warning = tested.worker.statuses.task(TASK)["warning"]
    assert warning.startswith("no answer from")
    assert "correct horse" not in warning


def test_an_answer_that_comes_after_the_next_request_does_not_count(tested: Rig) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hangs(_name: str) -> list[dict[str, str]]:
        begun.set()
        go_on.wait(60)
        return [{"n": "late"}]

    tested.tasks = hangs
    tested.put("tested")
    tested.worker._turn()
    assert begun.wait(60)
    late = next(thread for thread in threading.enumerate() if thread.name == "connect plan tested")
    tested.tasks = lambda _: [{"n": "new"}]
    tested.put("tested", changed="yes")
    tested.worker._turn()
    eventually(lambda: tested.worker.state.connectors["tested"].tasks)
    go_on.set()
    late.join(60)
    tested.turns()
    assert tested.running().config == {"n": "new"}


def test_a_worker_that_stops_ends_its_tasks(tested: Rig) -> None:
    tested.put("tested")
    tested.turns()
    running = tested.running()
    tested.worker.stop()
    assert not running.alive
    assert tested.worker._tasks == {}
    assert tested.worker.statuses.task(TASK)["state"] == "UNASSIGNED"
