"""What every metadata store has to do, tried on each of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.certificates import Authority
from tests.support.secure_zookeeper import SecureZooKeeper
from tests.support.zookeeper import ZooKeeperServer

from ottla.config import load
from ottla.config.zookeeper import zookeeper_security
from ottla.metadata.store.base import (
    Check,
    Create,
    Delete,
    MetadataStore,
    StoreConflict,
    StoreUnavailable,
    Update,
)
from ottla.metadata.store.embedded import EmbeddedStore
from ottla.metadata.store.zookeeper import ZooKeeperStore
from ottla.testing.memory_store import MemoryStore, MemoryTree


def store_of(settings: dict[str, str]) -> ZooKeeperStore:
    """The store of a broker with these settings."""
    config, _ = load(None, settings)
    assert config.zookeeper_connect is not None
    return ZooKeeperStore(
        config.zookeeper_connect,
        session_timeout_ms=10_000,
        connection_timeout_ms=10_000,
        security=zookeeper_security(config),
    )


MakeStore = Callable[[], MetadataStore]


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def secure_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    with SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), Authority()) as server:
        yield server


@pytest.fixture(params=["embedded", "memory", "zookeeper", "secure zookeeper"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A new client of the same store each time; one is open at a time."""
    if request.param == "embedded":
        return lambda: EmbeddedStore(tmp_path / "metadata.db")
    if request.param == "memory":
        tree = MemoryTree()
        return lambda: MemoryStore(tree)
    if request.param == "secure zookeeper":
        secure: SecureZooKeeper = request.getfixturevalue("secure_zookeeper")
        settings = secure.settings() | {"zookeeper.connect": f"{secure.secure_connect}/{uuid4()}"}
        return lambda: store_of(settings)
    server: ZooKeeperServer = request.getfixturevalue("zookeeper")
    root = f"/{uuid4()}"
    return lambda: ZooKeeperStore(server.connect + root, session_timeout_ms=10_000, connection_timeout_ms=10_000)


async def contents(store: MetadataStore, prefix: str = "/") -> dict[str, tuple[bytes, int]]:
    """Data and version of every node."""
    return {path: (node.data, node.version) for path, node in (await store.read(prefix)).items()}


