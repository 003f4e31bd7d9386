"""Tests that are shared out among processes: what crashes of those processes cost."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.support.distribution import ByFileAndSession, in_turn

_REPOSITORY: Final = Path(__file__).resolve().parents[3]
_SCHEDULER: Final = """
import pytest
from tests.support.distribution import ByFileAndSession

@pytest.hookimpl
def pytest_xdist_make_scheduler(config, log):
    return ByFileAndSession(config, log)
"""
_PLUGINS: Final = ("cacheprovider", "randomly", "ottla", "hypothesispytest", "anyio", "timeout")


_ALARM_AFTER_THE_CALL: Final = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report):
    yield
    in_worker = not hasattr(report, "node")
    if in_worker and report.when == "call" and report.nodeid.endswith("::test_a2"):
        {what}
"""
_REGISTERED: Final = """
from tests.support import between_phases

def pytest_configure(config):
    config.pluginmanager.register(between_phases)
"""
_WITH_FIXTURE: Final = """
import pytest

@pytest.fixture
def resource():
    yield

def test_a1(): pass
def test_a2(resource): pass
def test_a3(resource): pass
"""


def _run(tmp_path: Path, conftest: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `test_a.py`, and of two files with one test each."""
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in ("b1", "c1"):  # files with one test each
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    command = [sys.executable, "-m", "pytest", *(part for each in _PLUGINS for part in ("-p", f"no:{each}"))]
    command += ["-v", "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)


def test_a_crash_is_one_failure_and_the_rest_runs(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "def test_a1(): pass\nimport os\ndef test_a2(): os.abort()\ndef test_a3(): pass"
    )
    run = _run(tmp_path, _SCHEDULER)
    found = re.findall(r"^\[gw\d+\].*?(PASSED|FAILED).*?::test_(\w+)", run.stdout, re.MULTILINE)
    assert sorted(found) == [("FAILED", "a2"), ("PASSED", "a1"), ("PASSED", "a3"), ("PASSED", "b1"), ("PASSED", "c1")]
    assert re.search(r"^worker 'gw0' crashed while running 'test_a.py::test_a2'", run.stdout, re.MULTILINE)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("what", ["pytest.fail('Timeout')", "raise SystemExit(1)", "raise ValueError('lost')"])
def test_an_alarm_between_the_phases_of_a_test_fails_that_test_alone(tmp_path: Path, what: str) -> None:
    (tmp_path / "test_a.py").write_text(_WITH_FIXTURE)
    run = _run(tmp_path, _SCHEDULER + _REGISTERED + _ALARM_AFTER_THE_CALL.format(what=what))
    assert re.search(r"^=+ 5 passed, 1 error", run.stdout, re.MULTILINE), run.stdout
    assert re.search(r"^ERROR test_a.py::test_a2 - between the phases of the test", run.stdout, re.MULTILINE)
    assert "then its teardown" not in run.stdout
    assert run.returncode == pytest.ExitCode.TESTS_FAILED


class _Node:
    """A worker as the library runs it: it begins a test when it knows the next, or that none follows."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.queue: list[int] = []
        self.workeroutput: dict[str, Any] = {}
        self.shutting_down = self.is_ready = self.is_dead = False

    def send_runtest_some(self, indices: list[int]) -> None:
        if self.is_dead:
            raise OSError("cannot send (already closed?)")
        self.queue.extend(indices)

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def is_at_work(self) -> bool:
        return not self.is_dead and len(self.queue) > (0 if self.shutting_down else 1)


class _Run:
    """The library's controller, with workers that do whatever they can in a random order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        files = self.random.randint(1, 8)
        self.tests = [f"t/test_{n}.py::test_{i}" for n in range(files) for i in range(self.random.randint(1, 4))]
        self.crashing = {each for each in self.tests if self.random.random() < 0.3}
        count = self.random.randint(1, 4)
        config: Any = SimpleNamespace(
            getvalue=lambda _: ["popen"] * count, option=SimpleNamespace(loadscopereorder=False)
        )
        self.scheduler = ByFileAndSession(config)
        self.nodes: list[_Node] = []
        self.is_over = False
        self.ran: Counter[str] = Counter()
        self.crashed: Counter[str] = Counter()
        for _ in range(count):
            self.add()

    def add(self) -> None:
        node = _Node(f"gw{len(self.nodes)}")
        self.nodes.append(node)
        self.scheduler.add_node(node)

    def step(self) -> bool:
        """Have one worker do one thing. Returns whether there was one to do."""
        nodes = [node for node in self.scheduler.nodes if not node.is_ready or node.is_at_work or node.is_dead]
        if not nodes:
            return False
        node = self.random.choice(nodes)
        if not node.is_ready:
            node.is_ready = True
            self.scheduler.add_node_collection(node, self.tests)
            if self.scheduler.collection_is_completed:
                self.scheduler.schedule()
        elif node.is_dead:
            lost = self.scheduler.remove_node(node)
            assert lost is not None
            self.crashed[lost] += 1
            self.is_over = False
            self.add()
        else:
            index = node.queue.pop(0)
            self.ran[self.tests[index]] += 1
            if self.tests[index] in self.crashing:
                node.is_dead = True
            else:
                self.scheduler.mark_test_complete(node, index)
        if self.scheduler.tests_finished and not self.is_over:
            self.is_over = True
            for each in self.scheduler.nodes:
                each.shutdown()
        return True


@pytest.mark.parametrize("seed", range(100))
def test_every_test_runs_once_whatever_crashes(seed: int) -> None:
    run = _Run(seed)
    while run.step():
        assert len(run.nodes) < 200, "workers are replaced for ever"
    assert run.ran == Counter(run.tests)
    assert run.crashed == Counter(run.crashing)


def test_a_session_that_ends_in_the_midst_of_a_test_gives_its_error() -> None:
    config: Any = SimpleNamespace(getvalue=lambda _: ["popen"], option=SimpleNamespace(loadscopereorder=False))
    scheduler, node = ByFileAndSession(config), _Node("gw0")
    scheduler.add_node(node)
    scheduler.add_node_collection(node, ["test_a.py::test_a1", "test_a.py::test_a2"])
    scheduler.schedule()
    scheduler.mark_test_complete(node, 0)
    node.workeroutput = {"internal error": "ValueError: lost"}
    with pytest.raises(RuntimeError, match=r"(?s)'gw0' ended in the midst of 'test_a.py::test_a2':.ValueError: lost"):
        scheduler.remove_node(node)


def test_long_files_are_first_and_busy_ones_are_spread_over_the_run() -> None:
    tests = Path("tests")
    waiting = [tests / "wire" / f"test_{name}.py" for name in ("a", "b", "long")] + [tests / "jobs" / "test_c.py"]
    busy = [tests / "unit" / f"test_{number}.py" for number in range(8)]
    order = in_turn([*busy, *waiting], long=[tests / "jobs", waiting[2]], busy=tests / "unit")
    assert [each.stem.removeprefix("test_") for each in order] == ["c", "0", "long", *"12", "a", *"34", "b", *"567"]
