"""`${env:NAME}` and `${file:path:key}` in a connector's settings: resolved where a task starts, and nowhere else; in a
worker's, when it starts.

What is stored and shown is the text with the placeholders. `Secrets` remembers what it resolved, so that logs and
statuses
can be cleaned of it. Source: KIP-297; `FileConfigProvider`, `EnvVarConfigProvider`.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from ottla.connect.errors import ConfigError
from ottla.connect.settings import SecretStr, Settings

_PLACEHOLDER: Final = re.compile(r"\$\{(env|file):([^:}]*)(?::([^}]*))?\}")
_HIDDEN: Final = "[hidden]"
_SHORTEST: Final = 4
"""Shorter values are not taken out of texts: too much else looks like them."""


class Secrets:
    """What placeholders stand for, in this process."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._known: set[str] = set()

    def resolve(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings with their placeholders replaced. Raises ConfigError, naming the setting, not the value."""
        return {name: self._resolved(name, text) for name, text in settings.items()}

    def remember_passwords(self, settings: Settings) -> None:
        """Hide every password of a model, also those that were written as they are."""
        for name in type(settings).model_fields:
            value = getattr(settings, name)
            if isinstance(value, SecretStr):
                self.remember(value.get_secret_value())

    def remember(self, value: str) -> None:
        """Hide this from now on, also as it stands in URLs, in JSON and in Python's messages."""
        if len(value) >= _SHORTEST:
            within = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
            self._known.update((value, quote(value), quote(value, safe=""), quote_plus(value), *within))

    def clean(self, text: str) -> str:
        """The text without any secret that was resolved."""
        # the longest first, or a secret that has another in it would leave its rest; sorted copies: other threads add
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, _HIDDEN)
        return text

    def contained_in(self, settings: Mapping[str, str]) -> str | None:
        """The name of a setting whose value has a resolved secret in it, or None."""
        known = tuple(self._known)  # other threads add
        return next((name for name, text in settings.items() if any(value in text for value in known)), None)

    def _resolved(self, setting: str, text: str) -> str:
        def replacement(match: re.Match[str]) -> str:
            kind, place, key = match.groups()
            value = self._from_environment(setting, place) if kind == "env" else _from_file(setting, place, key)
            self.remember(value)
            return value

        return _PLACEHOLDER.sub(replacement, text)

    def _from_environment(self, setting: str, name: str) -> str:
        value = self._environment.get(name)
        if value is None:
            raise ConfigError(f"{setting} asks for the environment variable {name}, which the worker has not", setting)
        return value


def _from_file(setting: str, path: str, key: str | None) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = (getattr(failure, "strerror", None) or str(failure)).lower()
        raise ConfigError(f"{setting} asks for the file {path}, which cannot be read: {reason}", setting) from None
    if key is None:
        return text.strip()
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == key and not name.lstrip().startswith(("#", "!")):
            return value.strip()
    raise ConfigError(f"{setting} asks for {key!r} in {path}, which has no such line", setting)
