"""Connectors whose author made a mistake: their status says which, and the others, and the worker, go on."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.api import Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.rest import validation
from ottla.connect.rest.client import RestError
from ottla.connect.runtime.task import BasicContext
from ottla.testing import Broker, ConnectWorker
from tests.connect.evil import LET_GO, Evil, EvilSettings
from tests.support.eventually import eventually

GOOD = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n", "count": "3"}


@pytest.fixture(scope="module")
def worker() -> Iterator[ConnectWorker]:
    settings = {"task.shutdown.graceful.timeout.ms": "200"}
    LET_GO.clear()
    with Broker() as broker, ConnectWorker(broker.bootstrap, settings) as worker:
        worker.put("good", GOOD)
        yield worker
        LET_GO.set()


def evil(mode: str) -> dict[str, str]:
    return {"connector.class": "tests.connect.evil.Evil", "mode": mode}


def failed(worker: ConnectWorker, name: str) -> str:
    """What the status says of a failed task."""
    said = str(worker.wait(name, "FAILED")["tasks"][0]["trace"])
    assert "\n" not in said, "no traceback"
    return said


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("exit", "SystemExit: 3"),
        ("panic", "BaseException: a panic of Rust's"),
        ("bare error", "the client library: KafkaError{code=REQUEST_TIMED_OUT"),
        ("constructor", "RuntimeError: no idea"),
        ("list", "Evil.read() is to be a generator (a function with `yield`), and returned a list"),
        ("nothing", "Evil.read() is to be a generator (a function with `yield`), and returned a NoneType"),
        ("number", "a source yields SourceRecord, Progress, lists of them, or None, and this one 42 (int)"),
        ("no topic", "a record was refused (kafka produce): '' is no name of a topic"),
    ],
)
def test_a_task_that_breaks_rules_fails_alone_and_says_which(worker: ConnectWorker, mode: str, said: str) -> None:
    worker.put("evil", evil(mode))
    assert failed(worker, "evil").startswith(said)
    worker.wait("good", "RUNNING")
    worker.request("DELETE", "/connectors/evil")
    eventually(lambda: missing(worker, "evil"))


def missing(worker: ConnectWorker, name: str) -> bool:
    try:
        worker.request("GET", f"/connectors/{name}/tasks/0/status")
    except RestError as refused:
        return refused.status == 404
    return False


def test_tasks_may_have_settings_that_are_no_strings(worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "correct horse")
    worker.put("typed", {**evil("typed"), "word": "${env:WORD}"})
    worker.wait("typed", "RUNNING")
    assert worker.request("GET", "/connectors/typed/tasks")[0]["config"]["shard"] == "0"
    worker.request("DELETE", "/connectors/typed")


def test_connectors_that_think_forever_hold_up_no_other(worker: ConnectWorker) -> None:
    LET_GO.clear()
    for number in range(6):
        worker.put(f"thinking-{number}", evil("thinks"))
    worker.put("after", GOOD)
    worker.wait("after", "RUNNING")
    for name in [*(f"thinking-{number}" for number in range(6)), "after"]:
        worker.request("DELETE", f"/connectors/{name}")


def test_settings_that_are_looked_at_forever_hold_up_no_request(worker: ConnectWorker) -> None:
    LET_GO.clear()  # other tests leave it set, and run in any order
    said: list[str] = []

    def put(number: int) -> None:
        try:
            worker.request("PUT", f"/connectors/looked-at-{number}/config", evil("looks"))
        except RestError as refused:
            said.append(refused.message)

    asking = [threading.Thread(target=put, args=(number,)) for number in range(40)]
    for each in asking:
        each.start()
    assert worker.request("GET", "/connectors/good")["name"] == "good"
    assert said == []
    LET_GO.set()
    for each in asking:
        each.join(60)
    LET_GO.clear()
    assert len(said) == 40


def test_who_asks_has_an_answer_even_if_the_connector_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_CHECK_S", 0.05)
    LET_GO.clear()
    with pytest.raises(Retriable, match="has looked at these settings for 0 s without an answer"):
        validation._checked(Evil, EvilSettings(mode="looks"), BasicContext(TaskId("tested", -1), {}))
    LET_GO.set()


def test_a_task_that_does_not_stop_is_given_up_and_has_nothing_more_to_say(worker: ConnectWorker) -> None:
    worker.put("stuck", evil("stuck"))
    worker.wait("stuck", "RUNNING")
    worker.request("PUT", "/connectors/stuck/pause")
    worker.wait("stuck", "PAUSED")
    worker.request("PUT", "/connectors/stuck/resume")
    worker.wait("stuck", "RUNNING")
    LET_GO.set()  # the first one ends now, and the second yields on
    time.sleep(1)
    assert worker.wait("stuck", "RUNNING", timeout_s=1)
    LET_GO.clear()
    worker.request("DELETE", "/connectors/stuck")


@pytest.mark.parametrize("text", ["raise RuntimeError('no licence')", "def broken(:", "from os import nothing"])
def test_a_module_that_cannot_be_imported_is_named(
    worker: ConnectWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "unimportable.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("unimportable", None)
    with pytest.raises(RestError) as refused:
        worker.put("no", {"connector.class": "unimportable.Source"})
    assert refused.value.status == 400
    assert "unimportable.Source cannot be imported: " in refused.value.message


def test_a_module_that_cannot_be_imported_any_more_fails_its_tasks_alone(
    worker: ConnectWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "changing.py"
    module.write_text("from tests.connect.connectors import Numbers as Source")
    monkeypatch.syspath_prepend(tmp_path)
    worker.put("changing", {**GOOD, "connector.class": "changing.Source"})
    worker.wait("changing", "RUNNING")
    module.write_text("raise RuntimeError('no licence')")
    forget(tmp_path)
    worker.request("POST", "/connectors/changing/tasks/0/restart")
    assert "changing.Source cannot be imported: RuntimeError: no licence" in failed(worker, "changing")
    worker.put("beside", GOOD)
    worker.wait("beside", "RUNNING")
    expanded: Any = worker.request("GET", "/connectors?expand=info")
    assert expanded["changing"]["info"]["type"] == "unknown"
    for name in ("changing", "beside"):
        worker.request("DELETE", f"/connectors/{name}")


def forget(place: Path) -> None:
    sys.modules.pop("changing", None)
    for compiled in place.glob("__pycache__/*"):
        compiled.unlink()


def test_a_restart_asks_a_connector_for_its_tasks_again(worker: ConnectWorker) -> None:
    worker.put("growing", {**evil("grows"), "tasks.max": "2"})
    worker.wait("growing", "RUNNING", tasks=1)
    worker.request("POST", "/connectors/growing/restart")
    worker.wait("growing", "RUNNING", tasks=2)
    worker.request("DELETE", "/connectors/growing")
