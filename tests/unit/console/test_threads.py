"""Blocking generators as async ones."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from ottla.console.threads import WAITING, Busy, Threads


def test_items_come_in_order_and_errors_are_raised() -> None:
    def generate(stop: threading.Event) -> Iterator[int]:
        yield from range(20)
        raise ValueError("odd")

    async def run() -> None:
        items = Threads(1, "t").items(generate)
        assert [await anext(items) for _ in range(20)] == list(range(20))
        with pytest.raises(ValueError, match="odd"):
            await anext(items)

    asyncio.run(run())


def test_a_thread_is_no_further_ahead_than_it_may_be_and_ends_with_its_reader() -> None:
    given: list[int] = []
    closed = threading.Event()

    def generate(stop: threading.Event) -> Iterator[int]:
        try:
            for number in range(1_000):
                given.append(number)
                yield number
        finally:
            closed.set()

    async def run() -> None:
        async with aclosing(Threads(1, "t").items(generate)) as items:
            assert await anext(items) == 0
            while len(given) < WAITING + 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert len(given) == WAITING + 2
        assert closed.is_set()

    asyncio.run(run())


def test_who_does_not_wait_is_refused_where_all_threads_are_at_work() -> None:
    def generate(stop: threading.Event) -> Iterator[int]:
        while not stop.is_set():
            yield 1
            time.sleep(0.01)

    async def run() -> None:
        threads = Threads(1, "t")
        async with aclosing(threads.items(generate)) as items:
            await anext(items)
            with pytest.raises(Busy):
                await anext(threads.items(generate, waits=False))
        async with aclosing(threads.items(generate, waits=False)) as items:
            assert await anext(items) == 1

    asyncio.run(run())
