"""Programs beside this one: killed with all of their group, and what they said kept."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.eventually import eventually

from ottla.processes import ChildProcess


def child(tmp_path: Path, script: str) -> ChildProcess:
    return ChildProcess("the tested", ["/bin/sh", "-c", script], tmp_path / "log")


def test_one_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    tested = child(tmp_path, "echo the disk is full; exit 3")
    tested.start()
    eventually(lambda: tested.ended, timeout_s=30)
    assert tested.exit_code == 3
    assert tested.obituary() == f"the tested has ended with code 3; the end of {tested.log}:\nthe disk is full"


def test_kill_ends_all_of_the_group_and_it_can_be_started_again(tmp_path: Path) -> None:
    tested = child(tmp_path, "sleep 1000 & echo $!; wait")
    for _ in range(2):
        before = tested.last_words()
        tested.start()
        eventually(lambda before=before: tested.last_words() != before, timeout_s=30)
        assert tested.obituary() is None
        inner = int(tested.last_words().splitlines()[-1])
        tested.kill()
        assert tested.ended
        eventually(lambda inner=inner: not runs(inner), timeout_s=30)


def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    tested = child(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    tested.start()
    eventually(lambda: tested.last_words() == "ready", timeout_s=30)
    began = time.monotonic()
    assert not tested.stop(within_s=0.1)
    assert tested.ended
    assert time.monotonic() - began < 10


def test_nothing_happens_to_one_that_was_never_started(tmp_path: Path) -> None:
    tested = child(tmp_path, "true")
    tested.kill()
    assert tested.stop()
    assert tested.ended
    assert tested.last_words() == ""


COPIES = """
import os, signal, subprocess, sys, time
from ottla.processes import Fork, has_one_thread

assert has_one_thread()
print("of the parent, not written out yet")

def copy(run):
    with open(sys.argv[1], "ab") as output:
        return Fork(run, output)

def talk():
    print("of the copy", os.getpgid(0) == os.getpid(), os.read(0, 1))
    return 3

def fail():
    raise ValueError("a defect")

for run, code in ((talk, 3), (fail, 1), (lambda: os.kill(os.getpid(), signal.SIGKILL), -9)):
    assert copy(run).wait(30) == code
stopped = copy(lambda: time.sleep(1000))
assert stopped.poll() is None
try:
    stopped.wait(0.05)
except subprocess.TimeoutExpired:
    stopped.send_signal(signal.SIGTERM)
assert stopped.wait(30) == -signal.SIGTERM
stopped.send_signal(signal.SIGTERM)
"""


def test_a_copy_of_a_process_runs_a_function_in_a_group_of_its_own(tmp_path: Path) -> None:
    """In another process: this one has threads."""
    output = tmp_path / "output"
    done = subprocess.run([sys.executable, "-c", COPIES, output], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "of the parent, not written out yet\n"
    written = output.read_text()
    assert written.startswith("of the copy True b''\nTraceback")
    assert written.count("ValueError: a defect") == 1


def runs(process: int) -> bool:
    """A zombie that its new parent has yet to bury does not."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
