"""Group commit: one flusher per log directory makes many appends durable with one round of fdatasync.

    appends of one loop turn --mark--> dirty --one round--> [thread: fdatasync each file] --> synced on the loop
                                         ^                                                       |
                                         `---- what was appended meanwhile waits for the next <--'

While a round is under way nothing else is synced in its directory, so a slow disk makes rounds larger, not more
numerous. The log is touched on the loop's thread only; the thread sees nothing but pinned files.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Protocol

from ottla.log.flush import FlushTicket

log = logging.getLogger(__name__)


class Flushable(Protocol):
    """A partition, as the flusher sees it; all on the loop's thread."""

    def prepare_flush(self) -> FlushTicket | None:
        """Pin what is to be synced, up to the current log end; None if there is nothing."""
        ...

    def flushed(self, ticket: FlushTicket) -> None:
        """All of the ticket is durable."""
        ...

    def flush_failed(self, ticket: FlushTicket, error: OSError) -> None:
        """Whether the ticket's data is durable is unknown and cannot be found out: the partition must stop."""
        ...


_Round = list[tuple[Flushable, FlushTicket, OSError | None]]


class GroupCommit:
    """The flusher of one log directory. `start` before the first `mark`; `close` waits for the round under way."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, round_finished: Callable[[], None]) -> None:
        self._name = name
        self._loop = loop
        self._round_finished = round_finished
        self._dirty: dict[Flushable, None] = {}
        self._busy = False
        self._rounds: SimpleQueue[_Round | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._sync_rounds, name=f"flush {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def mark(self, partition: Flushable) -> None:
        """The partition has unsynced data that somebody waits for."""
        self._dirty[partition] = None
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._begin_round)  # after this turn's other appends

    def forget(self, partition: Flushable) -> None:
        """The partition is gone (deleted, moved, failed)."""
        self._dirty.pop(partition, None)

    def _begin_round(self) -> None:
        dirty, self._dirty = self._dirty, {}
        work: _Round = []
        for partition in dirty:
            ticket = partition.prepare_flush()
            if ticket is not None:
                work.append((partition, ticket, None))
        if work:
            self._rounds.put(work)
        else:
            self._busy = False

    def _sync_rounds(self) -> None:
        while (work := self._rounds.get()) is not None:
            if len(work) > 1:
                for _, ticket, _ in work:
                    ticket.begin()
            for index, (partition, ticket, _) in enumerate(work):
                try:
                    ticket.sync()
                except OSError as error:
                    work[index] = (partition, ticket, error)
            try:
                self._loop.call_soon_threadsafe(self._end_round, work)
            except RuntimeError:  # the loop was closed under a broker that was not stopped
                return

    def _end_round(self, work: Iterable[tuple[Flushable, FlushTicket, OSError | None]]) -> None:
        for partition, ticket, error in work:
            if error is None:
                partition.flushed(ticket)
            else:
                log.error("log directory %s: fdatasync failed: %s", self._name, error)
                partition.flush_failed(ticket, error)
        self._round_finished()
        if self._dirty:
            self._begin_round()
        else:
            self._busy = False

    def close(self) -> None:
        """Let the thread finish its round and end."""
        self._rounds.put(None)
        if self._thread.is_alive():
            self._thread.join()
