"""The composition root: builds the parts of one broker, starts and stops them in order. No logic.

    start   directories (lock, load, recover) -> metadata -> partitions -> groups -> listeners
    stop    listeners -> groups -> partitions (flush, checkpoint, clean-shutdown marker) -> metadata -> directories
"""

import asyncio
import itertools
import logging
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.clock import Clock, SystemClock
from ottla.config.broker import BrokerConfig
from ottla.config.load import load
from ottla.errors import OttlaError

log = logging.getLogger("ottla")

FAILED: Final = 1
SWITCH_INTERVAL_SECONDS: Final = 0.0005
"""How long the loop may keep the interpreter from a flusher whose disk has answered (Python's default is 5 ms)."""


class Broker:
    """One broker, as an async context manager: inside, it serves.

    `BrokerConfig` says everything about it. OttlaError or OSError on entry say why it cannot start.
    """

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self.ports: dict[str, int] = {}
        """Listener name to the port it is bound to."""

    @classmethod
    def configured(
        cls, properties_file: Path | None, overrides: Mapping[str, str], *, clock: Clock | None = None
    ) -> Self:
        """A broker with the settings of a file and what overrides them. Raises InvalidConfig."""
        config, warnings = load(properties_file, overrides)
        for warning in warnings:
            log.warning("%s", warning)
        return cls(config, clock=clock)

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
