"""A source that breaks the rules for connectors."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from ottla.connect.api import (
    ConfigError,
    Context,
    Position,
    SecretStr,
    Settings,
    Source,
    SourceContext,
    SourceRecord,
    setting,
)

LET_GO: Final = threading.Event()
"""Ends what would never end."""

_ASKED: Final[list[str]] = []


class EvilSettings(Settings):
    mode: str = setting("Which rule.")
    word: SecretStr = setting("Some secret.", SecretStr(""))


class Evil(Source[EvilSettings]):
    """Breaks the rule that `mode` says."""

    def __init__(self, settings: EvilSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        if settings.mode == "constructor":
            raise RuntimeError("no idea")

    @classmethod
    def check(cls, settings: EvilSettings, context: Context) -> None:
        if settings.mode == "looks":
            LET_GO.wait()
            raise ConfigError("it was looked at for long enough")

    @classmethod
    def tasks(cls, settings: EvilSettings, max_tasks: int, context: Context) -> Sequence[Mapping[str, str]]:
        if settings.mode == "thinks":
            LET_GO.wait()
        if settings.mode == "no tasks":
            raise ConfigError("there is nothing to read")
        if settings.mode == "grows":
            _ASKED.append(context.connector)
            return [{}] * min(len(_ASKED), max_tasks)
        numbered: Any = [{"shard": 0}]
        return numbered if settings.mode == "typed" else [{}]

    def read(self, position: Position | None) -> Iterator[Any]:
        if self.settings.mode in ("list", "nothing"):
            broken: Any = {"list": [1], "nothing": None}
            return broken[self.settings.mode]
        return self._yielded()

    def _yielded(self) -> Iterator[Any]:
        match self.settings.mode:
            case "exit":
                sys.exit(3)
            case "panic":
                raise BaseException("a panic of Rust's")
            case "bare error":
                raising: Any = KafkaError(KafkaError.REQUEST_TIMED_OUT)
                raise raising  # as the client library does, though it is no exception
            case "number":
                yield 42
            case "no topic":
                yield SourceRecord(topic="", value=1, position={"at": 1})
            case "stuck":
                LET_GO.wait()
        while not self.context.sleep(0.05):
            yield None
