"""Few large answers are made at a time; clients have turns one after the other, however many requests one sends."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.unit.server.test_memory import LARGE, LIMIT, Client

from ottla.server.large_answers import LARGE_ANSWERS, LargeAnswers
from ottla.server.memory import POLL_INTERVAL_S, MemoryBudget
from ottla.testing.simulation.loop import SimLoop

ALICE, BOB = ("User:alice", "10.0.0.1"), ("User:bob", "10.0.0.2")


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(0)
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


class Made:
    """Answers that take a second each."""

    def __init__(self, loop: SimLoop) -> None:
        self.budget = MemoryBudget(loop, limit_bytes=LIMIT, largest_request_bytes=LARGE)
        self.answers = LargeAnswers(self.budget)
        self.order: list[str] = []
        self.under_way = self.most = 0
        self.left: Callable[[], object] = lambda: None
        """Called when one has just left its place to the next."""

    async def make(self, client: tuple[str, str], *, patience_s: float | None = None) -> None:
        async with self.answers.turn(client, patience_s=patience_s):
            self.order.append(client[0])
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(1)
            self.under_way -= 1
        self.left()


def run(loop: SimLoop, scenario: Coroutine[Any, Any, None]) -> None:
    loop.run_until_complete(scenario)


def test_few_are_made_at_a_time(loop: SimLoop) -> None:
    made = Made(loop)

    async def scenario() -> None:
        await asyncio.gather(*(made.make(ALICE) for _ in range(3 * LARGE_ANSWERS)))

    run(loop, scenario())
    assert (made.most, len(made.order)) == (LARGE_ANSWERS, 3 * LARGE_ANSWERS)
    assert loop.time() < 4


def test_a_client_waits_for_one_answer_of_each_other_and_not_for_all(loop: SimLoop) -> None:
    made = Made(loop)

    async def scenario() -> None:
        flood = [asyncio.create_task(made.make(ALICE)) for _ in range(10 * LARGE_ANSWERS)]
        await asyncio.sleep(0.5)
        await made.make(BOB)
        assert loop.time() < 3
        await asyncio.gather(*flood)

    run(loop, scenario())
    assert made.order.index(BOB[0]) <= LARGE_ANSWERS + 1
    assert len(made.order) == 10 * LARGE_ANSWERS + 1


def test_one_that_loses_patience_or_goes_away_leaves_its_place_to_the_next(loop: SimLoop) -> None:
    made = Made(loop)

    async def scenario() -> None:
        first = [asyncio.create_task(made.make(ALICE)) for _ in range(LARGE_ANSWERS)]
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await made.make(BOB, patience_s=0.3)
        assert loop.time() < 0.5
        gone = [asyncio.create_task(made.make(client)) for client in (ALICE, BOB)]
        await asyncio.sleep(0.1)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        await asyncio.gather(*first, *(made.make(BOB) for _ in range(LARGE_ANSWERS)))

    run(loop, scenario())
    assert made.order.count(BOB[0]) == LARGE_ANSWERS
    assert loop.time() < 3


def test_one_that_is_given_its_place_as_it_goes_away_hands_it_on(loop: SimLoop) -> None:
    made = Made(loop)

    async def scenario() -> None:
        first = [asyncio.create_task(made.make(ALICE)) for _ in range(LARGE_ANSWERS)]
        await asyncio.sleep(0.1)
        gone, last = (asyncio.create_task(made.make(BOB)) for _ in range(2))
        await asyncio.sleep(0.1)
        made.left = gone.cancel
        await asyncio.wait([*first, gone])
        await last
        await asyncio.gather(*(made.make(ALICE) for _ in range(LARGE_ANSWERS)))

    run(loop, scenario())
    assert (made.most, made.order.count(BOB[0])) == (LARGE_ANSWERS, 1)
    assert loop.time() < 4


def test_one_waits_until_clients_have_taken_theirs_or_are_closed(loop: SimLoop) -> None:
    made = Made(loop)

    async def scenario() -> None:
        idle = Client(made.budget)
        idle.hold(LIMIT)
        with pytest.raises(TimeoutError):
            await made.make(BOB, patience_s=1)
        await made.make(BOB)
        assert idle.closed
        assert loop.time() >= POLL_INTERVAL_S

    run(loop, scenario())
    assert made.order == [BOB[0]]