@asynccontextmanager
async def session(make_store: MakeStore) -> AsyncIterator[MetadataStore]:
    store = make_store()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def test_holds_what_was_committed(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            assert await contents(store) == {}
            await store.commit([Create("/a/b", b"one"), Create("/a", b"")])
            assert await contents(store, "/a") == {"/a": (b"", 0), "/a/b": (b"one", 0)}
        async with session(make_store) as store:
            assert await contents(store, "/a/b") == {"/a/b": (b"one", 0)}

    asyncio.run(scenario())


def test_reads_a_path_and_what_is_below_but_not_its_namesakes(make_store: MakeStore) -> None:
    async def scenario() -> None:
        paths = ["/t/a", "/t/a/x", "/t/a-b", "/t/a.c", "/t/a0", "/t/ab", "/u"]
        async with session(make_store) as store:
            await store.commit([Create(path, b"") for path in paths])
            assert sorted(await store.read("/t/a")) == ["/t/a", "/t/a/x"]
            assert sorted(await store.read("/t")) == sorted(paths[:-1])
            assert sorted(await store.read("/")) == sorted(paths)
            assert await contents(store, "/t/missing") == {}

    asyncio.run(scenario())


def test_counts_versions_and_refuses_the_wrong_one(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/n", b"0")])
            await store.commit([Update("/n", b"1", 0)])
            await store.commit([Update("/n", b"2", 1)])
            assert await contents(store, "/n") == {"/n": (b"2", 2)}
            with pytest.raises(StoreConflict) as conflict:
                await store.commit([Update("/n", b"late", 1)])
            assert conflict.value.path == "/n"
            with pytest.raises(StoreConflict):
                await store.commit([Delete("/n", 1)])
            with pytest.raises(StoreConflict):
                await store.commit([Create("/n", b"again")])
            assert await contents(store, "/n") == {"/n": (b"2", 2)}
            await store.commit([Delete("/n", 2)])
            await store.commit([Create("/n", b"new")])
            assert await contents(store, "/n") == {"/n": (b"new", 0)}

    asyncio.run(scenario())


def test_refuses_to_change_what_is_not_there(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            for operation in (Update("/n", b"", 0), Delete("/n", 0)):
                with pytest.raises(StoreConflict):
                    await store.commit([operation])
            assert await contents(store) == {}

    asyncio.run(scenario())


def test_carries_out_all_of_a_transaction_or_nothing(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/a", b"a"), Create("/b", b"b")])
            with pytest.raises(StoreConflict):
                await store.commit([Create("/c", b"c"), Update("/a", b"A", 0), Delete("/b", 0), Create("/a", b"")])
            assert await contents(store) == {"/a": (b"a", 0), "/b": (b"b", 0)}
            await store.commit([Create("/c", b"c"), Update("/a", b"A", 0), Delete("/b", 0)])
            assert await contents(store) == {"/a": (b"A", 1), "/c": (b"c", 0)}

    asyncio.run(scenario())


def test_forgets_what_was_bound_to_a_session_that_ended(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/stays", b""), Create("/goes", b"", session_bound=True)])
            await store.commit([Update("/goes", b"still here", 0)])
            assert sorted(await store.read("/")) == ["/goes", "/stays"]
        async with session(make_store) as store:
            assert sorted(await store.read("/")) == ["/stays"]
            await store.commit([Create("/goes", b"another", session_bound=True)])

    asyncio.run(scenario())


def test_knows_what_is_bound_to_its_own_session(make_store: MakeStore) -> None:
    async def test() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/stays", b""), Create("/goes", b"", session_bound=True)])
            nodes = await store.read("/")
            assert (nodes["/stays"].is_own, nodes["/goes"].is_own) == (False, True)

    asyncio.run(test())


def test_numbers_changes_where_transactions_are_numbered(make_store: MakeStore) -> None:
    async def test() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/first", b"")])
            await store.commit([Create("/second", b"")])
            await store.commit([Update("/first", b"again", 0)])
            nodes = await store.read("/")
            first, second = nodes["/first"], nodes["/second"]
            if isinstance(store, EmbeddedStore):
                assert (first.created, first.modified) == (0, 0)
            else:
                assert first.created < second.created == second.modified < first.modified

    asyncio.run(test())


def test_tells_who_watches(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            seen: list[str] = []
            told = asyncio.Event()

            def changed(which: str) -> None:
                seen.append(which)
                told.set()

            store.watch("/topics", lambda: changed("topics"))
            end = store.watch("/other", lambda: changed("other"))
            await store.commit([Create("/topics/a", b""), Create("/topicsfoo", b"")])
            await asyncio.wait_for(told.wait(), 5)
            assert set(seen) == {"topics"}
            told.clear()
            await store.commit([Create("/other", b"")])
            await asyncio.wait_for(told.wait(), 5)
            assert set(seen) == {"topics", "other"}
            end()
            seen.clear()
            told.clear()
            await store.commit([Update("/other", b"", 0), Update("/topics/a", b"", 0)])
            await asyncio.wait_for(told.wait(), 5)
            assert set(seen) == {"topics"}
            seen.clear()
            with pytest.raises(StoreConflict):
                await store.commit([Create("/topics/a", b"")])
            assert seen == []

    asyncio.run(scenario())


def test_keeps_bytes_as_they_are(make_store: MakeStore) -> None:
    async def scenario() -> None:
        data = bytes(range(256)) * 100
        async with session(make_store) as store:
            await store.commit([Create("/bytes", data)])
        async with session(make_store) as store:
            assert (await store.read("/bytes"))["/bytes"].data == data

    asyncio.run(scenario())


def test_says_that_it_is_not_open(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = make_store()
        with pytest.raises(StoreUnavailable):
            await store.read("/")
        await store.close()
        await store.open()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.commit([Create("/a", b"")])

    asyncio.run(scenario())


def test_checks_a_version_without_changing_anything(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/epoch", b"1"), Create("/n", b"")])
            await store.commit([Check("/epoch", 0), Update("/n", b"by the first", 0)])
            await store.commit([Update("/epoch", b"2", 0)])
            with pytest.raises(StoreConflict) as conflict:
                await store.commit([Check("/epoch", 0), Update("/n", b"by the first", 1)])
            assert conflict.value.path == "/epoch"
            with pytest.raises(StoreConflict):
                await store.commit([Check("/missing", 0)])
            assert await contents(store) == {"/epoch": (b"2", 1), "/n": (b"by the first", 1)}

    asyncio.run(scenario())


def test_numbers_nodes_in_sequence(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            for data in (b"first", b"second"):
                await store.commit([Create("/changes/change_", data, sequential=True)])
            first, second = sorted(await store.read("/changes"))
            assert (await store.read(second))[second].data == b"second"
            assert first.startswith("/changes/change_")
            assert len(first) == len("/changes/change_") + 10
            await store.commit([Delete(second, 0)])
        async with session(make_store) as store:
            await store.commit([Create("/changes/change_", b"third", sequential=True)])
            third = max(await store.read("/changes"))
            assert int(third[-10:]) > int(second[-10:])

    asyncio.run(scenario())


def test_deletes_a_node_with_all_below_it(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/t/a", b"a"), *(Create(f"/t/a/parts/{n}/state", b"") for n in range(3))])
            with pytest.raises(StoreConflict):
                await store.commit([Delete("/t/a", 1), *(Delete(f"/t/a/parts/{n}/state", 0) for n in range(3))])
            await store.commit([Delete("/t/a", 0), *(Delete(f"/t/a/parts/{n}/state", 0) for n in range(3))])
            assert await contents(store) == {}
            await store.commit([Create("/t/a", b"again")])
            assert await contents(store) == {"/t/a": (b"again", 0)}

    asyncio.run(scenario())


def test_holds_its_session_while_it_is_open(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = make_store()
        assert not store.holds_session()
        await store.open()
        assert store.holds_session()
        await store.close()
        assert not store.holds_session()

    asyncio.run(scenario())


def test_of_two_who_want_the_same_one_wins(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/epoch", b"0")])
            rivals = [
                store.commit([Create("/controller", name, session_bound=True), Update("/epoch", name, 0)])
                for name in (b"1", b"2", b"3")
            ]
            results = await asyncio.gather(*rivals, return_exceptions=True)
            assert [type(result) for result in results].count(StoreConflict) == 2
            won = str(results.index(None) + 1).encode()
            assert await contents(store) == {"/controller": (won, 0), "/epoch": (won, 1)}

    asyncio.run(scenario())
