import asyncio
from collections.abc import Iterator

import pytest

from ottla.testing.simulation.loop import Life, SimLoop
from ottla.testing.simulation.network import CONNECT_TIMEOUT_S, SimNetwork, SimSocket


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(3)
    yield made
    made.close()


@pytest.fixture
def network(loop: SimLoop) -> SimNetwork:
    return SimNetwork(loop)


async def readable(sock: SimSocket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock.fileno(), lambda: ready.done() or ready.set_result(None))
    await ready
    loop.remove_reader(sock.fileno())


async def receive(sock: SimSocket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        try:
            data = sock.recv(size - len(found))
        except BlockingIOError:
            await readable(sock)
            continue
        if not data:
            break
        found += data
    return found


def pair(network: SimNetwork) -> tuple[SimSocket, SimSocket]:
    listening = network.host("b").listen(9092)
    listening.listen(16)
    client = network.loop.run_until_complete(network.host("a").connect("b", 9092))
    return client, listening.accept()[0]


def test_bytes_arrive_in_order_in_other_pieces(network: SimNetwork) -> None:
    network.weather.loss = 0.2
    client, server = pair(network)
    sent = bytes(range(256)) * 40
    for start in range(0, len(sent), 640):
        client.send(sent[start : start + 640])
    assert network.loop.run_until_complete(receive(server, len(sent))) == sent
    assert network.loop.time() > 0.2  # something was lost, and sent again

    server.sendmsg([b"ab", memoryview(b"cd")])
    server.close()
    assert network.loop.run_until_complete(receive(client, 10)) == b"abcd"  # and the end


def test_a_partition_holds_everything_back_until_it_heals(network: SimNetwork) -> None:
    client, server = pair(network)
    network.cut(["a"], ["b"])
    client.send(b"hello")
    network.loop.run_until_complete(asyncio.sleep(60))
    with pytest.raises(BlockingIOError):
        server.recv(10)
    network.heal()
    assert network.loop.run_until_complete(receive(server, 5)) == b"hello"


def test_a_cut_may_be_of_one_direction(network: SimNetwork) -> None:
    client, server = pair(network)
    network.cut(["a"], ["b"], one_way=True)
    assert (network.reaches("a", "b"), network.reaches("b", "a")) == (False, True)
    client.send(b"lost on the way")
    server.send(b"arrives")
    assert network.loop.run_until_complete(receive(client, 7)) == b"arrives"
    network.loop.run_until_complete(asyncio.sleep(5))
    assert not server.is_readable()
    with pytest.raises(TimeoutError):  # an answer is needed for that
        network.loop.run_until_complete(network.host("b").connect("a", 9092))
    network.heal()
    assert network.loop.run_until_complete(receive(server, 15)) == b"lost on the way"


def test_connections_break_at_both_ends(network: SimNetwork) -> None:
    client, server = pair(network)
    assert network.break_connections(0.0) == 0
    assert network.break_connections(1.0) == 1
    for end in (client, server):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    assert network.break_connections(1.0) == 0  # there is none left


def test_what_was_sent_arrives_though_its_sender_has_ended(network: SimNetwork) -> None:
    client, server = pair(network)

    async def send() -> None:
        client.send(b"last words")

    life = Life("sender")
    network.loop.run_until_complete(network.loop.start(life, send()))
    life.end()
    assert network.loop.run_until_complete(receive(server, 10)) == b"last words"


def test_a_host_behind_a_cut_hears_of_a_stopped_peer_when_that_is_over(network: SimNetwork) -> None:
    client, _ = pair(network)
    network.cut(["a"], ["b"])
    network.host("b").stop()
    network.loop.run_until_complete(asyncio.sleep(60))
    assert client.is_open
    network.heal()
    network.loop.run_until_complete(asyncio.sleep(1))
    assert not client.is_open


def test_who_cannot_be_reached_is_waited_for_and_given_up(network: SimNetwork) -> None:
    network.host("b").listen(9092).listen(16)
    network.cut(["a"], ["b"])
    with pytest.raises(TimeoutError):
        network.loop.run_until_complete(network.host("a").connect("b", 9092))
    assert network.loop.time() >= CONNECT_TIMEOUT_S


def test_nobody_listens(network: SimNetwork) -> None:
    with pytest.raises(ConnectionRefusedError, match="b:9092"):
        network.loop.run_until_complete(network.host("a").connect("b", 9092))


def test_the_peers_of_a_host_that_stops_hear_of_it(network: SimNetwork) -> None:
    client, server = pair(network)
    server.send(b"last words")
    network.host("b").stop()
    network.loop.run_until_complete(asyncio.sleep(1))
    with pytest.raises(ConnectionResetError):
        client.send(b"?")
    with pytest.raises(OSError, match="closed"):
        server.send(b"?")
    with pytest.raises(ConnectionRefusedError):
        network.loop.run_until_complete(network.host("a").connect("b", 9092))


def test_a_reader_that_takes_nothing_fills_the_window(network: SimNetwork) -> None:
    client, server = pair(network)
    sent = 0
    while client.is_writable():
        sent += client.send(bytes(100_000))
    with pytest.raises(BlockingIOError):
        client.send(b"more")
    assert not client.is_writable()
    network.loop.run_until_complete(receive(server, 300_000))
    assert client.is_writable()
    assert sent == 1 << 20


def test_the_same_seed_gives_the_same_times() -> None:
    def arrivals(seed: int) -> list[tuple[float, bytes]]:
        loop = SimLoop(seed)
        network = SimNetwork(loop)
        network.weather.loss = 0.3
        client, server = pair(network)
        found = []

        def take() -> None:
            found.append((loop.time(), server.recv(100)))

        loop.add_reader(server.fileno(), take)
        for number in range(20):
            client.send(b"%d" % number)
        loop.run_until_complete(asyncio.sleep(60))
        loop.close()
        return found

    assert arrivals(1) == arrivals(1) != arrivals(2)
