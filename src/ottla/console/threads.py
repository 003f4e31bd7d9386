"""Blocking generators, run in threads, as async ones. They go no faster than what they give is taken."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from typing import Any, Final, Generic, TypeVar, cast

from ottla.console.metrics import Counts

T = TypeVar("T")

WAITING: Final = 4
"""Items that a thread may be ahead."""
LOOK_AGAIN_S: Final = 0.1


class Busy(Exception):
    """All threads are at work."""


class Threads:
    """So many threads for one kind of work. On one event loop."""

    def __init__(self, most: int, name: str, counts: Counts | None = None) -> None:
        self.most = most
        self._name = name
        self._counts = counts or Counts()
        self._turns = asyncio.Semaphore(most)
        self._executor = ThreadPoolExecutor(most, name)

    async def items(
        self, generate: Callable[[threading.Event], Iterator[T]], *, waits: bool = True
    ) -> AsyncGenerator[T, None]:
        """What a generator gives, which is to end soon after its event is set: when nobody asks for more.

        Waits for a thread, or raises Busy. Raises what the generator raises.
        """
        if not waits and self._turns.locked():
            raise Busy
        began = self._counts.begins(self._name)
        try:
            async with self._turns, aclosing(_Run(generate).items(self._executor)) as items:
                async for item in items:
                    yield item
        finally:
            self._counts.ends(self._name, began)


class _Run(Generic[T]):
    """One generator in one thread."""

    def __init__(self, generate: Callable[[threading.Event], Iterator[T]]) -> None:
        self._generate = generate
        self._loop = asyncio.get_running_loop()
        self._given: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._room = threading.Semaphore(WAITING)
        self._stop = threading.Event()

    async def items(self, executor: ThreadPoolExecutor) -> AsyncGenerator[T, None]:
        thread = self._loop.run_in_executor(executor, self._work)
        try:
            while True:
                kind, item = await self._given.get()
                if kind == "end":
                    return
                if kind == "error":
                    raise item
                self._room.release()
                yield cast(T, item)
        finally:
            self._stop.set()
            await asyncio.shield(thread)

    def _work(self) -> None:
        try:
            with closing(cast(Any, self._generate(self._stop))) as items:
                for item in items:
                    while not self._room.acquire(timeout=LOOK_AGAIN_S):
                        if self._stop.is_set():
                            return
                    self._give("item", item)
        except Exception as error:
            self._give("error", error)
        else:
            self._give("end", None)

    def _give(self, kind: str, item: Any) -> None:
        self._loop.call_soon_threadsafe(self._given.put_nowait, (kind, item))
