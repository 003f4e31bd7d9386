"""What `ottla zookeeper` runs, where it gets it from, and what it says when that cannot be."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.zookeeper import jars as zookeeper_jars
from ottla.cli.zookeeper.jars import Jar, class_path
from ottla.cli.zookeeper.server import java_program

CONTENTS = {"org/one-1.jar": b"one", "org/two-2.jar": b"two"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that is served as a repository, with two small artifacts in it that are the ones wanted."""
    served = tmp_path / "repository"
    for path, content in CONTENTS.items():
        (served / path).parent.mkdir(parents=True, exist_ok=True)
        (served / path).write_bytes(content)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
        monkeypatch.setattr(zookeeper_jars, "DEBIAN_JAR", tmp_path / "none.jar")
        jars = [Jar(path, hashlib.sha256(content).hexdigest()) for path, content in CONTENTS.items()]
        monkeypatch.setattr(zookeeper_jars, "JARS", tuple(jars))
        yield served
        server.shutdown()


def test_fetches_the_artifact_once(repository: Path, tmp_path: Path) -> None:
    said: list[str] = []
    kept = tmp_path / "cache" / "ottla" / "zookeeper-3.8.4"
    assert class_path(None, said.append) == f"{kept}/*"
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == {"one-1.jar": b"one", "two-2.jar": b"two"}
    assert len(said) == 1
    assert class_path(None, said.append) == f"{kept}/*"
    assert len(said) == 1


def test_keeps_nothing_that_is_not_what_it_should_be(repository: Path, tmp_path: Path) -> None:
    (repository / "org/two-2.jar").write_bytes(b"something else")
    with pytest.raises(CommandFailed, match=r"two-2\.jar is not what it should be: its SHA-256 is not"):
        class_path(None, lambda text: None)
    assert list((tmp_path / "cache" / "ottla").iterdir()) == []


def test_says_what_to_do_when_it_cannot_be_fetched(repository: Path) -> None:
    (repository / "org/one-1.jar").unlink()
    with pytest.raises(CommandFailed, match=r"one-1\.jar cannot be fetched: .*--home.*apt-get install zookeeper"):
        class_path(None, lambda text: None)


def test_takes_the_systems_package_before_fetching(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "none.jar").touch()
    assert class_path(None, lambda text: pytest.fail("nothing is to be fetched")) == str(tmp_path / "none.jar")


@pytest.mark.parametrize("below", ["lib", "libs", "."])
def test_takes_an_installation_first(
    below: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "installed" / below
    directory.mkdir(parents=True)
    (directory / "zookeeper-3.9.3.jar").touch()
    (tmp_path / "none.jar").touch()
    expected = f"{directory.resolve()}/*"
    assert class_path(tmp_path / "installed", lambda text: None) == expected
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path / "installed"))
    assert class_path(None, lambda text: None) == expected


def test_says_that_a_directory_is_no_installation(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="is no installation of ZooKeeper: there is no zookeeper-"):
        class_path(tmp_path, lambda text: None)


def test_says_that_there_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run(["zookeeper"]) == exits.FAILED
    said = capsys.readouterr().err
    assert "no `java` in JAVA_HOME or PATH (Debian: apt-get install default-jre-headless)" in said
    assert "ottla serve" in said


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('java version "1.8.0_392"', None),
        ('java version "1.7.0_80"', "needs Java 8 or newer"),
        ("Error: no runtime", "needs Java 8 or newer, and .* is: Error: no runtime"),
    ],
)
def test_knows_versions_of_java(
    report: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{report}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if problem is None:
        assert java_program() == str(program)
    else:
        with pytest.raises(CommandFailed, match=problem):
            java_program()
