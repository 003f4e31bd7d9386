"""What a machine lacks is named with its packages, installed where that is allowed, and else left out by pytest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.requirements import MissingProgramError, install, java_program, main, missing, require

REPOSITORY = Path(__file__).parents[3]
NEEDY = """
import pytest
from tests.support.requirements import require

@pytest.fixture(scope="session")
def server():
    return require("kcat")

def test_with_a_server(server): ...
def test_with_it_again(server): ...
def test_with_a_program(): require("mvn")
def test_with_nothing(): ...
"""
"""On a machine with an empty PATH three of these tests lack something."""


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
    java, javac, maven, kcat = map(str, missing(["java", "javac", "mvn", "kcat"]))
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


@pytest.fixture
def apt_get(only_path: Path) -> Path:
    """A machine on which `apt-get install kcat` brings kcat, and nothing else succeeds; the log of what was asked."""
    log = only_path / "log"
    for name in ("env", "cat", "chmod"):
        (only_path / name).symlink_to(shutil.which(name, path=os.defpath) or "")
    kcat = only_path / "kcat"
    brings = f'case "$*" in *recommends" kcat") echo > {kcat}; chmod +x {kcat};; *install*) exit 100;; esac'
    program(only_path, "apt-get", f'echo "$*" >> {log}\n{brings}')
    return log


def test_root_installs_what_there_is(apt_get: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install(["maven", "kcat"])
    assert require("kcat")
    asked = apt_get.read_text().splitlines()
    assert [line.split()[2] for line in asked] == ["update", "install", "install", "install"]
    assert asked[1].endswith("maven kcat")


def test_a_user_with_sudo_installs_by_it(apt_get: Path, only_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(only_path, "sudo", 'shift; exec "$@"')
    program(only_path, "true", "exit 0")
    install(["kcat"])
    assert require("kcat")


def test_others_are_given_the_command(
    apt_get: Path, only_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    program(only_path, "sudo", "exit 1")
    assert main(["--install", "kcat", "mvn"]) == 0
    assert "To run all: sudo apt-get install -y kcat maven" in capsys.readouterr().err
    assert not apt_get.exists()


def test_a_target_that_installs_nothing_stops(only_path: Path) -> None:
    assert main(["kcat"]) == 1


def test_continuous_integration_leaves_nothing_out(only_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert main(["--install", "kcat"]) == 1


def run_needy_tests(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_needy.py").write_text(NEEDY)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.left_out", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": str(tmp_path), "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pytest_leaves_out_what_lacks_a_program(tmp_path: Path) -> None:
    done = run_needy_tests(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 3 skipped" in done.stdout
    assert "2 tests need kcat\n1 tests need maven\n" in done.stdout
    assert "apt-get install -y kcat maven" in done.stdout


def test_pytest_leaves_nothing_out_in_continuous_integration(tmp_path: Path) -> None:
    done = run_needy_tests(tmp_path, CI="true")
    assert done.returncode == 1
    assert "1 passed, 1 failed, 2 errors" in done.stdout.replace("1 failed, 1 passed", "1 passed, 1 failed")
