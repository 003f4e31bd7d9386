"""Placeholders: resolved late, and hidden from then on."""

import json
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from ottla.connect.errors import ConfigError
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.worker import Worker


def test_placeholders_are_filled_in_and_hidden(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("# password = no\nuser=me\npassword = correct horse\n")
    secrets = Secrets({"TOKEN": "abcd1234"})
    resolved = secrets.resolve({"a": "x ${env:TOKEN}", "b": f"${{file:{file}:password}}", "c": "${other:x}"})
    assert resolved == {"a": "x abcd1234", "b": "correct horse", "c": "${other:x}"}
    assert secrets.clean("abcd1234, or correct horse?") == "[hidden], or [hidden]?"
    assert secrets.contained_in({"a": "fine", "b": "not abcd1234"}) == "b"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("${env:NIX}", "password asks for \\$\\{env:NIX\\}, which has no value: there is no such environment"),
        ("${file:/no/such:key}", "which has no value: it cannot be read: No such file"),
    ],
)
def test_what_is_not_there_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as wrong:
        Secrets({}).resolve({"password": text})
    assert wrong.value.setting == "password"


def test_a_secret_within_another_leaves_nothing_of_it() -> None:
    secrets = Secrets({})
    for value in ("horse", "correct horse", "horse staple", "correct horse staple"):
        secrets.remember(value)
    assert secrets.clean("a correct horse staple!") == "a [hidden]!"


def test_a_secret_is_hidden_in_the_forms_that_messages_give_it() -> None:
    secrets = Secrets({})
    secrets.remember('p@ss/w\u00f6rd "1"\n')
    url, text = "postgresql://me:p%40ss%2Fw%C3%B6rd%20%221%22%0A@host", 'p@ss/w\u00f6rd "1"\n'
    assert secrets.clean(url) == "postgresql://me:[hidden]@host"
    for shown in (text, repr(text), json.dumps(text), json.dumps({"a": text}), quote_plus(text)):
        assert "rd" not in secrets.clean(shown)


def test_a_workers_own_settings_may_have_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_BROKERS", "correct horse")
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    worker = Worker({"sasl.password": "${env:OF_BROKERS}", "offset.storage.file.filename": "${env:STATE}"}, "here:1")
    assert worker.environment.client("admin", {})["sasl.password"] == "correct horse"
    assert worker.environment.settings.offset_storage_file_filename == str(tmp_path / "state")
    assert worker.environment.secrets.clean("a correct horse") == "a [hidden]"
