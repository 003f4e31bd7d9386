"""What every metadata store has to do, tried on each of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.cluster.store.base import Create, Delete, MetadataStore, Node, StoreConflict, StoreUnavailable, Update
from ottla.cluster.store.embedded import EmbeddedStore

MakeStore = Callable[[], MetadataStore]


@pytest.fixture(params=["embedded"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A new client of the same store each time; one is open at a time."""
    assert request.param == "embedded"
    return lambda: EmbeddedStore(tmp_path / "metadata.db")


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
            assert await store.read("/") == {}
            await store.commit([Create("/a/b", b"one"), Create("/a", b"")])
            assert await store.read("/a") == {"/a": Node(b"", 0), "/a/b": Node(b"one", 0)}
        async with session(make_store) as store:
            assert await store.read("/a/b") == {"/a/b": Node(b"one", 0)}

    asyncio.run(scenario())


def test_reads_a_path_and_what_is_below_but_not_its_namesakes(make_store: MakeStore) -> None:
    async def scenario() -> None:
        paths = ["/t/a", "/t/a/x", "/t/a-b", "/t/a.c", "/t/a0", "/t/ab", "/u"]
        async with session(make_store) as store:
            await store.commit([Create(path, b"") for path in paths])
            assert sorted(await store.read("/t/a")) == ["/t/a", "/t/a/x"]
            assert sorted(await store.read("/t")) == sorted(paths[:-1])
            assert sorted(await store.read("/")) == sorted(paths)
            assert await store.read("/t/missing") == {}

    asyncio.run(scenario())


def test_counts_versions_and_refuses_the_wrong_one(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/n", b"0")])
            await store.commit([Update("/n", b"1", 0)])
            await store.commit([Update("/n", b"2", 1)])
            assert await store.read("/n") == {"/n": Node(b"2", 2)}
            with pytest.raises(StoreConflict) as conflict:
                await store.commit([Update("/n", b"late", 1)])
            assert conflict.value.path == "/n"
            with pytest.raises(StoreConflict):
                await store.commit([Delete("/n", 1)])
            with pytest.raises(StoreConflict):
                await store.commit([Create("/n", b"again")])
            assert await store.read("/n") == {"/n": Node(b"2", 2)}
            await store.commit([Delete("/n", 2)])
            await store.commit([Create("/n", b"new")])
            assert await store.read("/n") == {"/n": Node(b"new", 0)}

    asyncio.run(scenario())


def test_refuses_to_change_what_is_not_there(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            for operation in (Update("/n", b"", 0), Delete("/n", 0)):
                with pytest.raises(StoreConflict):
                    await store.commit([operation])
            assert await store.read("/") == {}

    asyncio.run(scenario())


def test_carries_out_all_of_a_transaction_or_nothing(make_store: MakeStore) -> None:
    async def scenario() -> None:
        async with session(make_store) as store:
            await store.commit([Create("/a", b"a"), Create("/b", b"b")])
            with pytest.raises(StoreConflict):
                await store.commit([Create("/c", b"c"), Update("/a", b"A", 0), Delete("/b", 0), Create("/a", b"")])
            assert await store.read("/") == {"/a": Node(b"a", 0), "/b": Node(b"b", 0)}
            await store.commit([Create("/c", b"c"), Update("/a", b"A", 0), Delete("/b", 0)])
            assert await store.read("/") == {"/a": Node(b"A", 1), "/c": Node(b"c", 0)}

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
