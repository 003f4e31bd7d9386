"""`${env:NAME}`, `${file:path:key}` and so on in a connector's settings: resolved where a task starts, nowhere else.

What is stored and shown is the text with the placeholders. `Secrets` remembers what it resolved, so that logs and
statuses can be cleaned of it. A worker's own settings, which its operator writes, may name any variable and file;
settings
of connectors get what the worker's `config.providers` allow. Source: KIP-297.
"""

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from ottla.config.providers import PLACEHOLDER, PREFIX, Lookup, providers
from ottla.connect.errors import ConfigError
from ottla.connect.secret_names import SECRET_NAMES
from ottla.connect.settings import SecretStr, Settings
from ottla.errors import InvalidConfig

_CLASS: Final = "org.apache.kafka.common.config.provider"
_OPEN: Final[Mapping[str, str]] = {
    PREFIX: "env,file",
    f"{PREFIX}.env.class": f"{_CLASS}.EnvVarConfigProvider",
    f"{PREFIX}.file.class": f"{_CLASS}.FileConfigProvider",
}
"""What a worker's own settings may use without saying so."""
_USUAL: Final = ("env", "file", "dir", "directory")
"""Names that providers have in Kafka's documentation: with one of them a placeholder is meant."""
_HIDDEN: Final = "[hidden]"
_IN_JAAS: Final = re.compile(
    r"""\b\w*(?:password|secret)\w*\s*=\s*(?:"([^"]+)"|'([^']+)'|([^\s"';]+))""", re.IGNORECASE
)
_NO_SECRETS: Final = frozenset(("true", "false", "none", "null"))
_SHORTEST: Final = 4
"""Shorter values are not taken out of texts: too much else looks like them."""


class Secrets:
    """What placeholders stand for, in this process. At first any variable and file is resolved, until `limit`."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._lookups: dict[str, Lookup] = providers(_OPEN, environment)
        self._known: set[str] = set()

    def limit(self, worker: Mapping[str, str]) -> None:
        """Resolve from now on what the providers of a worker's settings allow. Raises ConfigError."""
        try:
            self._lookups = providers(worker, self._environment)
        except InvalidConfig as wrong:
            raise ConfigError(str(wrong), PREFIX) from None

    def resolve(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings with their placeholders replaced. Raises ConfigError, naming the setting, not the value."""
        return {name: self._resolved(name, text) for name, text in settings.items()}

    def remember_named(self, settings: Mapping[str, str]) -> None:
        """Hide the values of settings whose names say that they are secrets: no model has those of clients."""
        for name, text in settings.items():
            if SECRET_NAMES.search(name) is None or text.lower() in _NO_SECRETS or PLACEHOLDER.search(text):
                continue
            self.remember(text)
            for found in _IN_JAAS.finditer(text):
                self.remember(next(filter(None, found.groups())))

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
            provider, path, key = match.groups()
            lookup = self._lookups.get(provider)
            if lookup is None and provider in _USUAL:
                raise ConfigError(
                    f"{setting} asks for {match.group()}, and this worker fills in no such values: set "
                    f"{PREFIX}={provider} and {PREFIX}.{provider}.class in its configuration, with what may be asked "
                    f"for in {PREFIX}.{provider}.param.",
                    setting,
                )
            if lookup is None:
                return match.group()
            try:
                value = lookup(path or "", key)
            except LookupError as problem:
                raise ConfigError(
                    f"{setting} asks for {match.group()}, which has no value: {problem.args[0]}", setting
                ) from None
            self.remember(value)
            return value

        return PLACEHOLDER.sub(replacement, text)
