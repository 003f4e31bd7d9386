from pathlib import Path

import pytest

from ottla.pipeline.java import JavaNotFoundError, find_java


def fake_java(home: Path, version: str) -> Path:
    """A `java` that says it is of this version, as the real one does: on standard error."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\ncat >&2 <<END\n    java.home = {home}\n    java.specification.version = {version}\nEND\n"
    )
    program.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, other = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(wanted))
    monkeypatch.setenv("PATH", f"{other}/bin", prepend=":")
    found = find_java()
    assert (found.home, found.version) == (wanted, 21)


def test_java_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path, "17")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home}/bin", prepend=":")
    assert find_java().home == home


@pytest.mark.parametrize(("version", "name"), [("1.8", "8"), ("11", "11"), ("16", "16")])
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, name: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    with pytest.raises(JavaNotFoundError, match=f"Java 17 or newer; .*/bin/java is Java {name}. Install one"):
        find_java()


def test_no_java_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer; there is none .*PATH. Install one"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=f"JAVA_HOME is {tmp_path}, but there is no bin/java in it"):
        find_java()
