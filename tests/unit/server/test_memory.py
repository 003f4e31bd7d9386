"""The budget of memory by itself, and fetches that wait for a disk in the turn of their connections."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from ottla.server.cold_fetches import ColdFetches
from ottla.server.memory import (
    BROKERS_SHARE,
    POLL_INTERVAL_S,
    SMALL_BYTES,
    MemoryBudget,
)
from ottla.testing.simulation.loop import SimLoop

LARGE = 4 << 20
LIMIT = 16 << 20


class Client:
    """A connection that holds what the test says."""

    def __init__(self, budget: MemoryBudget, *, spared: bool = False) -> None:
        self.budget = budget
        self.spared = spared
        self.held = 0
        self.moved_bytes = 0
        self.resumed = 0
        self.sends_more = False
        self.is_waited_for = True
        self.closed = False

    def hold(self, held: int) -> None:
        change, self.held = held - self.held, held
        self.moved_bytes += max(change, 0)
        self.budget.change(self, change, holds=held > 0)

    def waits_for_client(self) -> bool:
        return self.is_waited_for

    def has_more_to_read(self) -> bool:
        return self.sends_more

    def resume(self) -> None:
        self.resumed += 1

    def close(self) -> None:
        self.closed = True
        self.budget.forget(self, self.held)

    def describe(self) -> str:
        return "a client"


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(1)
    yield loop
    loop.close()


@pytest.fixture
def budget(loop: SimLoop) -> MemoryBudget:
    return MemoryBudget(loop, limit_bytes=LIMIT, largest_request_bytes=LARGE)


def passes(loop: SimLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_large_requests_wait_and_small_ones_may_use_the_reserve(budget: MemoryBudget) -> None:
    first, other = Client(budget), Client(budget)
    assert budget.has_room(LARGE, first)
    first.hold(LIMIT - LARGE)
    assert not budget.has_room(LARGE, other)
    assert budget.has_room(SMALL_BYTES, other)
    first.hold(LIMIT)
    assert not budget.has_room(SMALL_BYTES, other)


def test_those_who_wait_resume_in_turn_when_there_is_room(loop: SimLoop, budget: MemoryBudget) -> None:
    full, first, second = Client(budget), Client(budget), Client(budget)
    full.hold(LIMIT - LARGE)
    budget.wait(first)
    budget.wait(second)
    passes(loop, 0.1)
    assert (first.resumed, second.resumed) == (1, 0)  # the first has the turn
    assert budget.has_room(LARGE, first)
    assert not budget.has_room(LARGE, second)
    budget.has_received(first)
    passes(loop, 0.1)
    assert second.resumed == 1
    full.hold(0)
    third = Client(budget)
    assert budget.has_room(LARGE, third)


def test_brokers_need_not_wait_for_clients_and_are_bounded_too(loop: SimLoop, budget: MemoryBudget) -> None:
    client, broker, other = Client(budget), Client(budget, spared=True), Client(budget, spared=True)
    client.hold(LIMIT)
    assert not budget.is_used_up_for(broker)
    assert budget.has_room(LARGE, broker)
    broker.hold(LIMIT // BROKERS_SHARE)
    assert budget.is_used_up_for(broker)
    assert not budget.has_room(LARGE, other)
    assert not budget.has_room(SMALL_BYTES, other)
    budget.has_received(client)
    turn = Client(budget)
    budget.wait(turn)
    budget.wait(other)
    passes(loop, 0.1)
    assert other.resumed + turn.resumed == 1  # one has the turn
    broker.hold(0)
    passes(loop, 0.1)
    assert other.resumed == 1
    client.hold(0)
    broker.hold(LIMIT // BROKERS_SHARE)
    assert budget.has_room(LARGE, other)  # of what all share


def test_many_that_wait_at_one_listener_do_not_hold_the_other_up(loop: SimLoop, budget: MemoryBudget) -> None:
    full, *harmful = (Client(budget, spared=True) for _ in range(20))
    full.hold(2 * LIMIT)
    for one in harmful:
        budget.wait(one)
    client = Client(budget)
    budget.wait(client)
    passes(loop, 0.1)
    budget.has_received(harmful[0])
    passes(loop, 0.1)
    assert (harmful[0].resumed, client.resumed, harmful[1].resumed) == (1, 1, 0)
    budget.has_received(client)
    passes(loop, 0.1)
    assert harmful[1].resumed == 1


def test_a_client_that_moves_nothing_cannot_hold_others_up(loop: SimLoop, budget: MemoryBudget) -> None:
    stalled, working, slow, behaving, waiting = (Client(budget) for _ in range(5))
    stalled.hold(LARGE)
    working.hold(LARGE)
    working.is_waited_for = False  # the broker works on its request
    slow.hold(LARGE)
    behaving.hold(LARGE)
    budget.wait(slow)  # the turn is its
    budget.wait(waiting)
    passes(loop, POLL_INTERVAL_S + 0.1)
    assert not any(client.closed for client in (stalled, working, slow, behaving, waiting))  # seen for the first time
    behaving.moved_bytes += 1 << 20
    slow.moved_bytes += 1 << 20
    passes(loop, POLL_INTERVAL_S)
    assert stalled.closed
    assert slow.closed  # a megabyte a second is asked of the one that has the turn
    assert not working.closed
    assert not behaving.closed
    assert waiting.resumed == 1


def test_a_client_that_waits_is_closed_only_if_it_sends_nothing(loop: SimLoop, budget: MemoryBudget) -> None:
    clients = [Client(budget) for _ in range(4)]
    for client in clients:
        client.hold(LARGE)
    for client in clients:
        budget.wait(client)
    clients[2].sends_more = True
    passes(loop, 0.1)
    clients[0].moved_bytes += 100 << 20
    passes(loop, POLL_INTERVAL_S)
    clients[0].moved_bytes += 100 << 20
    passes(loop, POLL_INTERVAL_S)
    assert [client.closed for client in clients] == [False, True, False, True]


def test_cold_fetches_take_turns() -> None:
    """One of each connection, connections in turn; what was called off is never done."""
    order: list[str] = []
    go_on = Event()

    def work(name: str) -> None:
        go_on.wait(10)
        order.append(name)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as threads:
            cold = ColdFetches(loop, threads, at_once=1)
            ended: list[asyncio.Future[None]] = []

            def run(connection: int, name: str) -> "asyncio.Future[None]":
                future = loop.create_future()
                ended.append(future)
                cold.run(connection, lambda: work(name), lambda failure: future.set_result(None))
                return future

            for name in ("a1", "a2", "a3"):
                run(1, name)
            run(2, "b1")
            call_off = cold.run(2, lambda: work("never"), lambda failure: None)
            run(3, "c1")
            call_off()
            go_on.set()
            await asyncio.gather(*ended)

    asyncio.run(story())
    assert order == ["a1", "a2", "b1", "c1", "a3"] or order == ["a1", "b1", "c1", "a2", "a3"]
    assert order.index("b1") < order.index("a3")
