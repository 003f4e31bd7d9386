"""Answers that all viewers share for a moment: fifty viewers of a page ask the cluster as often as one does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

T = TypeVar("T")

MOST: Final = 500
"""Answers that are kept; then the oldest ones go. Those that are too old to be given go with the next question."""


class _Answer(NamedTuple):
    until: float
    future: asyncio.Future[Any]


class Shared:
    """Keeps answers by key; questions with one key that come together are asked once. On one event loop."""

    def __init__(self, max_age_s: float = 2.0) -> None:
        self._max_age_s = max_age_s
        self._answers: dict[Any, _Answer] = {}

    async def get(self, key: Any, ask: Callable[[], Awaitable[T]], max_age_s: float | None = None) -> T:
        """The answer to `ask`, at most `max_age_s` old, by default that of all. Raises what `ask` raises, which is not
        kept."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is not None and (not known.future.done() or now < known.until):
            return cast(T, await asyncio.shield(known.future))
        self._drop_old(now)
        future = asyncio.ensure_future(ask())
        answer = _Answer(now + (self._max_age_s if max_age_s is None else max_age_s), future)
        self._answers[key] = answer
        future.add_done_callback(lambda _: self._drop_failed(key, answer))
        return await asyncio.shield(future)

    def forget(self) -> None:
        """Ask anew from now on. Answers that are on their way still reach those that wait."""
        self._answers.clear()

    def _drop_failed(self, key: Any, answer: _Answer) -> None:
        """Forget a failure, also when all its viewers have left: asyncio logs an exception that nobody retrieves."""
        has_failed = answer.future.cancelled() or answer.future.exception() is not None
        if has_failed and self._answers.get(key) is answer:
            del self._answers[key]

    def _drop_old(self, now: float) -> None:
        old = [key for key, each in self._answers.items() if each.future.done() and each.until <= now]
        for key in old:
            del self._answers[key]
        while len(self._answers) >= MOST:
            del self._answers[next(iter(self._answers))]
