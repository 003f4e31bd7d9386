"""Work that has to wait for its turn behind other work of the same kind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class KeyedQueue:
    """By key, one piece of work at a time, in the order in which they came. On the loop's thread."""

    def __init__(self) -> None:
        self._last: dict[int, asyncio.Task[None]] = {}
        self._unfinished: dict[asyncio.Task[None], None] = {}

    def is_busy(self, key: int) -> bool:
        return key in self._last

    def put(self, key: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin `work` when everything that was taken before under this key has ended, however it did."""
        task = asyncio.get_running_loop().create_task(_behind(self._last.get(key), work))
        self._last[key] = task
        self._unfinished[task] = None
        task.add_done_callback(lambda ended: self._leave(key, ended))

    def _leave(self, key: int, ended: "asyncio.Task[None]") -> None:
        del self._unfinished[ended]
        if self._last.get(key) is ended:
            del self._last[key]

    async def close(self) -> None:
        """Cancel what is under way or waiting."""
        tasks = list(self._unfinished)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _behind(predecessor: "asyncio.Task[None] | None", work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    if predecessor is not None:
        await asyncio.wait([predecessor])
    await work()
