"""Python processes forked from a warm one: they are as good as new ones."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.eventually import eventually

from ottla.pipeline import fork_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is none elsewhere")

MODULE = """\
import json, os, random, sys
print(json.dumps({
    "arguments": sys.argv[1:], "name": __name__, "variable": os.environ.get("OTTLA_TEST"), "directory": os.getcwd(),
    "dice": random.random(), "warm": "pyarrow" in sys.modules, "input": sys.stdin.read(), "parent": os.getppid(),
}))
sys.exit(7)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fork_server.Handle]:
    directory = tmp_path_factory.mktemp("fork-server")
    (directory / "said.py").write_text(MODULE)
    (directory / "waits.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    (directory / "fails.py").write_text("raise ValueError('on purpose')\n")
    before = os.environ.get(fork_server.ADDRESS)
    handle = fork_server.start(directory)
    assert handle is not None
    yield handle
    handle.stop()
    if before is None:
        os.environ.pop(fork_server.ADDRESS, None)


@pytest.fixture(autouse=True)
def same_address_afterwards(monkeypatch: pytest.MonkeyPatch, server: fork_server.Handle) -> None:
    """Whoever starts another server in this process says its address to all children."""
    monkeypatch.setenv(fork_server.ADDRESS, os.environ[fork_server.ADDRESS])


def run(
    server: fork_server.Handle, module: str, *arguments: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [server.launcher, "-m", module, *arguments],
        input="some input",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(server.launcher.parent), **variables},
        cwd="/",
        check=False,
        timeout=60,
    )


def test_a_child_has_arguments_environment_streams_directory_and_exit_code(server: fork_server.Handle) -> None:
    import json

    outcome = run(server, "said", "a", "b c", OTTLA_TEST="x")
    assert outcome.returncode == 7, outcome.stderr
    said = json.loads(outcome.stdout)
    assert (said["arguments"], said["name"], said["variable"]) == (["a", "b c"], "__main__", "x")
    assert (said["directory"], said["input"]) == ("/", "some input")
    assert (said["warm"], said["parent"]) == (True, server.process.pid)
    assert json.loads(run(server, "said").stdout)["dice"] != said["dice"]


def test_a_failure_is_told_as_python_does(server: fork_server.Handle) -> None:
    outcome = run(server, "fails")
    assert outcome.returncode == 1
    assert outcome.stderr.endswith("ValueError: on purpose\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_the_launcher_ends_the_child(server: fork_server.Handle, number: signal.Signals) -> None:
    import psutil

    with subprocess.Popen(
        [server.launcher, "-m", "waits"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(server.launcher.parent)},
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"here\n"
        (child,) = psutil.Process(server.process.pid).children()
        launcher.send_signal(number)
        assert launcher.wait(20) != 0
    eventually(lambda: not child.is_running())


def test_nothing_is_told_to_a_server_of_another_user(server: fork_server.Handle, tmp_path: Path) -> None:
    import json

    wary = tmp_path / "python"
    wary.write_text(server.launcher.read_text().replace("os.getuid()", "os.getuid() + 1"))
    wary.chmod(0o700)
    (tmp_path / "said.py").write_text(MODULE)

    outcome = run(fork_server.Handle(server.process, wary), "said")

    assert outcome.returncode == 7, outcome.stderr
    assert json.loads(outcome.stdout)["parent"] != server.process.pid


def test_without_a_server_it_is_a_new_python(server: fork_server.Handle) -> None:
    import json

    outcome = run(server, "said", OTTLA_FORK_SERVER="ottla-is-not-there")
    assert outcome.returncode == 7, outcome.stderr
    assert json.loads(outcome.stdout)["warm"] is False
    version = subprocess.run([server.launcher, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"Python {sys.version.split()[0]}\n"


def test_it_ends_with_who_started_it(tmp_path: Path) -> None:
    handle = fork_server.start(tmp_path)
    assert handle is not None
    handle.stop()
    assert handle.process.returncode == 0
    assert (tmp_path / "fork_server.err").read_text() == ""
