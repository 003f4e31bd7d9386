"""Requests for the active controller that come at the same time."""

import asyncio
from typing import Any

import pytest

from ottla.client.errors import BrokerUnavailable
from ottla.client.sockets import connect
from ottla.metadata.controller_channel import MOST_CONNECTIONS, Address, ControllerChannel, ControllerConnections
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest

TIMEOUT_S = 60.0


class Channel:
    """A connection whose answers come when the test has them come."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[Any]] = []
        self.is_closed = False

    async def ask(self, request: Any, version: int | None = None, *, timeout_s: float) -> Any:
        assert all(answer.done() for answer in self.answers), "one request at a time"
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def close(self) -> None:
        self.is_closed = True


class Opened(list[Channel]):
    def __call__(self) -> Any:
        self.append(Channel())
        return self[-1]


def ask(connections: ControllerConnections, broker_id: int, timeout_s: float = TIMEOUT_S) -> "asyncio.Task[Any]":
    return asyncio.create_task(connections.ask(UnregisterBrokerRequest(broker_id=broker_id), timeout_s=timeout_s))


def test_a_slow_request_delays_no_other() -> None:
    async def scenario() -> None:
        opened = Opened()
        connections = ControllerConnections(opened)
        slow, quick = ask(connections, 1), ask(connections, 2)
        await asyncio.sleep(0)
        assert len(opened) == 2
        opened[1].answers[0].set_result("quick")
        assert await quick == "quick"
        again = ask(connections, 3)
        await asyncio.sleep(0)
        opened[1].answers[1].set_result("again")
        assert await again == "again"
        assert len(opened) == 2, "a connection that is free is used again"
        opened[0].answers[0].set_result("slow")
        assert await slow == "slow"
        connections.close()
        assert all(channel.is_closed for channel in opened)

    asyncio.run(scenario())


def test_one_that_fails_or_is_given_up_leaves_its_connection_to_others() -> None:
    async def scenario() -> None:
        opened = Opened()
        connections = ControllerConnections(opened)
        failing = ask(connections, 1)
        await asyncio.sleep(0)
        opened[0].answers[0].set_exception(BrokerUnavailable("gone"))
        with pytest.raises(BrokerUnavailable):
            await failing
        given_up = ask(connections, 2)
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        third = ask(connections, 3)
        await asyncio.sleep(0)
        opened[0].answers[2].set_result("third")
        assert await third == "third"
        assert len(opened) == 1

    asyncio.run(scenario())


def test_further_ones_wait_and_are_refused_in_time() -> None:
    async def scenario() -> None:
        opened = Opened()
        connections = ControllerConnections(opened)
        asked = [ask(connections, number) for number in range(MOST_CONNECTIONS + 1)]
        await asyncio.sleep(0.01)
        assert len(opened) == MOST_CONNECTIONS
        with pytest.raises(BrokerUnavailable, match="have no answer after"):
            await ask(connections, 99, timeout_s=0.01)
        opened[3].answers[0].set_result("first")
        assert await asked[3] == "first"
        await asyncio.sleep(0.01)
        opened[3].answers[1].set_result("last")
        assert await asked[-1] == "last"
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)

    asyncio.run(scenario())


class Cluster(ControllerChannel):
    """A channel to controllers that are given by their answers, or by the reasons for none, for each port."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("test", lambda: self.leader, connect, asyncio.get_running_loop())
        self.leader: Address | None = ("c", 1)
        self.asked: list[int] = []
        self._answers = answers

    def _to(self, address: Address) -> Any:
        return _Controller(self, address[1])

    async def answer(self, port: int) -> Any:
        self.asked.append(port)
        outcome = self._answers[f"c{port}"]
        self.leader = ("c", 2)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class _Controller:
    def __init__(self, cluster: Cluster, port: int) -> None:
        self._cluster = cluster
        self._port = port

    async def ask(self, request: Any, version: int | None = None, *, timeout_s: float) -> Any:
        return await self._cluster.answer(self._port)


def test_a_request_whose_controller_goes_away_is_sent_to_the_next() -> None:
    """As genuine brokers do: the first may have carried it out, and the second says what it finds then."""

    async def scenario() -> None:
        cluster = Cluster(c1=BrokerUnavailable("hung up after its commit"), c2="TOPIC_ALREADY_EXISTS")
        request = UnregisterBrokerRequest(broker_id=1)
        assert await cluster.ask(request, timeout_s=TIMEOUT_S) == "TOPIC_ALREADY_EXISTS"
        assert cluster.asked == [1, 2]

    asyncio.run(scenario())


def test_a_request_without_a_controller_ends_with_its_time() -> None:
    async def scenario() -> None:
        cluster = Cluster(c1=BrokerUnavailable("unreachable"), c2=BrokerUnavailable("refused"))
        with pytest.raises(BrokerUnavailable, match=r"no active controller has answered within 0\.2 s: refused"):
            await cluster.ask(UnregisterBrokerRequest(broker_id=1), timeout_s=0.2)

    asyncio.run(scenario())
