"""Parked requests: produces that wait for the high watermark, fetches that wait for data.

Nothing here polls. A partition whose high watermark moves wakes exactly the requests that wait on it; a timer answers
requests whose time is up.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ottla.errors import ApiError, ErrorCode
from ottla.replication.timeouts import Timeouts
from ottla.slices import SLICE_S

MOST_PLACES: Final = 200_000
"""Partitions that all fetches together wait for; each takes some 300 bytes."""
PLACES_OF_A_FETCH: Final = 5
"""What a fetch takes besides, counted as partitions."""
MANY_PARTITIONS: Final = 50
"""A fetch that waits for more leaves in a turn of the loop of its own."""


class CommitWaiter(Protocol):
    """Notified when an append is committed."""

    def committed(self, key: int) -> None: ...

    def failed(self, key: int, code: ErrorCode) -> None:
        """It will not be committed by this broker."""
        ...


class DelayedProduce:
    """A produce request with acks=all, until each of its partitions is committed, has failed, or time is up.

    `key` is whatever number the caller knows a partition's answer by.
    """

    __slots__ = ("_finish", "_is_complete", "_open", "_timeout_seconds", "_timeouts")

    def __init__(
        self,
        keys: set[int] | None,
        timeout_seconds: float,
        timeouts: Timeouts,
        finish: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """`finish` gets the partitions that were not committed, each with its error; it is called once. Without
        `keys`, each is to be expected as it is appended, and nothing ends before `complete` is called."""
        self._open: dict[int, ErrorCode] = dict.fromkeys(keys or (), ErrorCode.REQUEST_TIMED_OUT)
        self._finish: Callable[[dict[int, ErrorCode]], None] | None = finish
        self._timeout_seconds = timeout_seconds
        self._timeouts = timeouts
        self._is_complete = keys is not None
        if keys is not None:
            timeouts.start(self, timeout_seconds)

    def expect(self, key: int) -> None:
        """Another partition, of a request that is still being appended."""
        self._open[key] = ErrorCode.REQUEST_TIMED_OUT

    def complete(self) -> None:
        """No more partitions are expected: time runs from now on."""
        self._is_complete = True
        self._timeouts.start(self, self._timeout_seconds)
        self._finish_if_settled()

    def committed(self, key: int) -> None:
        """Note that a partition's records are committed; the last one completes the request."""
        self._open.pop(key, None)
        self._finish_if_settled()

    def failed(self, key: int, code: ErrorCode) -> None:
        """Note the error of a partition; the last one completes the request."""
        if key in self._open:
            self._open[key] = code
        self._finish_if_settled()

    def _finish_if_settled(self) -> None:
        if not self._is_complete:
            return
        for code in self._open.values():
            if code is ErrorCode.REQUEST_TIMED_OUT:
                return
        self._timeouts.stop(self, self._timeout_seconds)
        self.expire()

    def expire(self) -> None:
        """Time is up, or nothing is open any longer."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(self._open)


class FutureCommit:
    """An append of the broker's own (a coordinator's record), awaited through a future."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()

    def committed(self, key: int) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, key: int, code: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_exception(ApiError(code, f"the append was not committed: {code.name}"))


class ParkedFetches:
    """All fetches of a broker that wait, in the order in which they came. On the loop's thread.

    To wait takes memory for each partition, and a client can have any number of connections: of too many, those that
    have waited longest are answered before their time. They come again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most_places: int = MOST_PLACES) -> None:
        self._loop = loop
        self._most_places = most_places
        self._places: dict[DelayedFetch, int] = {}
        self._total = 0
        self._abandoned: deque[DelayedFetch] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, fetch: "DelayedFetch", partitions: int) -> None:
        """Count a parked fetch; the oldest ones end early where all together hold too many places."""
        self._places[fetch] = partitions + PLACES_OF_A_FETCH
        self._total += partitions + PLACES_OF_A_FETCH
        while self._total > self._most_places and len(self._places) > 1:
            oldest = next(iter(self._places))
            self.remove(oldest)
            self._loop.call_soon(oldest.expire)

    def remove(self, fetch: "DelayedFetch") -> None:
        self._total -= self._places.pop(fetch, 0)

    def abandon(self, fetch: "DelayedFetch") -> None:
        """Have it leave, one in each turn of the loop: when many clients go at once, it takes long for all of them."""
        self.remove(fetch)
        self._abandoned.append(fetch)
        if len(self._abandoned) == 1:
            self._loop.call_soon(self._have_one_leave)

    def _have_one_leave(self) -> None:
        self._abandoned[0].leave()
        self._abandoned.popleft()
        if self._abandoned:
            self._loop.call_soon(self._have_one_leave)


class DelayedFetch:
    """A fetch that found less than `min_bytes`, until a partition it reads has more, or time is up."""

    __slots__ = ("_others", "_parked_on", "_retry", "_timeout_seconds", "_timeouts", "done", "woken")

    def __init__(
        self,
        parked_on: "list[Waiting]",
        timeout_seconds: float,
        timeouts: Timeouts,
        others: ParkedFetches,
        retry: Callable[[bool], bool],
    ) -> None:
        """`retry(last)` answers the request if it can, and must when `last` is true; it returns whether it did.

        `parked_on` are the queues of the partitions that it reads; `others` are all parked requests.
        """
        self._retry = retry
        self._parked_on = parked_on
        self.done = False
        self.woken = False
        for waiting in parked_on:
            waiting[self] = None
        self._timeout_seconds = timeout_seconds
        self._timeouts = timeouts
        timeouts.start(self, timeout_seconds)
        self._others = others
        others.add(self, len(parked_on))

    def wake(self) -> None:
        """Some partition has more, or has changed hands."""
        self.woken = False
        if not self.done and self._retry(False):
            self.leave()

    def expire(self) -> None:
        """Its time is up."""
        if not self.done:
            self._retry(True)
            self.leave()

    def cancel(self) -> None:
        """Discard the request: no client waits for the answer any longer."""
        if not self.done:
            self.done = True
            if len(self._parked_on) > MANY_PARTITIONS:
                self._others.abandon(self)
            else:
                self.leave()

    def leave(self) -> None:
        """Take it from everywhere it waits."""
        self.done = True
        self._others.remove(self)
        self._timeouts.stop(self, self._timeout_seconds)
        for waiting in self._parked_on:
            waiting.pop(self, None)
        self._parked_on = []
        self._retry = _is_done  # the fetch refers to this: what it held goes now, not when the collector comes by


def _is_done(last: bool) -> bool:
    return True


Waiting = dict[DelayedFetch, None]
"""Fetches that wait, in the order in which they came, which is that of being woken."""


class Wakings:
    """Wakes waiting fetches in later turns of the loop. Owns those that are still to be woken; on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken: list[DelayedFetch] = []

    def wake(self, waiting: Waiting) -> None:
        """Wake each waiting fetch once, after everything that this turn commits."""
        if not self._woken:
            self._loop.call_soon(self.run)
        for fetch in waiting:
            if not fetch.woken:
                fetch.woken = True
                self._woken.append(fetch)

    def run(self) -> None:
        """Wake those that are to be woken, for a slice; the others in later turns of the loop."""
        woken, self._woken = self._woken, []
        ends_at = self._loop.time() + SLICE_S
        for number, fetch in enumerate(woken, 1):
            fetch.wake()
            if self._loop.time() >= ends_at and number < len(woken):
                self._woken[:0] = woken[number:]
                self._loop.call_soon(self.run)
                return
