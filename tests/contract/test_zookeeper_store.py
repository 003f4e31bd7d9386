"""What only a store in ZooKeeper has to do: lost connections, lost answers, ended sessions, paths that Kafka makes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from tests.support.unreliable_link import UnreliableLink
from tests.support.zookeeper import ZooKeeperServer

from ottla.config.logins import PasswordLogin
from ottla.config.zookeeper import ZooKeeperSecurity
from ottla.errors import ErrorCode, InvalidConfig
from ottla.metadata.store.base import (
    Check,
    Create,
    Delete,
    Operation,
    SessionEvent,
    StoreConflict,
    StoreUnavailable,
    TransactionTooLarge,
    Update,
)
from ottla.metadata.store.zookeeper import PERSISTENT_PATHS, ZooKeeperStore


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as started:
        yield started


@pytest.fixture
def root() -> str:
    return f"/{uuid4()}"


@pytest.fixture
def client(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Another client, which sees everything as it is."""
    other = KazooClient(server.connect)
    other.start()
    yield other
    other.stop()
    other.close()


def store_at(
    connect: str, *, session_ms: int = 10_000, timeout_ms: int = 10_000, file: Path | None = None
) -> ZooKeeperStore:
    return ZooKeeperStore(connect, session_timeout_ms=session_ms, connection_timeout_ms=timeout_ms, session_file=file)


