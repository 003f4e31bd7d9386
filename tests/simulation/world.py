"""The simulated cluster: clients at work, faults, an end in peace, and the judgement."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.ids import TopicName
from ottla.log.partition_log import PartitionLog
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.replication import compaction
from ottla.testing.simulation.chance import chance_by_seed, no_collection
from ottla.testing.simulation.loop import Life, SimLoop
from ottla.testing.simulation.machine import PORT
from ottla.testing.simulation.network import SimNetwork
from tests.simulation.clients import SimCarelessProducer, SimClient, SimConsumer, SimIdempotentProducer, SimProducer
from tests.simulation.coordination import SESSION_S, Coordination, Quorum, ZooKeeper
from tests.simulation.faults import Faults
from tests.simulation.history import History, Place, Violation
from tests.simulation.observer import Observer, held_by
from tests.simulation.transactions import SimTransactor

TOPIC = "t"
SEGMENT_BYTES = 3_000
RETENTION_BYTES = 6_000
COMPACTED_FROM_BYTES = 1_500
"""Coordinators' logs are compacted when so much is new."""
CREATE_TOPICS = 5
BAD_FOR_COMPACTION = frozenset(("disk", "full disk", "bit"))
LOOK_EVERY_S = 0.05
PIECES = 0.02
"""How likely it is that what is sent arrives in two pieces."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of. Seconds are virtual."""

    seed: int
    quorum: bool = False
    """Are there controllers in the brokers' processes, or is there ZooKeeper?"""
    brokers: int = 3
    partitions: int = 2
    replicas: int = 3
    producers: int = 1
    idempotent: int = 1
    transactional: int = 1
    consumers: int = 2
    mean_pause_s: float = 0.16
    """The mean pause between two requests of a client."""
    seconds: float = 10.0
    """How long faults happen."""
    heals_within_s: float = 60.0
    kinds: Sequence[str] = ()
    """The kinds of faults; empty: the seed decides."""
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
    fingerprint: str
    """A checksum of every byte sent and all answers to clients: the same for the same seed."""


