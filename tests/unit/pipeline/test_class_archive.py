"""Where the archive of Spark's classes is, and that it never keeps Spark from starting."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.pipeline import class_archive
from ottla.pipeline.java import Java

JAVA = Java(Path("/usr/lib/jvm/17"), 17, "17.0.15+6")


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What was begun in the background, instead of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    commands: list[Any] = []

    def begin(command: Any, **_: Any) -> Mock:
        commands.append(command)
        return Mock(subprocess.Popen)

    monkeypatch.setattr(class_archive, "subprocess", Mock(Popen=begin))
    return commands


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    archive = class_archive.archive_for(JAVA)
    assert archive.parent == tmp_path / "ottla"
    assert archive == class_archive.archive_for(JAVA)
    assert archive != class_archive.archive_for(Java(JAVA.home, 17, "17.0.16+1"))


def test_the_first_start_begins_to_make_one_and_does_without(begun: list[Any]) -> None:
    assert class_archive.jvm_options(JAVA) == ()
    assert [command[1:] for command in begun] == [["-m", "ottla.pipeline.class_archive"]]
    assert class_archive.jvm_options(JAVA) == ()
    assert len(begun) == 1  # it is being made, or could not be
    attempt = class_archive.archive_for(JAVA).with_suffix(".attempt")
    os.utime(attempt, (0, 0))
    class_archive.jvm_options(JAVA)
    assert len(begun) == 2


def test_an_archive_is_used_and_kept(begun: list[Any]) -> None:
    archive = class_archive.archive_for(JAVA)
    archive.parent.mkdir()
    archive.touch()
    os.utime(archive, (0, 0))
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.jvm_options(JAVA)
    assert time.time() - archive.stat().st_mtime < 600
    assert begun == []


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[Any]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert class_archive.jvm_options(JAVA) == ()
    assert begun == []


def test_a_program_may_end_before_the_archive_is_made(tmp_path: Path) -> None:
    begin = f"sys.executable = '/bin/true'; class_archive._make_in_background(Path({str(tmp_path / 'x.jsa')!r}))"
    program = f"import sys; from pathlib import Path; from ottla.pipeline import class_archive; {begin}"
    ended = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, check=True, text=True)
    assert ended.stderr == "", "Python warns of a process that nobody waits for"


def test_those_that_nothing_uses_are_removed(tmp_path: Path) -> None:
    old, used = tmp_path / "spark-4.2.0-x.jsa", tmp_path / "spark-4.3.0-y.jsa"
    old.touch()
    used.touch()
    os.utime(old, (0, 0))
    class_archive._remove_unused(tmp_path)
    assert (old.exists(), used.exists()) == (False, True)
