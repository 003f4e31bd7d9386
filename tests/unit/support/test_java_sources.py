"""A Java program among the tests is compiled once, runs, and javac's complaints are shown."""

import subprocess
from pathlib import Path

import pytest
from tests.support import java_sources
from tests.support.genuine import ToolFailedError

PROGRAM = 'public class Greets { public static void main(String[] to) { System.out.print("for " + to[0]); } }'


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_sources, "_CACHE", tmp_path / "cache")


def test_a_program_is_compiled_once_and_runs(tmp_path: Path) -> None:
    source = tmp_path / "Greets.java"
    source.write_text(PROGRAM)
    classes = java_sources.compiled(source)
    made = (classes / "Greets.class").stat().st_mtime_ns
    assert java_sources.compiled(source) == classes
    assert (classes / "Greets.class").stat().st_mtime_ns == made
    command = java_sources.java_command(classes, "Greets", "you")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "for you"


def test_what_javac_refuses_is_told_and_not_kept(tmp_path: Path) -> None:
    source = tmp_path / "Greets.java"
    source.write_text(PROGRAM.replace("to[0]", "whom"))
    for _ in range(2):
        with pytest.raises(ToolFailedError, match="cannot find symbol"):
            java_sources.compiled(source)