@asynccontextmanager
async def opened(store: ZooKeeperStore) -> AsyncIterator[ZooKeeperStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def until(question: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, "it never became true"
        await asyncio.sleep(0.02)


# -- paths -------------------------------------------------------------------------------------------------------------


def test_makes_its_root_and_the_paths_of_kafka_without_data(
    server: ZooKeeperServer, root: str, client: KazooClient
) -> None:
    async def scenario() -> None:
        async with opened(store_at(f"{server.connect}{root}/deeper")) as store:
            assert await store.read("/") == {}

    asyncio.run(scenario())
    for path in PERSISTENT_PATHS:
        data, stat = client.get(f"{root}/deeper{path}")
        assert data is None
        assert stat.ephemeralOwner == 0


def test_makes_parents_without_data_and_takes_them_along(
    server: ZooKeeperServer, root: str, client: KazooClient
) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            state = "/brokers/topics/orders/partitions/0/state"
            await store.commit([Create("/brokers/topics/orders", b"{}"), Create(state, b"s")])
            assert client.get(f"{root}/brokers/topics/orders/partitions")[0] is None
            await store.commit([Delete("/brokers/topics/orders", 0), Delete(state, 0)])
            assert client.get_children(f"{root}/brokers/topics") == []

    asyncio.run(scenario())


def test_writes_into_an_empty_node_that_is_there(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            assert await store.read("/latest_producer_id_block") == {}
            await store.commit([Create("/latest_producer_id_block", b"{}")])
            node = (await store.read("/latest_producer_id_block"))["/latest_producer_id_block"]
            assert node.data == b"{}"
            with pytest.raises(StoreConflict):
                await store.commit([Create("/latest_producer_id_block", b"{}")])
            await store.commit([Update("/latest_producer_id_block", b"{1}", node.version)])

    asyncio.run(scenario())


def test_sees_topics_that_kafka_marks_for_deletion(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            client.create(f"{root}/admin/delete_topics/orders")
            assert sorted(await store.read("/admin")) == ["/admin/delete_topics/orders"]
            await store.commit([Delete("/admin/delete_topics/orders", 0)])
            assert client.get_children(f"{root}/admin/delete_topics") == []

    asyncio.run(scenario())


def test_refuses_to_delete_what_has_others_below_it(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            await store.commit([Create("/t", b""), Create("/t/a/b", b"")])
            with pytest.raises(StoreConflict, match="/t cannot go: /t/a/b is below it"):
                await store.commit([Delete("/t", 0)])

    asyncio.run(scenario())


def test_reads_thousands_of_nodes(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            for topic in range(3):
                await store.commit([Create(f"/topics/{topic}/{n}/state", b"%d" % n) for n in range(1000)])
            nodes = await store.read("/topics")
            assert len(nodes) == 3000
            assert nodes["/topics/2/999/state"].data == b"999"

    asyncio.run(scenario())


def test_says_that_a_transaction_is_too_large(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            with pytest.raises(TransactionTooLarge, match="1048575 bytes at once"):
                await store.commit([Create("/large", bytes(1 << 20))])
            await store.commit([Create("/fits", bytes((1 << 20) - 1000))])
            assert sorted(await store.read("/")) == ["/fits"]

    asyncio.run(scenario())


def test_numbers_what_it_makes(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            await store.commit([Create("/n", b"")])
            first = (await store.read("/n"))["/n"].created
            await store.commit([Delete("/n", 0)])
            await store.commit([Create("/n", b"")])
            assert (await store.read("/n"))["/n"].created > first > 0

    asyncio.run(scenario())


# -- others ------------------------------------------------------------------------------------------------------------


def test_tells_of_what_others_do(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as store:
            seen: list[str] = []
            store.watch("/config", lambda: seen.append("config"))
            store.watch("/brokers/ids", lambda: seen.append("brokers"))
            await store.read("/")
            for change in (
                lambda: client.create(f"{root}/brokers/ids/1", b"{}"),
                lambda: client.set(f"{root}/brokers/ids/1", b"{1}"),
                lambda: client.delete(f"{root}/brokers/ids/1"),
            ):
                seen.clear()
                await asyncio.to_thread(change)
                await until(lambda: seen)
                assert set(seen) == {"brokers"}
            seen.clear()
            await asyncio.to_thread(client.create, f"{root}/config/topics/a/b", b"{}", makepath=True)
            await until(lambda: seen)
            assert set(seen) == {"config"}

    asyncio.run(scenario())


def test_a_broker_that_goes_leaves_nothing_behind(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        async with opened(store_at(server.connect + root)) as watching:
            told: list[int] = []
            watching.watch("/brokers/ids", lambda: told.append(1))
            async with opened(store_at(server.connect + root)) as going:
                await going.commit([Create("/brokers/ids/7", b"{}", session_bound=True)])
                await until(lambda: told)
                assert sorted(await watching.read("/brokers")) == ["/brokers/ids/7"]
                with pytest.raises(StoreConflict):
                    await watching.commit([Create("/brokers/ids/7", b"{}", session_bound=True)])
                told.clear()
            await until(lambda: told)
            assert await watching.read("/brokers") == {}

    asyncio.run(scenario())


# -- lost connections and answers --------------------------------------------------------------------------------------


def test_goes_on_after_a_lost_connection(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        with UnreliableLink(server.port) as link:
            async with opened(store_at(f"127.0.0.1:{link.port}{root}")) as store:
                events: list[SessionEvent] = []
                told: list[int] = []
                store.on_session(events.append)
                store.watch("/n", lambda: told.append(1))
                await store.commit([Create("/n", b"bound", session_bound=True)])
                await until(lambda: told)
                told.clear()
                link.cut()
                assert (await store.read("/n"))["/n"].data == b"bound"
                await until(lambda: told)  # something may have changed in between
                told.clear()
                await store.commit([Update("/n", b"still", 0)])
                await until(lambda: told)
                assert events == []
                assert store.holds_session()

    asyncio.run(scenario())


CHANGES: list[tuple[list[Operation], dict[str, tuple[bytes, int]]]] = [
    ([Create("/fresh/MARK", b"x")], {"/fresh/MARK": (b"x", 0), "/old": (b"old", 0)}),
    ([Create("/MARK", b"x", session_bound=True)], {"/MARK": (b"x", 0), "/old": (b"old", 0)}),
    ([Update("/old", b"MARK", 0)], {"/old": (b"MARK", 1)}),
    ([Check("/old", 0), Create("/MARK", b"x"), Update("/old", b"y", 0)], {"/MARK": (b"x", 0), "/old": (b"y", 1)}),
    ([Create("/MARK", b""), Delete("/old", 0)], {"/MARK": (b"", 0)}),
]


@pytest.mark.parametrize("arrived", [True, False], ids=["the answer was lost", "the request was lost"])
@pytest.mark.parametrize(("operations", "after"), CHANGES)
def test_makes_a_change_once_though_the_connection_breaks(
    server: ZooKeeperServer,
    root: str,
    arrived: bool,
    operations: list[Operation],
    after: dict[str, tuple[bytes, int]],
) -> None:
    async def scenario() -> None:
        with UnreliableLink(server.port) as link:
            async with opened(store_at(f"127.0.0.1:{link.port}{root}")) as store:
                await store.commit([Create("/old", b"old")])
                if arrived:
                    link.cut_after_next_request_with(b"MARK")
                else:
                    link.cut_before_next_request_with(b"MARK")
                await store.commit(operations)
                assert {path: (node.data, node.version) for path, node in (await store.read("/")).items()} == after

    asyncio.run(scenario())


def test_does_not_claim_what_another_has_done(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    async def scenario() -> None:
        with UnreliableLink(server.port) as link:
            async with opened(store_at(f"127.0.0.1:{link.port}{root}")) as store:
                await store.commit([Create("/epoch", b"1"), Create("/n", b"")])
                link.refuse()
                await until(lambda: "127.0.0.1" in server.ask("cons"))
                late = asyncio.ensure_future(store.commit([Check("/epoch", 0), Update("/n", b"mine", 0)]))
                await asyncio.sleep(0.2)
                client.set(f"{root}/epoch", b"2")
                link.restore()
                with pytest.raises(StoreConflict) as conflict:
                    await late
                assert conflict.value.path == "/epoch"

    asyncio.run(scenario())


def test_says_that_it_does_not_know(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    """A node was changed again before anybody could look who had changed it."""

    async def scenario() -> None:
        with UnreliableLink(server.port) as link:
            async with opened(store_at(f"127.0.0.1:{link.port}{root}")) as store:
                await store.commit([Create("/n", b"0")])
                link.cut_after_next_request_with(b"MARK")
                mine = asyncio.ensure_future(store.commit([Update("/n", b"MARK", 0)]))
                await until(lambda: client.get(f"{root}/n")[0] == b"MARK")
                client.set(f"{root}/n", b"another's")
                with pytest.raises(StoreUnavailable, match="not known whether a change was made") as unknown:
                    await mine
                assert unknown.value.code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(scenario())


def test_gives_up_when_zookeeper_stays_away(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        with UnreliableLink(server.port) as link:
            async with opened(store_at(f"127.0.0.1:{link.port}{root}", timeout_ms=600)) as store:
                link.refuse()
                for attempt in (store.commit([Create("/n", b"")]), store.read("/")):
                    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{link.port}{root}: .*") as away:
                        await attempt
                    assert away.value.code is ErrorCode.REQUEST_TIMED_OUT
                link.restore()
                await until(store.holds_session)

    asyncio.run(scenario())


def test_says_who_cannot_be_reached_at_the_start(root: str) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"ZooKeeper at 127\.0\.0\.1:1/x: it cannot be reached"):
            await store_at("127.0.0.1:1/x", timeout_ms=300).open()

    asyncio.run(scenario())


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_counts_the_session_as_lost_before_zookeeper_ends_it(
    server: ZooKeeperServer, root: str, client: KazooClient
) -> None:
    async def scenario() -> None:
        with UnreliableLink(server.port) as link:
            async with opened(store_at(f"127.0.0.1:{link.port}{root}", session_ms=2000)) as store:
                there_when_lost: list[object] = []
                events: list[SessionEvent] = []

                def on_event(event: SessionEvent) -> None:
                    events.append(event)
                    if event is SessionEvent.LOST:
                        there_when_lost.append(client.exists(f"{root}/bound"))

                store.on_session(on_event)
                await store.commit([Create("/bound", b"", session_bound=True)])
                link.refuse()
                await until(lambda: not store.holds_session())
                assert client.exists(f"{root}/bound")
                await until(lambda: events)
                assert events == [SessionEvent.LOST]
                assert there_when_lost[0]
                await until(lambda: not client.exists(f"{root}/bound"))
                assert not store.holds_session()
                link.restore()
                await until(lambda: len(events) > 1)
                assert events == [SessionEvent.LOST, SessionEvent.BEGUN]
                assert store.holds_session()
                await store.commit([Create("/bound", b"again", session_bound=True)])

    asyncio.run(scenario())


def test_resumes_a_session_that_zookeeper_still_has(root: str) -> None:
    """ZooKeeper was stopped for longer than the session's timeout: it ends no session for that."""

    async def scenario() -> None:
        with ZooKeeperServer() as server:
            async with opened(store_at(server.connect + root, session_ms=6000)) as store:
                events: list[SessionEvent] = []
                store.on_session(events.append)
                await store.commit([Create("/bound", b"", session_bound=True)])
                server.kill()
                await until(lambda: events == [SessionEvent.LOST])
                server.start()
                await until(lambda: len(events) > 1)
                assert events == [SessionEvent.LOST, SessionEvent.RESUMED]
                assert sorted(await store.read("/")) == ["/bound"]

    asyncio.run(scenario())


def test_notices_a_server_that_hangs(root: str) -> None:
    async def scenario() -> None:
        with ZooKeeperServer() as server:
            async with opened(store_at(server.connect + root, session_ms=2000)) as store:
                events: list[SessionEvent] = []
                store.on_session(events.append)
                server.pause()
                try:
                    await until(lambda: events == [SessionEvent.LOST])
                finally:
                    server.resume()
                await until(store.holds_session)
                assert events[1:] in ([SessionEvent.RESUMED], [SessionEvent.BEGUN])

    asyncio.run(scenario())


def test_fails_over_to_another_server_of_the_list(server: ZooKeeperServer, root: str) -> None:
    async def scenario() -> None:
        with UnreliableLink(server.port) as first, UnreliableLink(server.port) as second:
            connect = f"127.0.0.1:{first.port},127.0.0.1:{second.port}{root}"
            async with opened(store_at(connect)) as store:
                events: list[SessionEvent] = []
                store.on_session(events.append)
                await store.commit([Create("/bound", b"", session_bound=True)])
                for gone in (first, second):
                    gone.refuse()
                    assert sorted(await store.read("/")) == ["/bound"]
                    gone.restore()
                assert events == []

    asyncio.run(scenario())


def test_ends_the_session_of_a_process_that_crashed(server: ZooKeeperServer, root: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "new" / "zookeeper.session"
        with UnreliableLink(server.port) as link:
            crashed = store_at(f"127.0.0.1:{link.port}{root}", session_ms=60_000, file=file)
            await crashed.open()
            await crashed.commit([Create("/brokers/ids/1", b"", session_bound=True)])
            await until(file.exists)
            kept = file.read_bytes()
            link.refuse()
            await crashed.close()
        file.write_bytes(kept)
        async with opened(store_at(server.connect + root, file=file)) as store:
            assert await store.read("/") == {}
            await store.commit([Create("/brokers/ids/1", b"", session_bound=True)])
            await until(lambda: file.read_bytes() != kept)
        assert not file.exists()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("connect", "problem"),
    [
        ("", "it names no server"),
        ("/kafka", "it names no server"),
        ("one:2181:2182,two", "one:2181:2182 is not host:port"),
        ("one:no", "one:no is not host:port"),
        ("one/a//b", "/a//b is no path of ZooKeeper"),
    ],
)
def test_refuses_what_names_no_zookeeper(connect: str, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        store_at(connect)


def test_a_login_that_was_asked_for_is_not_given_up_where_the_server_knows_nobody(
    server: ZooKeeperServer, root: str
) -> None:
    """It answers a login as if that had succeeded."""
    security = ZooKeeperSecurity(login=PasswordLogin("DIGEST-MD5", "broker", "secret"))
    store = ZooKeeperStore(
        server.connect + root, session_timeout_ms=10_000, connection_timeout_ms=1_000, security=security
    )
    with pytest.raises(StoreUnavailable, match="the server does not ask for a password"):
        asyncio.run(store.open())
