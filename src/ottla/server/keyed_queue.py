"""Work that has to wait for its turn behind other work of the same kind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class KeyedQueue:
    """By key, one piece of work at a time, in the order in which they came. On the loop's thread."""

    def __init__(self) -> None:
        self._last: dict[int, asyncio.Task[Any]] = {}
        self._unfinished: dict[asyncio.Task[Any], None] = {}

    def is_busy(self, key: int) -> bool:
        return key in self._last

    def put(self, key: int, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        """Begin `work` when everything that was taken before under this key has ended, however it did.

        The caller awaits the task for the outcome; `work` goes on if nobody waits any longer.
        """
        task = asyncio.get_running_loop().create_task(_behind(self._last.get(key), work))
        self._last[key] = task
        self._unfinished[task] = None
        task.add_done_callback(lambda ended: self._leave(key, ended))
        return task

    def _leave(self, key: int, ended: "asyncio.Task[Any]") -> None:
        del self._unfinished[ended]
        if self._last.get(key) is ended:
            del self._last[key]

    async def close(self) -> None:
        """Cancel what is under way or waiting."""
        tasks = list(self._unfinished)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _behind(predecessor: "asyncio.Task[Any] | None", work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if predecessor is not None:
        await asyncio.wait([predecessor])
    return await work()
