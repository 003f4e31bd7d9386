"""Configurations of connectors in files."""

from pathlib import Path
from typing import Any

import pytest

from ottla.cli.connect.apply import put
from ottla.cli.connect.client import Rest
from ottla.cli.connect.files import named_configs
from ottla.cli.terminal.exits import CommandFailed

EXPECTED = {
    "name": "orders",
    "connector.class": "postgres-source",
    "tasks.max": "2",
    "tombstones": "true",
    "tables": "a,b",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "c.json",
            '{"name": "orders", "config": {"connector.class": "postgres-source", "tasks.max": 2, "tombstones": true, '
            '"tables": ["a", "b"], "gone": null}}',
        ),
        (
            "flat.json",
            '[{"name": "orders", "connector.class": "postgres-source", "tasks.max": "2", "tombstones": "true", '
            '"tables": "a,b"}]',
        ),
        (
            "c.toml",
            'name = "orders"\nconnector.class = "postgres-source"\ntasks.max = 2\n'
            'tombstones = true\ntables = ["a", "b"]',
        ),
        ("c.properties", "name=orders\nconnector.class=postgres-source\ntasks.max=2\ntombstones=true\ntables=a,b\n"),
    ],
)
def test_every_form_says_the_same(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert named_configs([path]) == {"orders": EXPECTED}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("c.json", "{", "no JSON"),
        ("c.toml", "=", "no TOML"),
        ("c.properties", "nothing", "no properties"),
        ("c.json", "{}", "has no `name`"),
        ("c.json", "5", "an object of settings"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CommandFailed, match=f"{name}: .*{sentence}"):
        named_configs([path])


def test_a_connector_is_in_one_file_only(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        path.write_text('{"name": "orders"}')
    with pytest.raises(CommandFailed, match="in another file too"):
        named_configs(paths)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"\xff{", "this is no text in UTF-8"),
        ("a.toml", b"\xff", "this is no text in UTF-8"),
        ("a.json", b"[" * 100_000, "no JSON: maximum recursion depth"),
        ("none.json", None, "no such file or directory"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandFailed, match=f"{name}: {said}"):
        named_configs([path])


def test_names_stand_in_paths_as_they_must() -> None:
    asked: list[str] = []

    class Asked(Rest):
        def ask(self, method: str, path: str, body: Any = None) -> Any:
            asked.append(path)
            return {} if method == "GET" else None

    assert put(Asked("http://none"), "a b/c", {"name": "a b/c"}) == "changed"
    assert asked == ["/connectors/a%20b%2Fc/config"] * 2
