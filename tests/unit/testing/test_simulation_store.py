"""The simulated ZooKeeper, as a broker sees it."""

import asyncio
from collections.abc import Iterator

import pytest

from ottla.metadata.store.base import Create, SessionEvent, StoreConflict, StoreUnavailable
from ottla.testing.simulation.loop import Life, SimLoop
from ottla.testing.simulation.network import SimNetwork
from ottla.testing.simulation.store import SimStore, SimZooKeeper

TIMEOUT_S = 6.0


@pytest.fixture
def server() -> Iterator[SimZooKeeper]:
    loop = SimLoop(5)
    made = SimZooKeeper(SimNetwork(loop), session_timeout_seconds=TIMEOUT_S)
    expiring = loop.create_task(made.run())
    yield made
    expiring.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def run(server: SimZooKeeper, work: object) -> object:
    return server.network.loop.run_until_complete(work)  # type: ignore[arg-type]


def opened(server: SimZooKeeper, host: str) -> tuple[SimStore, list[SessionEvent]]:
    store, events = SimStore(server, host), list[SessionEvent]()
    store.on_session(events.append)
    run(server, store.open())
    return store, events


def test_nodes_of_a_session_go_when_the_server_has_not_heard_of_it(server: SimZooKeeper) -> None:
    (one, events), (other, _) = opened(server, "b1"), opened(server, "b2")
    seen: list[float] = []
    other.watch("/id", lambda: seen.append(server.network.loop.time()))
    run(server, one.commit([Create("/id", b"b1", session_bound=True)]))
    found = run(server, one.read("/id"))
    assert found["/id"].is_own  # type: ignore[index]
    assert not run(server, other.read("/id"))["/id"].is_own  # type: ignore[index]

    server.network.cut(["b1"], ["zk"])
    cut_at = server.network.loop.time()
    run(server, asyncio.sleep(TIMEOUT_S * 0.7))
    assert not one.holds_session()  # it doubts its session before anybody else gets to know
    assert events == [SessionEvent.LOST]
    assert "/id" in server.tree.nodes
    with pytest.raises(StoreUnavailable):
        run(server, one.read("/id"))
    run(server, asyncio.sleep(TIMEOUT_S))
    assert "/id" not in server.tree.nodes
    assert seen[-1] > cut_at + TIMEOUT_S * 0.8

    server.network.heal()
    run(server, asyncio.sleep(TIMEOUT_S))
    assert events == [SessionEvent.LOST, SessionEvent.BEGUN]
    run(server, one.commit([Create("/id", b"b1", session_bound=True)]))
    run(server, one.close())
    run(server, other.close())


def test_a_short_cut_ends_no_session(server: SimZooKeeper) -> None:
    store, events = opened(server, "b1")
    server.network.cut(["b1"], ["zk"])
    run(server, asyncio.sleep(TIMEOUT_S * 0.75))
    server.network.heal()
    run(server, asyncio.sleep(TIMEOUT_S))
    assert events == [SessionEvent.LOST, SessionEvent.RESUMED]
    run(server, store.close())


def test_a_commit_whose_answer_is_lost_is_carried_out(server: SimZooKeeper) -> None:
    store, _ = opened(server, "b1")
    server.network.cut(["zk"], ["b1"], one_way=True)
    with pytest.raises(StoreUnavailable, match="zk cannot be reached from b1"):
        run(server, store.commit([Create("/a", b"")]))
    assert "/a" in server.tree.nodes
    server.network.heal()
    with pytest.raises(StoreConflict):
        run(server, store.commit([Create("/a", b"")]))
    run(server, store.close())


def test_a_commit_on_its_way_outlives_its_process(server: SimZooKeeper) -> None:
    store, _ = opened(server, "b1")
    life = Life("b1")
    server.network.loop.start(life, store.commit([Create("/a", b"")]))
    run(server, asyncio.sleep(0))
    life.end()
    run(server, asyncio.sleep(1))
    assert "/a" in server.tree.nodes
    run(server, store.close())


def test_requests_are_carried_out_in_their_order(server: SimZooKeeper) -> None:
    store, _ = opened(server, "b1")
    server.network.weather.mean_delay_seconds = 0.1

    async def race() -> None:
        await asyncio.gather(*(store.commit([Create(f"/{number}", b"")]) for number in range(50)))

    run(server, race())
    assert list(server.tree.nodes) == [f"/{number}" for number in range(50)]
    run(server, store.close())
