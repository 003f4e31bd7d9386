"""Values from the environment, files and directories."""

from pathlib import Path

import pytest

from ottla.config import load
from ottla.config.providers import resolved
from ottla.errors import InvalidConfig

PACKAGE = "org.apache.kafka.common.config.provider"


def declared(name: str, java_class: str, **parameters: str) -> dict[str, str]:
    given = {"config.providers": name, f"config.providers.{name}.class": f"{PACKAGE}.{java_class}"}
    return given | {
        f"config.providers.{name}.param.{parameter.replace('_', '.')}": text for parameter, text in parameters.items()
    }


def test_environment_variables_that_are_allowed() -> None:
    given = declared("env", "EnvVarConfigProvider", allowlist_pattern="KAFKA_.*")
    environment = {"KAFKA_DIR": "/data", "HOME": "/root"}
    assert resolved({**given, "log.dirs": "${env:KAFKA_DIR}/a,${env:KAFKA_DIR}/b"}, environment)["log.dirs"] == (
        "/data/a,/data/b"
    )
    for key, why in (("HOME", "does not allow"), ("KAFKA_NO", "no such environment variable")):
        with pytest.raises(InvalidConfig, match=f"broker.rack: .*{key}. has no value: .*{why}"):
            resolved({**given, "broker.rack": f"${{env:{key}}}"}, environment)
    with pytest.raises(InvalidConfig, match="no regular expression"):
        resolved(declared("env", "EnvVarConfigProvider", allowlist_pattern="("), {})


def test_files_and_directories_that_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "rack").write_text("r1")
    (tmp_path / "values.properties").write_text("rack=r2\n")
    (tmp_path / "outside").write_text("r3")
    (tmp_path / "secrets" / "link").symlink_to(tmp_path / "outside")
    files = declared("file", "FileConfigProvider", allowed_paths=str(tmp_path / "values.properties"))
    names = declared("dir", "DirectoryConfigProvider", allowed_paths=str(tmp_path / "secrets"))
    both = {**files, **names, "config.providers": "file, dir"}
    placeholders = {
        "broker.rack": f"${{file:{tmp_path}/values.properties:rack}}-${{dir:{tmp_path}/secrets:rack}}",
    }
    assert resolved({**both, **placeholders})["broker.rack"] == "r2-r1"
    for text, why in (
        (f"${{file:{tmp_path}/values.properties:none}}", "no such key"),
        (f"${{file:{tmp_path}/outside:rack}}", "does not allow"),
        (f"${{dir:{tmp_path}:outside}}", "does not allow"),
        (f"${{dir:{tmp_path}/secrets:link}}", "does not allow"),
        (f"${{dir:{tmp_path}/secrets:../outside}}", "name of a file"),
        (f"${{dir:{tmp_path}/secrets:none}}", "No such file"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            resolved({**both, "broker.rack": text})


def test_without_a_provider_a_placeholder_is_text_but_no_directory() -> None:
    assert load(None, {"broker.rack": "${env:HOME}"})[0].broker_rack == "${env:HOME}"
    with pytest.raises(InvalidConfig, match=r"log\.dirs: '\$\{env:HOME\}/kafka' names a provider"):
        load(None, {"log.dirs": "${env:HOME}/kafka"})


def test_providers_give_no_warning_and_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACK", "r9")
    given = declared("env", "EnvVarConfigProvider")
    config, warnings = load(None, {**given, "broker.rack": "${env:RACK}"})
    assert (config.broker_rack, warnings) == ("r9", [])
    with pytest.raises(InvalidConfig, match=r"config\.providers\.vault\.class: com\.example\.Vault is a Java class"):
        load(None, {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"})
    with pytest.raises(InvalidConfig, match="is missing"):
        load(None, {"config.providers": "vault"})
