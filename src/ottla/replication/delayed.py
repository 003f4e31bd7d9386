"""Parked requests: produces that wait for the high watermark, fetches that wait for data.

Nothing here polls. A partition whose high watermark moves wakes exactly those who wait on it; a timer answers those
whose time is up.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.errors import ApiError, ErrorCode


class CommitWaiter(Protocol):
    """Somebody who waits until an append is committed."""

    def committed(self, key: int) -> None: ...

    def failed(self, key: int, code: ErrorCode) -> None:
        """It will not be committed by this broker."""
        ...


class DelayedProduce:
    """A produce request with acks=all, until each of its partitions is committed, has failed, or time is up.

    `key` is whatever number the caller knows a partition's answer by.
    """

    __slots__ = ("_finish", "_open", "_timer")

    def __init__(
        self,
        keys: set[int],
        timeout_seconds: float,
        loop: asyncio.AbstractEventLoop,
        finish: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """`finish` gets the partitions that were not committed, each with its error; it is called once."""
        self._open: dict[int, ErrorCode] = dict.fromkeys(keys, ErrorCode.REQUEST_TIMED_OUT)
        self._finish: Callable[[dict[int, ErrorCode]], None] | None = finish
        self._timer = loop.call_later(timeout_seconds, self._expire)

    def committed(self, key: int) -> None:
        self._open.pop(key, None)
        self._finish_if_settled()

    def failed(self, key: int, code: ErrorCode) -> None:
        if key in self._open:
            self._open[key] = code
        self._finish_if_settled()

    def _finish_if_settled(self) -> None:
        for code in self._open.values():
            if code is ErrorCode.REQUEST_TIMED_OUT:
                return
        self._expire()

    def _expire(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            self._timer.cancel()
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


class DelayedFetch:
    """A fetch that found less than `min_bytes`, until a partition it reads has more, or time is up."""

    __slots__ = ("_parked_on", "_retry", "_timer", "done", "woken")

    def __init__(
        self,
        parked_on: "list[Waiting]",
        timeout_seconds: float,
        loop: asyncio.AbstractEventLoop,
        retry: Callable[[bool], bool],
    ) -> None:
        """`retry(last)` answers the request if it can, and must when `last` is true; it returns whether it did.

        `parked_on` is where the partitions it reads keep those who wait.
        """
        self._retry = retry
        self._parked_on = parked_on
        self.done = False
        self.woken = False
        for waiting in parked_on:
            waiting[self] = None
        self._timer = loop.call_later(timeout_seconds, self._expire)

    def wake(self) -> None:
        """Some partition has more, or has changed hands."""
        self.woken = False
        if not self.done and self._retry(False):
            self._leave()

    def _expire(self) -> None:
        if not self.done:
            self._retry(True)
            self._leave()

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        if not self.done:
            self._leave()

    def _leave(self) -> None:
        self.done = True
        self._timer.cancel()
        for waiting in self._parked_on:
            waiting.pop(self, None)


Waiting = dict[DelayedFetch, None]
"""Fetches that wait, in the order in which they came, which is that of being woken."""
