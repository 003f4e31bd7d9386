"""Profiles of a job: brokers, parameters and settings by environment, in the file `ottla.toml` beside the job file.

    [profile.prod]
    bootstrap = "broker1:9092,broker2:9092"
    command-config = "prod.properties"       # relative to this file
    params = { country = "NL", password = "${env:SHOP_PASSWORD}" }
    conf = { "spark.driver.memory" = "4g" }

Any value may have `${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}` in it, as Kafka's config providers do.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.config.providers import PLACEHOLDER, PREFIX, resolved_by
from ottla.errors import InvalidConfig

FILE: Final = "ottla.toml"
_CLASS: Final = "org.apache.kafka.common.config.provider"
_KINDS: Final = ("env", "file", "dir")
_PROVIDERS: Final = {
    PREFIX: ",".join(_KINDS),
    f"{PREFIX}.env.class": f"{_CLASS}.EnvVarConfigProvider",
    f"{PREFIX}.file.class": f"{_CLASS}.FileConfigProvider",
    f"{PREFIX}.dir.class": f"{_CLASS}.DirectoryConfigProvider",
}
_TEXTS: Final = ("bootstrap", "command-config")
_TABLES: Final = ("params", "conf")


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, with its placeholders replaced. `secret` names the parameters that had some: they are not kept."""

    bootstrap: str | None = None
    command_config: Path | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    secret: frozenset[str] = frozenset()


def read_profile(directory: Path, name: str, environment: Mapping[str, str] | None = None) -> Profile:
    """The profile of this name in the directory's file. Raises CommandFailed, naming file and key."""
    file = directory / FILE
    profiles = _tables_in(file)
    if name not in profiles:
        raise CommandFailed(f"{file} has no profile {name!r}{did_you_mean_or_list(name, list(profiles))}")
    profile = profiles[name]
    place = f"{file}, profile {name!r}"
    if not isinstance(profile, dict):
        raise CommandFailed(f"{place} is no table: write [profile.{name}]")
    for key, value in profile.items():
        if key not in (*_TEXTS, *_TABLES):
            raise CommandFailed(f"{place}: there is no key {key!r}{did_you_mean_or_list(key, (*_TEXTS, *_TABLES))}")
        if key in _TEXTS and not isinstance(value, str):
            raise CommandFailed(f"{place}: {key} is text, not {value!r}")
        if key in _TABLES and not isinstance(value, dict):
            raise CommandFailed(f"{place}: {key} is a table of names and values, not {value!r}")
    texts = {key: profile[key] for key in _TEXTS if key in profile}
    tables = {key: _as_text(place, key, profile.get(key, {})) for key in _TABLES}
    for key in tables["conf"]:
        if not key.startswith("spark."):
            raise CommandFailed(f"{place}: conf has {key!r}, which is no setting of Spark such as spark.driver.memory")
    for name, text in {**texts, **tables["params"]}.items():  # Spark replaces some of its settings' own
        for placeholder in PLACEHOLDER.finditer(text):
            if placeholder[1] not in _KINDS:
                raise CommandFailed(f"{place}: {name}: {placeholder[0]} has no value: there are {', '.join(_KINDS)}")
    try:
        found = resolved_by(_PROVIDERS, texts, environment)
        params, conf = (resolved_by(_PROVIDERS, tables[key], environment) for key in _TABLES)
    except InvalidConfig as problem:
        raise CommandFailed(f"{place}: {problem}") from None
    return Profile(
        bootstrap=found.get("bootstrap"),
        command_config=directory / found["command-config"] if "command-config" in found else None,
        params=params,
        conf=conf,
        secret=frozenset(key for key, text in tables["params"].items() if PLACEHOLDER.search(text)),
    )


def _tables_in(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CommandFailed(f"{file} does not exist: --profile is read from it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise CommandFailed(f"{file} is not TOML: {problem}") from None
    for key in content:
        if key != "profile":
            raise CommandFailed(f"{file}: there is no table {key!r}: it has [profile.NAME] alone")
    profiles = content.get("profile")
    if not isinstance(profiles, dict) or not profiles:
        raise CommandFailed(f"{file} has no profile: write one as [profile.NAME]")
    return profiles


def _as_text(place: str, key: str, table: Mapping[str, object]) -> dict[str, str]:
    found = {}
    for name, value in table.items():
        if not isinstance(value, str | int | float):
            raise CommandFailed(f"{place}: {key} has {name!r}, whose value is neither text nor a number nor a boolean")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
