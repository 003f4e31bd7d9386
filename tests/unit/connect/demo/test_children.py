"""Processes of the demo: killed with all of their group, and what they said kept."""

import os
import time
from pathlib import Path

import pytest
from tests.support.eventually import eventually

from ottla.connect.demo.children import Child, DemoError
from ottla.connect.demo.story import _directory


def child(tmp_path: Path, script: str) -> Child:
    return Child("the tested", ["/bin/sh", "-c", script], tmp_path / "log")


def test_one_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    tested = child(tmp_path, "echo the disk is full; exit 3")
    tested.start()
    eventually(lambda: tested.ended, timeout_s=30)
    with pytest.raises(DemoError, match=r"(?s)^the tested has ended with code 3; the end of .*\nthe disk is full$"):
        tested.check()


def test_kill_ends_all_of_the_group_and_it_can_be_started_again(tmp_path: Path) -> None:
    tested = child(tmp_path, "sleep 1000 & echo $!; wait")
    for _ in range(2):
        before = tested.last_words()
        tested.start()
        eventually(lambda before=before: tested.last_words() != before, timeout_s=30)
        tested.check()
        inner = int(tested.last_words().splitlines()[-1])
        tested.kill()
        assert tested.ended
        eventually(lambda inner=inner: not runs(inner), timeout_s=30)


def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    tested = child(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    tested.start()
    eventually(lambda: tested.last_words() == "ready", timeout_s=30)
    began = time.monotonic()
    tested.stop(within_s=0.1)
    assert tested.ended
    assert time.monotonic() - began < 10


def test_nothing_happens_to_one_that_was_never_started(tmp_path: Path) -> None:
    tested = child(tmp_path, "true")
    tested.kill()
    tested.stop()
    assert tested.ended
    assert tested.last_words() == ""


def test_a_directory_that_nobody_asked_for_stays_only_if_the_demo_has_failed() -> None:
    with _directory(None) as made:
        assert made.is_dir()
    assert not made.exists()
    with pytest.raises(KeyboardInterrupt), _directory(None) as made:
        raise KeyboardInterrupt
    assert not made.exists()
    with (
        pytest.raises(DemoError, match=r"^no luck\nWhat everybody has said is in ") as failed,
        _directory(None) as made,
    ):
        raise DemoError("no luck")
    assert str(made) in str(failed.value)
    made.rmdir()


def runs(process: int) -> bool:
    """A zombie that its new parent has yet to bury does not."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
