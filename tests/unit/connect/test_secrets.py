"""Placeholders: resolved late, and hidden from then on."""

from pathlib import Path

import pytest

from ottla.connect.errors import ConfigError
from ottla.connect.secrets import Secrets


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
        ("${env:NIX}", "password asks for the environment variable NIX"),
        ("${file:/no/such:key}", "password asks for the file /no/such, which cannot be read"),
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
