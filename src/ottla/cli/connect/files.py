"""Configurations of connectors in files: JSON, TOML or properties."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ottla.cli.brokers.properties import read_properties
from ottla.cli.terminal.exits import CommandFailed
from ottla.client.properties import PropertiesProblem


def named_configs(files: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Name -> settings of every connector in the files. Raises CommandFailed, naming the file.

    A file holds one connector: its settings with `name` among them, or `{"name": ..., "config": {...}}`; JSON may
    hold a list
    of them.
    """
    found: dict[str, dict[str, str]] = {}
    for path in files:
        for document in _documents(path):
            name, config = _connector(path, document)
            if name in found:
                raise CommandFailed(f"{path}: connector {name!r} is in another file too")
            found[name] = config
    return found


def text_of(path: Path) -> str:
    """The content of a file. Raises CommandFailed, naming the file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        raise CommandFailed(f"{path}: {(failure.strerror or str(failure)).lower()}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path}: this is no text in UTF-8") from None


def _documents(path: Path) -> list[Any]:
    text = text_of(path)
    try:
        if path.suffix == ".toml":
            return [tomllib.loads(text)]
        if path.suffix == ".properties":
            return [read_properties(text)]
        document = json.loads(text)
    except (ValueError, RecursionError, PropertiesProblem) as problem:
        kind = {".toml": "TOML", ".properties": "properties"}.get(path.suffix, "JSON")
        raise CommandFailed(f"{path}: no {kind}: {problem}") from None
    return document if isinstance(document, list) else [document]


def _connector(path: Path, document: Any) -> tuple[str, dict[str, str]]:
    if not isinstance(document, Mapping):
        raise CommandFailed(f"{path}: a connector is an object of settings")
    inner = document.get("config")
    config = inner if isinstance(inner, Mapping) else document
    name = document.get("name", config.get("name"))
    if not isinstance(name, str) or not name:
        raise CommandFailed(f"{path}: the connector has no `name`")
    return name, {**dict(_flat("", config)), "name": name}


def _flat(prefix: str, settings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Settings as strings; TOML reads `a.b = 1` as a table in a table."""
    for key, value in settings.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _flat(f"{name}.", value)
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, list):
            yield name, ",".join(map(str, value))
        elif value is not None:
            yield name, str(value)
