"""Fetches that have to wait for a disk: a few at a time, one of each connection, connections in turn.

A client that sends many of them delays only itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from ottla.log.file_region import FileRegion
from ottla.server.connection import Load

AT_ONCE: Final = 4
BYTES_EACH: Final = 8 << 20
"""What one of them reads and checks at most, or a batch; the client asks for the rest with its next fetch."""

Done = Callable[[Exception | None], None]


class ColdFetches:
    """The queue in front of the threads that read. On the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor, *, at_once: int = AT_ONCE) -> None:
        self._loop = loop
        self._threads = threads
        self._free = at_once
        self._waiting: dict[int, deque[tuple[Callable[[], None], Done]]] = {}
        """By connection, those whose turn comes first in front."""
        self._running: set[int] = set()

    def run(self, connection_id: int, work: Callable[[], None], done: Done) -> Callable[[], None]:
        """Have `work` done in a thread, then call `done` on the loop with what it raised; returns what calls it off
        if it has not begun."""
        entry = (work, done)
        self._waiting.setdefault(connection_id, deque()).append(entry)
        self._start()
        return lambda: self._call_off(connection_id, entry)

    def load_for(self, connection_id: int) -> Load:
        """What brings parts of files into memory for a connection, in its turn."""

        def load(region: FileRegion, sent: int, loaded: Callable[[], None]) -> None:
            self.run(connection_id, partial(region.load, sent), lambda _: loaded())

        return load

    def _start(self) -> None:
        while self._free:
            connection_id = next((waiting for waiting in self._waiting if waiting not in self._running), None)
            if connection_id is None:
                return
            queue = self._waiting.pop(connection_id)
            work, done = queue.popleft()
            if queue:
                self._waiting[connection_id] = queue  # behind the others
            self._free -= 1
            self._running.add(connection_id)
            future = self._loop.run_in_executor(self._threads, work)
            future.add_done_callback(partial(self._end, connection_id, done))

    def _end(self, connection_id: int, done: Done, ended: "asyncio.Future[None]") -> None:
        self._free += 1
        self._running.discard(connection_id)
        if not ended.cancelled():
            failure = ended.exception()
            done(failure if isinstance(failure, Exception) else None)
        self._start()

    def _call_off(self, connection_id: int, entry: tuple[Callable[[], None], Done]) -> None:
        queue = self._waiting.get(connection_id)
        if queue is not None and entry in queue:
            queue.remove(entry)
            if not queue:
                del self._waiting[connection_id]
