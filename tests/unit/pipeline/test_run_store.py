"""What is kept of runs, and who holds them."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.errors import AlreadyRunningError, PipelineError, RunNotFoundError
from ottla.pipeline.run_store import (
    LOST,
    RUNNING,
    STOPPED,
    FlowRecord,
    RunRecord,
    earlier_run,
    find_home,
    find_run,
    run_directories,
    run_directory,
    state_of,
)


def record(name: str, **changes: object) -> RunRecord:
    known: dict[str, object] = {
        "job": "orders",
        "job_file": "/jobs/orders.py",
        "fingerprint": "f",
        "bootstrap": "here:9092",
        "master": "local[2]",
        "pid": 1,
        "started_at": 1.0,
        **changes,
    }
    return RunRecord(name=name, **known)  # type: ignore[arg-type]


def test_where_the_home_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OTTLA_HOME", raising=False)
    assert find_home() == Path.home() / ".ottla"
    monkeypatch.setenv("OTTLA_HOME", str(tmp_path / "a"))
    assert find_home() == tmp_path / "a"
    assert find_home(tmp_path / "b") == tmp_path / "b"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "orders")
    flow = FlowRecord(["topic orders"], "topic copies", "append", "1 second", "/c")
    written = record("orders", state=STOPPED, flows={"copies": flow}, parameters={"limit": "3"})
    with directory.claimed():
        directory.write(written)
    assert directory.read() == written
    assert list(run_directories(tmp_path)) == ["orders"]
    assert find_run(tmp_path, "orders") == directory


def test_a_run_whose_process_is_gone_is_lost(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "orders")
    with directory.claimed():
        flow = FlowRecord(["topic orders"], "topic copies", "append", "1 second", "/c")
        directory.write(record("orders", flows={"copies": flow}))
        assert directory.process_id() == os.getpid()
        assert directory.read().state == RUNNING
    assert directory.process_id() is None
    found = directory.read()
    assert (found.state, found.flows["copies"].state) == (LOST, LOST)


def test_a_run_is_held_by_one_process(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "orders")
    claim = (
        "import sys; from pathlib import Path; from ottla.pipeline.run_store import run_directory\n"
        f"with run_directory(Path({str(tmp_path)!r}), 'orders').claimed():\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", claim], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunningError, match=rf"'orders' is running already \(process {other.pid}\)"):
            directory.claimed().__enter__()
        other.kill()
    with directory.claimed():  # nothing is left behind
        assert directory.process_id() == os.getpid()


def test_a_look_at_a_run_does_not_keep_it_from_being_claimed(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "orders")
    with directory.claimed():
        pass
    with (directory.path / "pid").open() as looked:
        fcntl.flock(looked, fcntl.LOCK_SH)
        timer = threading.Timer(0.2, fcntl.flock, (looked, fcntl.LOCK_UN))
        timer.start()
        with directory.claimed():
            assert directory.process_id() == os.getpid()
        timer.join()


def test_a_process_that_has_just_claimed_a_run_is_known_by_its_id_and_never_by_0(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "orders")
    directory.path.mkdir(parents=True)
    file = directory.path / "pid"
    file.write_text("")
    with file.open() as claimed:
        fcntl.flock(claimed, fcntl.LOCK_EX)
        timer = threading.Timer(0.2, file.write_text, ("77",))
        timer.start()
        assert directory.process_id() == 77  # 0 is a whole group of processes, where a signal is sent to it
        timer.join()


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="choose another directory with --home"):
        run_directory(tmp_path / "file", "orders").claimed().__enter__()


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="nothing has run as 'orders'; see `ottla pipeline list`"):
        find_run(tmp_path, "orders")
    run_directory(tmp_path, "orders").path.mkdir(parents=True)
    run_directory(tmp_path, "orders").write(record("orders"))
    with pytest.raises(RunNotFoundError, match="did you mean 'orders'"):
        find_run(tmp_path, "ordres")
    with pytest.raises(PipelineError, match="cannot name a run"):
        run_directory(tmp_path, "../orders")


def test_a_record_that_something_else_wrote(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "orders")
    directory.path.mkdir(parents=True)
    (directory.path / "run.json").write_text("{}")
    with pytest.raises(PipelineError, match=r"run.json cannot be read"):
        directory.read()


def test_a_full_disk_is_noted_in_the_space_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = run_directory(tmp_path, "orders")
    directory.path.mkdir(parents=True)
    directory.write(record("orders", error="a" * 100))
    blocks = (directory.path / "run.json").stat().st_size
    open_file = Path.open

    def full(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name.endswith(".new"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    directory.write(record("orders", state=STOPPED, error="the disk is full " * 50))
    assert directory.read().error == "the disk is full " * 50
    assert (directory.path / "run.json").stat().st_size == blocks
    with pytest.raises(OSError, match="No space left"):
        directory.write(record("orders", error="a" * blocks))
    assert directory.read().error == "the disk is full " * 50


def test_the_earlier_run_of_a_file(tmp_path: Path) -> None:
    for name, job_file in (("orders", "/jobs/orders.py"), ("orders-2", "/jobs/orders.py"), ("others", "/jobs/o.py")):
        run_directory(tmp_path, name).path.mkdir(parents=True)
        run_directory(tmp_path, name).write(record(name, job_file=job_file, parameters={"of": name}))
    found = earlier_run(tmp_path, Path("/jobs/orders.py"), None)
    assert found is not None
    assert found.name == "orders"
    named = earlier_run(tmp_path, Path("/jobs/orders.py"), "orders-2")
    assert named is not None
    assert named.parameters == {"of": "orders-2"}
    assert earlier_run(tmp_path, Path("/jobs/nothing.py"), None) is None

    (run_directory(tmp_path, "orders-2").path / "run.json").write_text("{")  # no concern of the other
    assert earlier_run(tmp_path, Path("/jobs/orders.py"), None) == found
    with pytest.raises(PipelineError, match=r"run.json cannot be read"):
        earlier_run(tmp_path, Path("/jobs/orders.py"), "orders-2")


def test_a_promoted_run_says_so() -> None:
    assert state_of(record("v2", state=STOPPED, promoted_to="orders")) == "promoted"
    assert state_of(record("orders", state=STOPPED)) == STOPPED
