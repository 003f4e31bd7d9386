"""The permissions of connectors on a worker's machine: importing modules, reading and writing files.

Every client that reaches the REST API configures connectors. That must not let it run an arbitrary
module, or copy the worker's files into a topic. By default only connectors that are installed as entry
points are allowed; these settings of the worker permit more:

    plugin.path                        directories: modules in them are connectors and transforms (Kafka's name)
    plugin.modules                     modules and packages that may be imported wherever they are; *: any
    file.connectors.allowed.paths      directories and files that connectors and their clients may read and write
    http.allowed.targets               addresses that HTTP connectors may reach, beside public ones (`targets.py`)
"""

import importlib.util
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ottla.client.properties import ENDPOINT, is_file
from ottla.connect.errors import ConfigError
from ottla.connect.targets import ALLOWED, Targets

PLUGIN_PATH: Final = "plugin.path"
PLUGIN_MODULES: Final = "plugin.modules"
FILES: Final = "file.connectors.allowed.paths"
_RUN_CODE: Final = ("plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers")
"""Settings of the client library that make it load a library or run a command."""
_NAME_FILES: Final = (".location", ".file", ".keytab")


class Permissions:
    """given: a worker's settings. Raises ConfigError if a connector that writes files could write modules."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.plugin_path = tuple(_directories(given.get(PLUGIN_PATH, "")))
        self._modules = tuple(_listed(given.get(PLUGIN_MODULES, "")))
        self.targets = Targets(given.get(ALLOWED, ""))
        self._files = tuple(_directories(given.get(FILES, "")))
        everything = Path("/")
        shared = next((p for p in self.plugin_path for f in self._files if f != everything and _overlap(p, f)), None)
        if shared is not None:
            raise ConfigError(
                f"{PLUGIN_PATH} has {shared}, which {FILES} lets connectors write: what one writes there would be run; "
                "keep modules in a directory of their own",
                PLUGIN_PATH,
            )

    def may_import(self, module: str) -> bool:
        """Whether a module may be imported. Imports nothing, not even the package that it is in."""
        if any(each in ("*", module) or module.startswith(f"{each}.") for each in self._modules):
            return True
        try:
            spec = importlib.util.find_spec(module.partition(".")[0])
        except (ImportError, ValueError):
            return False
        if spec is None:
            return False
        places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
        return all(place and _is_within(place, self.plugin_path) for place in places)

    def check_files(self, paths: Iterable[str], setting: str) -> None:
        """Raises ConfigError for a path of this machine that connectors may not read or write."""
        for path in paths:
            if ".." in Path(path).parts or not _is_within(path, self._files):
                raise ConfigError(
                    f"{setting} names {path}, which this worker lets no connector read or write: set {FILES} in the "
                    "worker's configuration to the directories that connectors may use",
                    setting,
                )

    def check_client(self, prefix: str, settings: Mapping[str, Any]) -> None:
        """Raises ConfigError for settings of a client, given by a connector, that run something or read any file."""
        for name, value in settings.items():
            if name in _RUN_CODE:
                raise ConfigError(
                    f"{prefix}{name} would have the worker run what a connector names: only the worker's own "
                    "configuration may set it",
                    prefix + name,
                )
            if name.endswith(_NAME_FILES):
                self.check_files([str(value)], prefix + name)
            if name == ENDPOINT and is_file(str(value)):
                self.check_files([unquote(urlsplit(str(value)).path)], prefix + name)


def refusal(module: str) -> str:
    """Half a sentence about a module that may not be imported, and the settings that open it."""
    return (
        f"this worker may not import {module}: set {PLUGIN_PATH} in its configuration to the directory of the module, "
        f"or {PLUGIN_MODULES} to its name"
    )


def _listed(text: str) -> list[str]:
    return [part for part in (piece.strip() for piece in text.split(",")) if part]


def _directories(text: str) -> list[Path]:
    return [Path(each).resolve() for each in _listed(text)]


def _is_within(path: str, roots: Iterable[Path]) -> bool:
    real = Path(os.path.realpath(path))  # a link leads where it leads
    return any(real.is_relative_to(root) for root in roots)


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
