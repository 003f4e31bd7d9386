"""Configurations of connectors in files."""

from pathlib import Path

import pytest

from ottla.cli.connect_files import named_configs
from ottla.cli.exits import CommandFailed

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