class World:
    """One cluster with its clients. `run` once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = SimLoop(plan.seed)
        self.random = Random(plan.seed ^ 0x5EED)
        self.network = SimNetwork(self.loop)
        self.network.weather.cut = PIECES
        settings = _settings(plan)
        self.coordination: Coordination = (
            Quorum(self.network, plan.brokers, settings, seed=plan.seed)
            if plan.quorum
            else ZooKeeper(self.network, plan.brokers, settings)
        )
        self.machines = self.coordination.machines
        self.places = [Place(TOPIC, number) for number in range(plan.partitions)]
        self.history = History()
        self.observer = Observer(self.history, self.coordination)
        self.faults = Faults(self.random, self.network, self.coordination, self.places, self.observer)
        if plan.replicas < 3:  # one replica in sync is enough then, and its records are nowhere else
            self.faults.kinds.pop("replace disk", None)
        self._clients: list[asyncio.Task[None]] = []

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Raises Violation, or whatever a client has failed with."""
        asyncio.set_event_loop(self.loop)
        early = patch.object(compaction, "_READ_AT_TAKEOVER_BYTES", COMPACTED_FROM_BYTES)
        seen = self.coordination.installed(self.history, self.observer.look)
        with no_collection(), chance_by_seed(self.plan.seed), self.observer.installed(), seen, early:
            return self.loop.run_until_complete(self._run())

    async def _run(self) -> Report:
        self.history.broken = self.loop.create_future()
        background = [self.loop.create_task(self.coordination.run()), self.loop.create_task(self._look())]
        self.coordination.begin()
        for machine in self.coordination.nodes:
            machine.start()
        await self._create_topic()
        self._start_clients()
        await self._watch(self.faults.run(self.plan.seconds, self.plan.kinds))
        self.faults.end()
        await self._watch(self._until_healed())
        if self.plan.quorum:
            await self._watch(self._until_acknowledged())
        await self._watch(asyncio.sleep(0.3))
        clients, self._clients = self._clients, []
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self._watch(self._until_healed(at_rest=True))
        self.observer.finish()
        await self._watch(asyncio.sleep(0))
        self.history.judge()
        for task in background:
            task.cancel()
        return Report(
            self.plan.seed,
            self.history.count,
            self.history.reads,
            self.history.refused,
            dict(self.faults.happened),
            round(self.loop.time(), 3),
            f"{self.network.fingerprint:08x}{self.history.fingerprint:08x}",
        )

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.observer.look()
            self.coordination.look()

    async def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the work; a client that ends has found something, and so may have the observer."""
        assert self.history.broken is not None
        task = self.loop.create_task(work)
        waiting: list[asyncio.Future[None]] = [task, self.history.broken, *self._clients]
        while not task.done():
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                if each.done():
                    each.result()
            waiting = [each for each in waiting if not each.done()]

    async def _create_topic(self) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=self.plan.partitions,
            replication_factor=self.plan.replicas,
            assignments=[],
            configs=[
                CreatableTopicConfig(name="internal.segment.bytes", value=str(SEGMENT_BYTES)),
                CreatableTopicConfig(name="retention.bytes", value=str(RETENTION_BYTES)),
                # The records are of 1970: one run of four deletes whatever is committed.
                CreatableTopicConfig(name="retention.ms", value="1000" if self.plan.seed % 4 == 3 else "-1"),
            ],
        )
        while True:
            await asyncio.sleep(0.1)
            for peer in self._peers():
                try:
                    answer = await peer.ask(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS, timeout_s=5)
                except BrokerUnavailable:
                    continue
                finally:
                    peer.close()
                if answer.topics[0].error_code in (0, 36):  # made, or there already
                    return
            if self.loop.time() > 60:
                raise Violation(f"no topic after a minute: {self._problems()}")

    def _start_clients(self) -> None:
        plan = self.plan
        names = [machine.name for machine in self.machines]

        def arguments(name: str) -> tuple[object, ...]:
            return self.network, name, names, TOPIC, self.history, plan.mean_pause_s

        clients: list[SimClient] = [SimProducer(*arguments(f"p{number}")) for number in range(plan.producers)]
        if plan.quorum:
            clients.append(SimCarelessProducer(*arguments("l0")))
        clients += [SimIdempotentProducer(*arguments(f"i{number}")) for number in range(plan.idempotent)]
        clients += [SimTransactor(*arguments(f"t{number}")) for number in range(plan.transactional)]
        clients += [
            SimConsumer(*arguments(f"c{number}"), read_committed=bool(number % 2)) for number in range(plan.consumers)
        ]
        self._clients = [
            self.loop.start(Life(f"client {number}"), client.run())  # type: ignore[attr-defined]
            for number, client in enumerate(clients)
        ]

    def _peers(self) -> list[AsyncConnection]:
        connect = self.network.host("admin").connect
        return [AsyncConnection(machine.name, PORT, "admin", connect=connect) for machine in self.machines]

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _until_healed(self, *, at_rest: bool = False) -> None:
        """Raises Violation if the cluster does not get well by itself; `at_rest`: nobody writes any more."""
        deadline = self.loop.time() + self.plan.heals_within_s
        while (ailment := self._ailment(at_rest=at_rest)) is not None:
            if self.loop.time() > deadline:
                raise Violation(f"{self.loop.time():.3f} s: does not heal: {ailment}; {self._problems()}")
            for machine in self.coordination.nodes:
                self.faults.revive(machine)
            self.faults.begin_lost_anew()
            await asyncio.sleep(0.1)

    async def _until_acknowledged(self) -> None:
        """Raises Violation if no record is acknowledged any more."""
        before, deadline = self.history.count, self.loop.time() + self.plan.heals_within_s
        while self.history.count == before:
            if self.loop.time() > deadline:
                raise Violation(f"{self.loop.time():.3f} s: nothing is acknowledged; {self._problems()}")
            await asyncio.sleep(LOOK_EVERY_S)

    def _ailment(self, *, at_rest: bool) -> str | None:
        """What is not yet as it has to be: all replicas in sync and alike, and every broker knowing it."""
        alone = self.plan.brokers == 1 and not self.plan.quorum
        told = self.coordination.image()
        for machine in self.machines:
            broker = machine.broker
            if broker is None:
                return f"{machine.name} does not serve"
            image = broker.metadata.image
            topics = image.topics if alone else told.topics
            if image.topics.keys() != topics.keys():
                return f"{machine.name} knows of topics {sorted(image.topics)}, there are {sorted(topics)}"
            for place in [Place(name, part.partition) for name in topics for part in topics[name].partitions]:
                known = image.topics[TopicName(place.topic)].partitions[place.partition]
                part = topics[TopicName(place.topic)].partitions[place.partition]
                if part.leader < 0 or set(part.isr) != set(part.replicas) or part.is_reassigned:
                    return f"{place} has leader {part.leader}, replicas {part.replicas}, in sync {part.isr}"
                if known[1:4] != part[1:4] or set(known.isr) != set(part.isr):
                    return f"{machine.name} takes {place} for {known}, which is {part}"
                number = int(machine.name[1:])
                if number not in part.replicas:
                    continue
                replica = held_by(machine, place)
                if replica is None or replica.leader_epoch != part.leader_epoch:
                    return f"{machine.name} has not heard of epoch {part.leader_epoch} of {place}"
                if replica.leading != (part.leader == number):
                    return f"{machine.name} does not know whether it leads {place}"
                end = self.history.committed[place].end
                if at_rest and (too_much := self._too_much(place, replica.log)):
                    return f"{machine.name} keeps too much of {place}: {too_much}"
                if at_rest and not replica.log.log_end_offset == replica.log.high_watermark == end:
                    return (
                        f"{machine.name} ends {place} at {replica.log.log_end_offset}, and knows of "
                        f"{replica.log.high_watermark} to be committed: {end} are"
                    )
        if (ailment := self.coordination.ailment()) is not None:
            return ailment
        return self.history.awaits_markers() if at_rest else None

    def _too_much(self, place: Place, log: PartitionLog) -> str | None:
        """What retention and compaction would not have left. A failing disk may have prevented compaction."""
        size, most = log.size_bytes, RETENTION_BYTES + 2 * SEGMENT_BYTES
        if log.config.compact:
            most = 6 * COMPACTED_FROM_BYTES
            if self.faults.happened.keys() & BAD_FOR_COMPACTION:
                return None
        elif place.topic != TOPIC:
            return None
        return f"{size} bytes, {most} at most" if size > most else None

    def _problems(self) -> str:
        return ", ".join(
            f"{machine.name}: {machine.problem!r}" for machine in self.coordination.nodes if machine.problem
        )


def _settings(plan: Plan) -> dict[str, str]:
    """Settings with short times, so that much happens in a virtual second, and nothing more often than it must."""
    return {
        "default.replication.factor": str(plan.replicas),
        "min.insync.replicas": str(max(1, plan.replicas - 1)),
        "num.partitions": str(plan.partitions),
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "700",
        "log.segment.delete.delay.ms": "500",
        "log.cleaner.backoff.ms": "600",
        "producer.id.expiration.check.interval.ms": "1000",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": str(plan.replicas),
        "transaction.state.log.min.isr": str(max(1, plan.replicas - 1)),
        **({} if plan.quorum else {"zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}),
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.wait.max.ms": "400",
        "replica.socket.timeout.ms": "1500",
        "controller.socket.timeout.ms": "1500",
        "request.timeout.ms": "2000",
        "controlled.shutdown.retry.backoff.ms": "300",
        "leader.imbalance.check.interval.seconds": "3",
        **plan.settings,
    }
