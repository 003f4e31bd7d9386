"""Answers that all viewers share for a moment: fifty viewers of a page ask the cluster as often as one does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

MOST: Final = 500
"""Answers that are kept; then the oldest ones go."""


class Shared:
    """Keeps answers by key; questions with one key that come together are asked once. On one event loop."""

    def __init__(self, max_age_s: float = 2.0) -> None:
        self._max_age_s = max_age_s
        self._answers: dict[Any, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Any, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to `ask`, at most `max_age_s` old. Raises what `ask` raises, which is not kept."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is not None and (not known[1].done() or now - known[0] < self._max_age_s):
            return cast(T, await asyncio.shield(known[1]))
        future = asyncio.ensure_future(ask())
        self._answers.pop(key, None)
        self._answers[key] = now, future
        while len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]
        try:
            return await asyncio.shield(future)
        except Exception:
            self._answers.pop(key, None)
            raise

    def forget(self) -> None:
        """Ask anew from now on. Answers that are on their way still reach those that wait."""
        self._answers.clear()
