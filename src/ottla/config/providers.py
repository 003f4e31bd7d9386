"""Values from elsewhere: `${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}`, by `config.providers` (KIP-297).

    config.providers=env,secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=KAFKA_.*
    config.providers.secrets.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
    config.providers.secrets.param.allowed.paths=/etc/kafka/secrets

Kafka's three classes are known by their names. A placeholder of another provider than those declared stays as it is, as
in Kafka; one whose value is not there is refused, where Kafka goes on with the placeholder as the value.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ottla.config.properties import PLACEHOLDER as PLACEHOLDER
from ottla.config.properties import PropertiesProblem, parse_properties
from ottla.errors import InvalidConfig

PREFIX: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider"

Lookup = Callable[[str, str], str]
"""Returns the value of a key at a path; raises LookupError with a short reason."""


def resolved(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings with the placeholders of declared providers replaced.

    Raises `InvalidConfig`, which names the setting and not the value.
    """
    return resolved_by(given, given, environment)


def resolved_by(
    declaring: Mapping[str, str], given: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings in `given` with the placeholders of those providers replaced that `declaring` declares.

    Settings that are altered while the broker runs are resolved by the providers of its properties file alone (ADR 27):
    else a client that may alter a setting could declare one that reads any file.
    """
    lookups = providers(declaring, environment)
    if not lookups:
        return dict(given)

    def replaced(setting: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            provider, path, key = match.groups()
            if provider not in lookups:
                return match.group()
            try:
                return lookups[provider](path or "", key)
            except LookupError as problem:
                raise InvalidConfig(f"{setting}: {match.group()} has no value: {problem.args[0]}") from None

        return PLACEHOLDER.sub(value, text)

    return {name: text if name.startswith(PREFIX) else replaced(name, text) for name, text in given.items()}


def providers(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, Lookup]:
    """The providers that settings declare, by their names. Raises `InvalidConfig`."""
    names = [name.strip() for name in given.get(PREFIX, "").split(",") if name.strip()]
    found = os.environ if environment is None else environment
    return {name: _provider(name, given, found) for name in names}


def _provider(name: str, given: Mapping[str, str], environment: Mapping[str, str]) -> Lookup:
    def parameter(wanted: str) -> str | None:
        return given.get(f"{PREFIX}.{name}.param.{wanted}")

    java_class = given.get(f"{PREFIX}.{name}.class", "").strip()
    if java_class == f"{_PACKAGE}.EnvVarConfigProvider":
        return _from_environment(environment, parameter("allowlist.pattern"))
    if java_class == f"{_PACKAGE}.FileConfigProvider":
        return _from_file(_allowed(parameter("allowed.paths")))
    if java_class == f"{_PACKAGE}.DirectoryConfigProvider":
        return _from_directory(_allowed(parameter("allowed.paths")))
    raise InvalidConfig(
        f"{PREFIX}.{name}.class: "
        + (f"{java_class} is a Java class that Ottla does not have" if java_class else "is missing")
        + f"; it has EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider of {_PACKAGE}"
    )


def _from_environment(environment: Mapping[str, str], pattern: str | None) -> Lookup:
    try:
        allowed = re.compile(".*" if pattern is None else pattern)
    except re.error as error:
        raise InvalidConfig(f"{PREFIX}: allowlist.pattern {pattern!r} is no regular expression: {error}") from error

    def lookup(path: str, key: str) -> str:
        if path:
            raise LookupError("environment variables have no path")
        if allowed.fullmatch(key) is None:
            raise LookupError("allowlist.pattern does not allow this variable")
        if key not in environment:
            raise LookupError("there is no such environment variable")
        return environment[key]

    return lookup


def _from_file(is_allowed: Callable[[Path], bool]) -> Lookup:
    def lookup(path: str, key: str) -> str:
        try:
            values = parse_properties(_read(Path(path), is_allowed))
        except PropertiesProblem as problem:
            raise LookupError(str(problem)) from problem
        if key not in values:
            raise LookupError("the file has no such key")
        return values[key]

    return lookup


def _from_directory(is_allowed: Callable[[Path], bool]) -> Lookup:
    def lookup(path: str, key: str) -> str:
        if not key or "/" in key or key in (".", ".."):
            raise LookupError("a key is the name of a file in the directory")
        return _read(Path(path) / key, is_allowed)

    return lookup


def _read(path: Path, is_allowed: Callable[[Path], bool]) -> str:
    if not is_allowed(path):
        raise LookupError("allowed.paths does not allow this path")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise LookupError(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LookupError("it is not UTF-8 text") from error


def _allowed(paths: str | None) -> Callable[[Path], bool]:
    if paths is None:
        return lambda path: True
    roots = [Path(root.strip()).resolve() for root in paths.split(",") if root.strip()]
    return lambda path: any(path.resolve().is_relative_to(root) for root in roots)
