"""The demo as a person runs it: another process, looked at from outside."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually

pytestmark = pytest.mark.soak
DEMO = (sys.executable, "-m", "ottla.cli.main", "connect", "demo")


def kept() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("ottla-demo-*"))


@pytest.mark.timeout(600)
def test_the_table_equals_the_query_after_everything_was_killed() -> None:
    before = kept()
    done = subprocess.run(
        [*DEMO, "--changes", "3000", "--rate", "200"], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "SIGKILL to the pipeline (" in done.stdout
    assert "rows of the table sales equals that of the query over the shop, and there are no others." in done.stdout
    assert kept() == before


@pytest.mark.timeout(600)
def test_ctrl_c_leaves_nothing_behind() -> None:
    before = kept()
    process = subprocess.Popen([*DEMO], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        parent = psutil.Process(process.pid)
        # the broker, PostgreSQL and its processes, the worker, the job and its JVM
        eventually(lambda: names(parent) >= {"java", "postgres"} or process.poll() is not None, timeout_s=200)
        assert process.poll() is None, process.communicate()
        started = parent.children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert psutil.wait_procs(started, timeout=20)[1] == []
    assert kept() == before


def names(process: psutil.Process) -> set[str]:
    found = set()
    for each in process.children(recursive=True):
        try:
            found.add(each.name())
        except psutil.NoSuchProcess:
            continue
    return found
