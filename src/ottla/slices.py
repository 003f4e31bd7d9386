"""Long computations share the event loop: together they get one slice of a few milliseconds in each of its turns.

A long computation is written as steps: a generator that yields after every little piece of work, and returns the
result. It needs neither a clock nor a loop, so pure modules have steps, too. Modules with a loop run them:

    response = await slices.run(encode_steps(response))
    answers = await slices.map(describe, groups)

Between two slices everything else on the loop goes on, so what the steps look at may have changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.clock import Clock

T = TypeVar("T")
ItemT = TypeVar("ItemT")

Steps = Generator[None, None, T]
"""Yields after at most some hundred microseconds of work, at a place where others may go on; returns the result."""

SLICE_S: Final = 0.004
TOGETHER: Final = 50
"""How many computations that wait for others are begun in one turn of the loop."""


class Finished(NamedTuple, Generic[T]):
    """The steps have come to their end."""

    result: T


class Slices:
    """One for each loop, on its thread."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._ends_at = 0.0
        """When the slice ends that was given last."""
        self._queue = asyncio.Lock()
        """Held while its holder waits for the next turn of the loop, to have its slice then."""

    async def pause(self) -> None:
        """Give way if the present slice has been used up: for coroutines that work through something long."""
        if self._now() >= self._ends_at:
            async with self._queue:
                await asyncio.sleep(0)
                self._ends_at = self._now() + SLICE_S

    def begin(self, steps: Steps[T]) -> Finished[T] | None:
        """Run the steps for one slice, now. None if they have to go on with `run`. Raises what they raise."""
        end = self._now() + SLICE_S
        try:
            while self._now() < end:
                next(steps)
        except StopIteration as finished:
            return Finished(finished.value)
        return None

    def start(self, steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
        """The result of the steps if one slice is enough for them, else what comes to it in the slices that follow."""
        finished = self.begin(steps)
        return self.run(steps) if finished is None else finished.result

    async def run(self, steps: Steps[T]) -> T:
        """The result of the steps, from where they are. Raises what they raise."""
        try:
            while True:
                await self.pause()
                while self._now() < self._ends_at:
                    next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result

    async def map(self, function: Callable[[ItemT], T], items: Iterable[ItemT]) -> list[T]:
        """`function` of each item; of one it takes some hundred microseconds at most."""
        results = []
        for item in items:
            await self.pause()
            results.append(function(item))
        return results

    async def each(self, function: Callable[[ItemT], Awaitable[T]], items: Iterable[ItemT]) -> list[T]:
        """What `function` of each item comes to, one after the other."""
        results = []
        for item in items:
            await self.pause()
            results.append(await function(item))
        return results

    async def together(self, function: Callable[[ItemT], Awaitable[T]], items: Iterable[ItemT]) -> list[T]:
        """What `function` of each item comes to, several at a time: for what waits for others."""
        rest = iter(items)
        results: list[T] = []
        while some := list(islice(rest, TOGETHER)):
            await self.pause()
            results += await asyncio.gather(*map(function, some))
        return results


def run_at_once(steps: Steps[T]) -> T:
    """Run steps to their result, in one turn of the loop."""
    try:
        while True:
            next(steps)
    except StopIteration as finished:
        result: T = finished.value
        return result
