"""`kafka.*` options as settings of clients: people know them from Spark's own source, whose client is Java's. PURE.

Names and JAAS lines are translated for librdkafka; key stores stay paths, which each executor reads for itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.client.properties import PropertiesProblem, hidden, library_settings, translated
from ottla.spark.errors import OptionError

ClientSettings = tuple[tuple[str, str], ...]
"""Settings handed through to the client library, without their prefix `kafka.`; hashable, to key a cache."""

_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_OURS_TO_SET: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets live in Spark's checkpoint",
    "kafka.enable.partition.eof": "the source depends on it",
    "kafka.interceptor.classes": "there are no interceptors here",
    "kafka.key.deserializer": "keys are always bytes; cast or decode the column",
    "kafka.key.serializer": "keys are written as the bytes or the text of their column",
    "kafka.value.deserializer": "values are always bytes; cast or decode the column",
    "kafka.value.serializer": "values are written as the bytes or the text of their column",
}


class _Settings(tuple[tuple[str, str], ...]):
    """`ClientSettings` that can be shown: without passwords."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ClientSettings({hidden(dict(self))})"


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """From all options, by their names in lower case. Raises OptionError."""
    if not given.get(_BOOTSTRAP):
        raise OptionError(f"the option '{_BOOTSTRAP}' (host:port, ...) is missing")
    for option, why in _OURS_TO_SET.items():
        if option in given:
            raise OptionError(f"'{option}' cannot be set: {why}")
    settings = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    try:
        return as_settings(translated(settings))
    except PropertiesProblem as problem:
        raise OptionError(f"the options kafka.*: {problem}") from None


def as_settings(settings: Mapping[str, str]) -> ClientSettings:
    """Settings, by librdkafka's names, as the key of a cache that shows no secret."""
    return _Settings(sorted(settings.items()))


def library(client: Iterable[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """The configuration of a client of the library; `more` (underscores for dots) wins. Raises OptionError."""
    try:
        return {**library_settings(dict(client)), **{name.replace("_", "."): value for name, value in more.items()}}
    except PropertiesProblem as problem:
        raise OptionError(f"the options kafka.*: {problem}") from None
