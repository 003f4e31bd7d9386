import asyncio
from collections.abc import Iterator

import pytest

from ottla.testing.simulation.loop import Deadlock, Life, SimClock, SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(7)
    yield made
    made.close()


def test_a_year_passes_at_once(loop: SimLoop) -> None:
    clock = SimClock(loop, epoch_ms=1_000)

    async def wait() -> None:
        await asyncio.sleep(365 * 86_400)

    loop.run_until_complete(wait())
    assert clock.monotonic() == 365 * 86_400
    assert clock.now_ms() == 1_000 + 365 * 86_400_000


def test_timers_go_off_in_order_and_limits_are_kept(loop: SimLoop) -> None:
    seen: list[str] = []

    async def run() -> None:
        loop.call_later(2, seen.append, "two")
        loop.call_later(1, seen.append, "one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.sleep(60)
        seen.append("cut short")
        await asyncio.sleep(1)

    loop.run_until_complete(run())
    assert seen == ["one", "cut short", "two"]
    assert loop.time() == 2.5


def test_executors_take_time_and_hand_on_what_happened(loop: SimLoop) -> None:
    def fail() -> None:
        raise OSError("no space")

    async def run() -> tuple[int, float]:
        with pytest.raises(OSError, match="no space"):
            await loop.run_in_executor(None, fail)
        return await asyncio.to_thread(lambda: 5), loop.time()

    five, spent = loop.run_until_complete(run())
    assert five == 5
    assert spent > 0


def test_the_seed_decides_how_long(loop: SimLoop) -> None:
    def spent(seed: int) -> float:
        other = SimLoop(seed)
        try:
            other.run_until_complete(other.run_in_executor(None, int))
            return other.time()
        finally:
            other.close()

    assert spent(1) == spent(1) != spent(2)


def test_what_never_happens_is_said(loop: SimLoop) -> None:
    with pytest.raises(Deadlock, match="nothing is left to do"):
        loop.run_until_complete(loop.create_future())


def test_what_belongs_to_a_life_ends_with_it(loop: SimLoop) -> None:
    seen: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(10)
            seen.append("child")
        finally:
            seen.append("cleaned up")

    async def process() -> None:
        asyncio.get_running_loop().call_later(5, seen.append, "timer")
        task = asyncio.create_task(child())
        await asyncio.to_thread(seen.append, "thread")
        seen.append("woke")
        await task

    first, second = Life("first"), Life("second")
    loop.start(first, process())
    loop.start(second, process())
    loop.run_until_complete(asyncio.sleep(4))
    assert sorted(seen) == ["thread", "thread", "woke", "woke"]
    first.end()
    seen.clear()
    loop.run_until_complete(asyncio.sleep(100))
    assert seen == ["timer", "child", "cleaned up"]
    for task in first.tasks:
        task.cancel()
    first.is_over = False  # let them end, so that nothing is left behind
    loop.run_until_complete(asyncio.sleep(0))


def test_who_is_paused_does_everything_afterwards_and_in_its_order(loop: SimLoop) -> None:
    seen: list[str] = []

    async def process() -> None:
        running = asyncio.get_running_loop()
        running.call_later(1, seen.append, "one")
        running.call_later(2, seen.append, "two")
        await asyncio.sleep(3)
        seen.append(f"slept until {running.time()}")

    life = Life("p")
    task = loop.start(life, process())
    loop.run_until_complete(asyncio.sleep(0.5))
    life.pause()
    loop.run_until_complete(asyncio.sleep(9.5))
    assert seen == []
    loop.call_soon(seen.append, "later")
    loop.resume(life)
    loop.run_until_complete(task)
    assert seen == ["one", "two", "later", "slept until 10.0"]


def test_what_is_cancelled_never_happens(loop: SimLoop) -> None:
    seen: list[str] = []
    loop.call_later(1, seen.append, "cancelled").cancel()
    loop.call_later(2, seen.append, "kept")
    loop.run_until_complete(asyncio.sleep(3))
    assert seen == ["kept"]
