"""One budget for the bytes that requests and answers hold in memory, over all connections of a broker.

    |---------- shared by all ----------|---- reserve: small requests, and the one that has the turn ----| limit
    |-- for brokers --|  beyond the limit: an eighth of it, for the listener between brokers, once the rest is used up

Counted are requests under way, requests that are kept while they are worked on, and answers that were not sent yet;
records that are sent from their files hold nothing. While the shared part is used up, large requests wait and their
sockets are not read. One at a time then has the turn, and may use the reserve, so that there is always one that gets
finished. A request that was received at once needs no room: small requests are answered meanwhile.

No connection can block the others forever: while requests wait, every `POLL_INTERVAL_S`, connections are closed that
hold memory and whose client has moved nearly nothing, and the one that has the turn if it did not bring a megabyte a
second. When the reserve is used up as well, little is read at once: what has been read of a request has to be kept.

Brokers do not wait for clients, but what reaches their listener is bounded, too: anybody may connect to it.
"""

import asyncio
import logging
from typing import Final, Protocol

log = logging.getLogger(__name__)

DEFAULT_BYTES: Final = 256 << 20
SMALL_BYTES: Final = 128 * 1024
"""A request of this size may use the reserve."""
BROKERS_SHARE: Final = 8
"""The part of the limit, one in so many, that the listener between brokers may take beyond it."""
POLL_INTERVAL_S: Final = 5.0
LEAST_MOVED_BYTES: Final = 64 * 1024
LEAST_IN_TURN_BYTES: Final = 5 << 20


class Holder(Protocol):
    """A connection."""

    spared: bool
    """Whether it is at the listener between brokers, and clients have another one."""

    @property
    def moved_bytes(self) -> int:
        """Bytes moved over it, in both directions, since it was opened."""
        ...

    def waits_for_client(self) -> bool:
        """Whether its client has something to send or to take."""
        ...

    def has_more_to_read(self) -> bool:
        """Whether its client has sent what was not read yet."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...

    def close(self) -> None: ...

    def describe(self) -> str: ...


class MemoryBudget:
    """How much each connection holds, and which ones wait. Runs on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, limit_bytes: int, largest_request_bytes: int) -> None:
        """`limit_bytes`: queued.max.request.bytes; `largest_request_bytes`: socket.request.max.bytes."""
        self._loop = loop
        self.limit_bytes = limit_bytes
        self.shared_bytes = limit_bytes - min(largest_request_bytes, limit_bytes // 2)
        self.for_brokers_bytes = limit_bytes // BROKERS_SHARE
        self.held_bytes = 0
        self._held_by_brokers_bytes = 0
        self._moved: dict[Holder, int | None] = {}
        """The connections that hold memory, with their moved bytes at the last check, if there was one."""
        self._waiting: dict[Holder, None] = {}
        self._waiting_brokers: dict[Holder, None] = {}
        self._queues = [self._waiting_brokers, self._waiting]
        """The next one to resume from is first: a flood at one listener does not keep the others waiting."""
        self._turn: Holder | None = None
        self._waking = False
        self._look: asyncio.TimerHandle | None = None

    def change(self, holder: Holder, bytes_: int, *, holds: bool) -> None:
        """`holder` holds so much more, or less; `holds`: does it hold anything now?"""
        self.held_bytes += bytes_
        if holder.spared:
            self._held_by_brokers_bytes += bytes_
        if holds:
            self._moved.setdefault(holder, None)
        else:
            self._moved.pop(holder, None)
        if bytes_ < 0 and (self._waiting or self._waiting_brokers):
            self._wake_soon()

    def has_room(self, bytes_: int, holder: Holder) -> bool:
        """Whether a request of so many bytes in all may go on to be received."""
        if self.held_bytes < self.shared_bytes or holder is self._turn or not self.is_used_up_for(holder):
            return True
        return bytes_ <= SMALL_BYTES and self.held_bytes < self.limit_bytes

    @property
    def is_short(self) -> bool:
        """Whether answers had better hold nothing: then records are sent from their files, however few they are."""
        return self.held_bytes >= self.shared_bytes // 2

    def is_used_up_for(self, holder: Holder) -> bool:
        """Whether `holder` is not to be given more answers before it has taken the last one."""
        if self.held_bytes < self.shared_bytes:
            return False
        return not holder.spared or self._held_by_brokers_bytes >= self.for_brokers_bytes

    @property
    def is_full(self) -> bool:
        """Whether the reserve is used up, too."""
        return self.held_bytes >= self.limit_bytes

    def room_for_answer(self) -> int:
        """How many bytes an answer may hold that can be smaller. While there is no room, connections are closed as if
        requests waited for it."""
        room = self.shared_bytes - self.held_bytes
        if room <= 0 and self._look is None:
            self._look = self._loop.call_later(POLL_INTERVAL_S, self._look_at_all)
        return max(room, 0)

    def wait(self, holder: Holder) -> None:
        """Have `holder` resume when there is room, in the order of waiting; brokers and clients alternate."""
        (self._waiting_brokers if holder.spared else self._waiting)[holder] = None
        if self._look is None:
            self._look = self._loop.call_later(POLL_INTERVAL_S, self._look_at_all)
        self._wake_soon()

    def has_received(self, holder: Holder) -> None:
        """Its request is complete."""
        if holder is self._turn:
            self._turn = None
            if self._waiting or self._waiting_brokers:
                self._wake_soon()

    def forget(self, holder: Holder, held_bytes: int) -> None:
        """It was closed."""
        self._waiting.pop(holder, None)
        self._waiting_brokers.pop(holder, None)
        self.change(holder, -held_bytes, holds=False)
        self.has_received(holder)

    def _waits(self, holder: Holder) -> bool:
        return holder in self._waiting or holder in self._waiting_brokers

    def _wake_soon(self) -> None:
        if not self._waking:
            self._waking = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for waiting in self._queues:
            holder = next(iter(waiting), None)
            if holder is None:
                continue
            is_used_up = self.is_used_up_for(holder)
            if is_used_up and self._turn is not None:
                continue
            del waiting[holder]
            if waiting is self._queues[0]:
                self._queues.reverse()
            if is_used_up:
                self._turn = holder
                self._moved[holder] = None
            holder.resume()
            self._wake_soon()  # the others, in later turns of the loop, when this one has taken what it needs
            return

    def _look_at_all(self) -> None:
        self._look = None
        for holder, before in list(self._moved.items()):
            moved = holder.moved_bytes - (before or 0)
            if before is None or not holder.waits_for_client():
                is_slow = False
            elif holder is self._turn:
                is_slow = moved < LEAST_IN_TURN_BYTES
            else:
                is_slow = moved < LEAST_MOVED_BYTES and not (self._waits(holder) and holder.has_more_to_read())
            if is_slow:
                log.warning(
                    "closing %s: it holds memory that others wait for, and only %d bytes have gone over it in %.0f s "
                    "(queued.max.request.bytes)",
                    holder.describe(),
                    moved,
                    POLL_INTERVAL_S,
                )
                holder.close()
            else:
                self._moved[holder] = holder.moved_bytes
        if self._waiting or self._waiting_brokers or self._turn is not None:
            self._look = self._loop.call_later(POLL_INTERVAL_S, self._look_at_all)

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
