"""What is missing on a machine is said in a sentence that names the package."""

from pathlib import Path

import pytest
from tests.support.requirements import MissingProgramError, java_program, missing, require


def program(directory: Path, name: str, script: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def only_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_an_empty_machine_lacks_everything(only_path: Path) -> None:
    java, javac, maven, kcat = missing(["java", "javac", "mvn", "kcat"])
    assert "apt-get install default-jre-headless" in java
    assert "apt-get install default-jdk-headless" in javac
    assert "apt-get install maven" in maven
    assert "apt-get install kcat" in kcat


def test_an_old_java_is_named(only_path: Path) -> None:
    program(only_path, "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    with pytest.raises(MissingProgramError, match=r'17 or newer is needed.* "11\.0\.2"'):
        java_program()


def test_what_is_there_is_found(only_path: Path) -> None:
    program(only_path, "java", "echo 'openjdk version \"21\" 2023-09-19' >&2")
    program(only_path, "kcat", "exit 0")
    assert missing(["java", "kcat"]) == []
    assert require("kcat") == str(only_path / "kcat")


def test_java_home_comes_first(only_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = only_path / "home"
    (home / "bin").mkdir(parents=True)
    program(home / "bin", "java", "echo 'openjdk version \"25\"' >&2")
    program(home / "bin", "javac", "exit 0")
    program(only_path, "javac", "exit 0")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_program() == str(home / "bin" / "java")
    assert require("javac") == str(home / "bin" / "javac")
