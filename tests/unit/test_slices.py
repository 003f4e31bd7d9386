"""Long computations leave the loop to others between their slices."""

import asyncio
from collections.abc import Generator
from itertools import pairwise

import pytest

from ottla.slices import SLICE_S, Slices, run_at_once
from ottla.testing.manual_clock import ManualClock

STEP_S = SLICE_S / 4


def steps(clock: ManualClock, count: int, done: list[str], name: str = "") -> Generator[None, None, int]:
    for _ in range(count):
        clock.advance(seconds=STEP_S)
        done.append(name)
        yield
    return count


def test_a_slice_is_followed_by_a_turn_of_the_loop() -> None:
    clock = ManualClock()
    done: list[str] = []
    seen: list[int] = []

    async def other() -> None:
        while len(done) < 40:
            seen.append(len(done))
            await asyncio.sleep(0)

    async def main() -> None:
        result, _ = await asyncio.gather(Slices(clock).run(steps(clock, 40, done)), other())
        assert result == 40

    asyncio.run(main())
    assert max(after - before for before, after in pairwise(seen)) <= 5


def test_several_computations_take_turns() -> None:
    clock = ManualClock()
    done: list[str] = []

    async def main() -> None:
        slices = Slices(clock)
        await asyncio.gather(*(slices.run(steps(clock, 40, done, name)) for name in "ab"))

    asyncio.run(main())
    assert done.index("b") <= 5
    assert "a" in done[-8:]


def test_what_is_short_is_done_at_once() -> None:
    clock = ManualClock()

    async def main() -> None:
        assert Slices(clock).start(steps(clock, 2, [])) == 2
        long = Slices(clock).start(steps(clock, 20, []))
        assert not isinstance(long, int)
        assert await long == 20

    asyncio.run(main())


def test_failures_come_through() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("at last")

    async def main() -> None:
        slices = Slices(ManualClock())
        with pytest.raises(ValueError, match="at last"):
            slices.start(failing())
        with pytest.raises(ValueError, match="at last"):
            await slices.run(failing())

    asyncio.run(main())


def test_items_keep_their_order() -> None:
    async def later(item: int) -> int:
        await asyncio.sleep(0)
        return -item

    async def main() -> None:
        slices = Slices(ManualClock())
        items = range(120)
        assert await slices.map(lambda item: item + 1, items) == list(range(1, 121))
        assert await slices.each(later, items) == [-item for item in items]
        assert await slices.together(later, items) == [-item for item in items]

    asyncio.run(main())


def test_steps_without_a_loop() -> None:
    assert run_at_once(steps(ManualClock(), 3, [])) == 3
