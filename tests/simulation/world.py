"""The simulated cluster, and what happens to it: faults, an end in peace, and the judgement."""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from ottla.peer.client import PeerClient, PeerUnavailable
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.testing.simulation.loop import Life, SimLoop
from ottla.testing.simulation.machine import PORT, SimMachine
from ottla.testing.simulation.network import SimNetwork
from ottla.testing.simulation.store import SimZooKeeper
from tests.simulation.clients import FetchRefused, SimConsumer, SimProducer, fetch
from tests.simulation.history import History, Place, Violation

TOPIC = "t"
CREATE_TOPICS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of. Seconds are virtual."""

    seed: int
    brokers: int = 3
    partitions: int = 2
    replicas: int = 3
    producers: int = 2
    consumers: int = 1
    seconds: float = 60.0
    acks: int = -1
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """What has happened in a run."""

    seed: int
    acknowledged: int
    read: int
    refused: int
    faults: dict[str, int]
    virtual_seconds: float


class World:
    """One cluster with its clients. `run` once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = SimLoop(plan.seed)
        self.random = Random(plan.seed ^ 0x5EED)
        self.network = SimNetwork(self.loop)
        self.zookeeper = SimZooKeeper(self.network)
        settings = {
            "default.replication.factor": str(plan.replicas),
            "min.insync.replicas": str(max(1, plan.replicas - 1)),
            "num.partitions": str(plan.partitions),
            "replica.lag.time.max.ms": "3000",
            "log.retention.ms": "-1",
            **({"zookeeper.connect": "zk:2181"} if plan.brokers > 1 else {}),
            **plan.settings,
        }
        self.machines = [
            SimMachine(self.network, self.zookeeper, f"b{number}", {"broker.id": str(number), **settings})
            for number in range(1, plan.brokers + 1)
        ]
        self.history = History()
        self.faults: dict[str, int] = defaultdict(int)
        self._clients: list[asyncio.Task[None]] = []

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Raises Violation, or whatever a client has failed with."""
        asyncio.set_event_loop(self.loop)
        with _chance_by_seed(self.plan.seed):
            return self.loop.run_until_complete(self._run())

    async def _run(self) -> Report:
        background = [self.loop.create_task(self.zookeeper.run())]
        for machine in self.machines:
            machine.start()
        await self._create_topic()
        self._start_clients()
        trouble = self.loop.create_task(self._make_trouble())
        await self._watch([trouble])
        await self._make_peace()
        await self._watch([self.loop.create_task(asyncio.sleep(20))])
        await self._stop_clients()
        self.history.judge(await self._final())
        for task in background:
            task.cancel()
        read = sum(len(values) for values in self.history.read.values())
        return Report(
            self.plan.seed, self.history.count, read, self.history.refused, dict(self.faults), self.loop.time()
        )

    async def _create_topic(self) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=self.plan.partitions,
            replication_factor=self.plan.replicas,
            assignments=[],
            configs=[],
        )
        while True:
            await asyncio.sleep(0.5)
            for peer in self._peers():
                try:
                    answer = await peer.ask(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS, timeout_s=10)
                except PeerUnavailable:
                    continue
                finally:
                    peer.close()
                if answer.topics[0].error_code in (0, 36):  # made, or there already
                    return
            if self.loop.time() > 60:
                problems = {machine.name: machine.problem for machine in self.machines}
                raise Violation(f"no topic after a minute: {problems}")

    def _start_clients(self) -> None:
        names = [machine.name for machine in self.machines]
        plan, history, network = self.plan, self.history, self.network
        clients: list[SimProducer | SimConsumer] = [
            SimProducer(network, f"p{number}", names, TOPIC, history, acks=plan.acks)
            for number in range(plan.producers)
        ]
        clients += [SimConsumer(network, f"c{number}", names, TOPIC, history) for number in range(plan.consumers)]
        self._clients = [self.loop.start(Life(f"client {number}"), each.run()) for number, each in enumerate(clients)]

    async def _watch(self, work: "list[asyncio.Task[None]]") -> None:
        """Wait for the work; a client that ends has found something."""
        waiting = {*self._clients, *work}
        while not all(task.done() for task in work):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _stop_clients(self) -> None:
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    # -- trouble -------------------------------------------------------------------------------------------------------

    async def _make_trouble(self) -> None:
        until = self.loop.time() + self.plan.seconds
        kinds = (
            self._kill,
            self._lose_power,
            self._start,
            self._start,
            self._cut,
            self._heal,
            self._storm,
            self._clear,
        )
        while self.loop.time() < until:
            await asyncio.sleep(self.random.expovariate(1 / 3))
            self.random.choice(kinds)()

    def _kill(self) -> None:
        self._end("kill", lambda machine: machine.kill())

    def _lose_power(self) -> None:
        self._end("power", lambda machine: machine.lose_power())

    def _end(self, name: str, end: "object") -> None:
        running = [machine for machine in self.machines if machine.is_running]
        if running:
            self.faults[name] += 1
            end(self.random.choice(running))  # type: ignore[operator]

    def _start(self) -> None:
        stopped = [machine for machine in self.machines if not machine.is_running]
        if stopped:
            self.random.choice(stopped).start()

    def _cut(self) -> None:
        """One machine from some of the others, ZooKeeper among them."""
        names = [machine.name for machine in self.machines]
        one = self.random.choice(names)
        others = [name for name in [*names, self.zookeeper.host] if name != one and self.random.random() < 0.6]
        if others:
            self.faults["cut"] += 1
            self.network.cut([one], others)

    def _heal(self) -> None:
        self.network.heal()

    def _storm(self) -> None:
        self.faults["storm"] += 1
        self.network.weather.loss = self.random.uniform(0.02, 0.3)
        self.network.weather.mean_delay_seconds = self.random.uniform(0.001, 0.05)

    def _clear(self) -> None:
        self.network.weather.loss = 0.0
        self.network.weather.mean_delay_seconds = 0.0005

    async def _make_peace(self) -> None:
        self._heal()
        self._clear()
        for machine in self.machines:
            machine.fs.heal()
            if not machine.is_running:
                machine.start()
        await asyncio.sleep(30)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _final(self) -> dict[Place, dict[int, bytes]]:
        """What all partitions hold, as their leaders say. Raises Violation if one cannot be read."""
        final: dict[Place, dict[int, bytes]] = {}
        for partition in range(self.plan.partitions):
            place = Place(TOPIC, partition)
            final[place] = await self._whole(place)
        return final

    async def _whole(self, place: Place) -> dict[int, bytes]:
        refusals: list[str] = []
        for _ in range(30):
            for peer in self._peers():
                found: dict[int, bytes] = {}
                position = 0
                try:
                    while True:
                        end, more = await fetch(peer, place, position)
                        found |= more
                        if not more and position >= end:
                            return found
                        position = max([offset + 1 for offset in more] or [position])
                except (FetchRefused, PeerUnavailable) as problem:
                    refusals.append(f"{peer}: {problem!r}")
                finally:
                    peer.close()
            await asyncio.sleep(1)
        problems = {machine.name: machine.problem for machine in self.machines if machine.problem}
        raise Violation(f"{place} cannot be read from anybody: {refusals[-self.plan.brokers :]} {problems}")

    def _peers(self) -> list[PeerClient]:
        connect = self.network.host("judge").connect
        return [PeerClient(machine.name, PORT, "judge", connect=connect) for machine in self.machines]  # type: ignore[arg-type]


@contextmanager
def _chance_by_seed(seed: int) -> Iterator[None]:
    """What brokers leave to chance follows from the seed: module `random`, and os.urandom, which uuid4 asks."""
    source = Random(seed)
    before, state = os.urandom, random.getstate()
    os.urandom = source.randbytes  # type: ignore[assignment]
    random.seed(seed)
    try:
        yield
    finally:
        os.urandom = before
        random.setstate(state)
