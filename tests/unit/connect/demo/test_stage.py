"""What the demo needs of its machine, and what it tells its worker."""

from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.connect.demo import postgres
from ottla.connect.demo.errors import DemoError
from ottla.connect.demo.stage import SINK, SOURCE, connectors
from ottla.connect.runtime.connector_config import parsed, unknown_settings, with_defaults
from ottla.connect.runtime.plugins import connector_class


@pytest.mark.parametrize("name", [SOURCE, SINK])
def test_the_connectors_settings_are_known(name: str) -> None:
    config = connectors(5432)[name]
    connector = connector_class(config["connector.class"])
    assert parsed(connector.settings_model, with_defaults(connector, config))
    assert unknown_settings(connector, config) == []


def test_postgres_is_found_on_path_or_where_packages_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    for version in ("9", "16", "15"):
        _programs(tmp_path / "lib" / version / "bin")
    monkeypatch.setattr(postgres, "_PLACES", (f"{tmp_path}/lib/*/bin",))
    assert postgres.find_programs() == tmp_path / "lib" / "16" / "bin"

    on_path = _programs(tmp_path / "here")
    monkeypatch.setenv("PATH", str(on_path))
    assert postgres.find_programs() == on_path


def test_postgres_is_asked_for_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client_only = _programs(tmp_path / "client")
    (client_only / "initdb").unlink()  # as where a package has the server alone
    monkeypatch.setattr(postgres, "_PLACES", ())
    monkeypatch.setenv("PATH", str(client_only))
    with pytest.raises(DemoError, match="Debian: apt-get install postgresql; macOS: brew install postgresql"):
        postgres.find_programs()


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "thesis.tex"
    precious.write_text("everything")
    assert run(["connect", "demo", "--dir", str(tmp_path)]) == 1
    assert f"{tmp_path} is not empty: name another directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [precious]


def test_java_is_asked_for_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    assert run(["connect", "demo"]) == 1
    said = capsys.readouterr().err
    assert "Spark runs on Java 17 or newer; JAVA_HOME is " in said
    assert said.count("\n") == 1


def _programs(directory: Path) -> Path:
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = directory / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return directory
