"""A seeded cluster for tests of your own asyncio client: real brokers, virtual time, and faults by the seed.

    async def scenario(cluster: Cluster) -> None:
        await cluster.create_topic("orders", partitions=2)
        worker = cluster.start("worker", consume(cluster.bootstrap))
        await cluster.trouble(seconds=20)
        worker.kill()
        await cluster.healed()

    Cluster(seed=42).run(scenario)

Everything runs in the calling thread, on an event loop whose time is a number: a minute of the scenario takes about a
second. Clients that open sockets or threads of their own, such as librdkafka, cannot take part.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.metadata.store import layout
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.testing.simulation.chance import chance_by_seed, no_collection, time_of_the_loop
from ottla.testing.simulation.fork import in_a_fork
from ottla.testing.simulation.loop import Life, SimLoop
from ottla.testing.simulation.machine import PORT, SimMachine
from ottla.testing.simulation.network import SimHost, SimNetwork
from ottla.testing.simulation.store import SimZooKeeper
from ottla.testing.simulation.transport import SimTransport

ResultT = TypeVar("ResultT")

FAULTS: Final = ("kill", "power", "stop", "pause", "cut", "reset")
"""What `Cluster.trouble` does: SIGKILL, a power failure, SIGTERM, SIGSTOP, no network, broken connections."""
MEAN_PAUSE_S: Final = 1.5
"""Between two faults."""
LONGEST_FAULT_S: Final = 4.0
POLL_INTERVAL_S: Final = 0.1
TURN_S: Final = 0.000_02
"""What a turn of the event loop takes: clients that poll without waiting must not stop the time."""
CREATE_TOPICS: Final = 5
"""The version of the request."""
SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "400",
    "replica.socket.timeout.ms": "1500",
    "controller.socket.timeout.ms": "1500",
    "request.timeout.ms": "2000",
    "controlled.shutdown.retry.backoff.ms": "300",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),  # some clients take timestamps from the machine's own clock
}
"""What differs from `ottla serve` unless `settings` say otherwise: short timeouts, so that much happens soon."""


class NotReachedError(AssertionError):
    """What the scenario waited for did not happen in time; the message names it, and the time."""


class Process:
    """A program of the scenario on a host of its own. `Cluster.start` makes it."""

    def __init__(self, host: SimHost, life: Life, task: "asyncio.Task[Any]") -> None:
        self._host = host
        self._life = life
        self.task = task
        """The program. Its result, or what it raised, once it has ended by itself."""

    def kill(self) -> None:
        """SIGKILL: not one more line of it runs, no `finally` either. Its peers see broken connections."""
        self._life.end()
        self._host.stop()

    def pause(self) -> None:
        """SIGSTOP: nothing of it happens until `resume`, while the brokers' time goes on."""
        self._life.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._host.network.loop.resume(self._life)


class Cluster:
    """Brokers `b1`, `b2`, ... on simulated machines. Runs one scenario.

    seed: decides everything that real machines leave to chance, and what `trouble` does.
    brokers: two or more. Topics have as many replicas, three at most, and `min.insync.replicas` is one less.
    settings: of every broker, by Kafka's names, over `SETTINGS`.
    """

    def __init__(self, seed: int, *, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        if brokers < 2:
            raise ValueError(f"a cluster has two brokers or more, not {brokers}; `ottla.testing.Broker` is one")
        self.seed = seed
        self.random = Random(seed)
        """For choices of the scenario that should follow from the seed."""
        self.loop = SimLoop(seed)
        self.loop.turn_seconds = TURN_S
        self.network = SimNetwork(self.loop)
        """Cut hosts off by name with `cut`, heal them with `heal`, and slow everything down by `weather`."""
        self.zookeeper = SimZooKeeper(self.network, session_timeout_seconds=2.0)
        replicas = min(3, brokers)
        defaults = {
            **SETTINGS,
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(replicas - 1),
            "min.insync.replicas": str(replicas - 1),
            "zookeeper.connect": "zk:2181",
        }
        self.brokers = [
            SimMachine(
                self.network,
                self.zookeeper,
                f"b{number}",
                {"broker.id": str(number), "broker.rack": f"rack-{number}", **defaults, **(settings or {})},
            )
            for number in range(1, brokers + 1)
        ]
        """The machines: `kill`, `stop`, `pause`, `resume`, `lose_power`, and `start` again."""
        self._processes: list[Process] = []
        self.happened: list[tuple[float, str, str]] = []
        """What `trouble` has done: virtual time, kind of fault, broker."""

    @property
    def bootstrap(self) -> str:
        """For a client's `bootstrap_servers`."""
        return ",".join(f"{machine.name}:{PORT}" for machine in self.brokers)

    def run(
        self, scenario: "Callable[[Cluster], Coroutine[Any, Any, ResultT]]", *, in_this_process: bool = False
    ) -> ResultT:
        """Start the brokers, run the scenario to its end, and give its result. Raises what it raises.

        It runs in a forked process, from which only the result comes back (by pickle): what a scenario appends to a
        list of the test's stays there. `in_this_process` is for debuggers; brokers that were killed then say more
        than they should when they are collected.
        """

        def whole_run() -> ResultT:
            asyncio.set_event_loop(self.loop)
            with no_collection(), chance_by_seed(self.seed), time_of_the_loop(self.loop):
                return self.loop.run_until_complete(self._run(scenario))

        try:
            return whole_run() if in_this_process else in_a_fork(whole_run)
        finally:
            self.loop.close()

    def start(self, name: str, program: Coroutine[Any, Any, Any]) -> Process:
        """Run a program on the host `name`, as a process that can be killed and paused."""
        host, life = self.network.host(name), Life(name)
        life.open_connection = _connections_from(host)
        process = Process(host, life, self.loop.start(life, program))
        self._processes.append(process)
        return process

    async def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and return when each partition has all its replicas in sync."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        while not await self._is_created(topic):  # noqa: ASYNC110 # nothing signals that brokers can be reached
            await asyncio.sleep(POLL_INTERVAL_S)
        await self.healed()

    async def trouble(self, seconds: float, kinds: Sequence[str] = FAULTS) -> None:
        """Have faults of these kinds for so many virtual seconds, as the seed decides; each ends after a while."""
        unknown = sorted(set(kinds) - set(FAULTS))
        if unknown:
            raise ValueError(f"no such faults: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
        until = self.loop.time() + seconds
        ends: list[asyncio.Task[None]] = []
        while True:
            pause = self.random.expovariate(1 / MEAN_PAUSE_S)
            if self.loop.time() + pause > until:
                break
            await asyncio.sleep(pause)
            kind, machine = self.random.choice(list(kinds)), self.random.choice(self.brokers)
            if machine.is_running and not machine.is_paused:
                self.happened.append((self.loop.time(), kind, machine.name))
                ends.append(self.loop.create_task(self._fault(kind, machine)))
        await asyncio.sleep(max(0.0, until - self.loop.time()))
        await asyncio.gather(*ends)

    async def healed(self, within_seconds: float = 60.0) -> None:
        """End all faults, and return when every broker serves and every replica is in sync. Raises NotReachedError."""
        self.network.heal()
        for machine in self.brokers:
            if machine.is_paused:
                machine.resume()
            elif not machine.is_running:
                machine.start()
        await self.until(self._is_well, within_seconds, "all brokers serve, with all replicas in sync")

    async def until(self, condition: Callable[[], bool], within_seconds: float = 60.0, what: str = "") -> None:
        """Return once the condition holds. Raises NotReachedError after so many virtual seconds, and what a program
        of the scenario has failed with."""
        deadline = self.loop.time() + within_seconds
        while not condition():
            for process in self._processes:
                if process.task.done() and not process.task.cancelled():
                    process.task.result()
            if self.loop.time() > deadline:
                raise NotReachedError(
                    f"seed {self.seed}: not reached within {within_seconds:g} s, at {self.loop.time():.1f} s: "
                    f"{what or getattr(condition, '__name__', 'the condition')}; faults: {self.happened}"
                )
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _run(self, scenario: "Callable[[Cluster], Coroutine[Any, Any, ResultT]]") -> ResultT:
        zookeeper = self.loop.create_task(self.zookeeper.run())
        for machine in self.brokers:
            machine.start()
        await self.healed()
        process = self.start("scenario", scenario(self))
        try:
            result: ResultT = await process.task
            return result
        finally:
            zookeeper.cancel()

    async def _fault(self, kind: str, machine: SimMachine) -> None:
        """One fault from its beginning to its end."""
        others = [other.name for other in self.brokers if other is not machine] + ["zk"]
        match kind:
            case "kill":
                machine.kill()
            case "power":
                machine.lose_power()
            case "stop":
                machine.stop()
            case "pause":
                machine.pause()
            case "cut":
                self.network.cut([machine.name], others)
            case "reset":
                self.network.break_connections(0.5)
        await asyncio.sleep(self.random.uniform(0.2, LONGEST_FAULT_S))
        if kind == "cut":
            self.network.heal()
        elif machine.is_paused:
            machine.resume()
        elif not machine.is_running:
            machine.start()

    async def _is_created(self, topic: CreatableTopic) -> bool:
        connect = self.network.host("admin").connect
        for machine in self.brokers:
            peer = AsyncConnection(machine.name, PORT, "admin", connect=connect)
            try:
                answer = await peer.ask(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS, timeout_s=5)
            except BrokerUnavailable:
                continue
            finally:
                peer.close()
            (created,) = answer.topics
            if created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return True
            if created.error_code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
                why = created.error_message or ErrorCode(created.error_code).name
                raise ValueError(f"topic {topic.name!r} cannot be created: {why}")
        return False

    def _is_well(self) -> bool:
        if any(machine.broker is None for machine in self.brokers):
            return False
        partitions = [
            part for topic in layout.read_image(self.zookeeper.tree.nodes).topics.values() for part in topic.partitions
        ]
        return all(part.leader >= 0 and set(part.isr) == set(part.replicas) for part in partitions)


def _connections_from(host: SimHost) -> Callable[[SimLoop, Callable[[], Any], str, int], Awaitable[Any]]:
    async def open_connection(
        loop: SimLoop, protocol_factory: Callable[[], Any], name: str, port: int
    ) -> tuple[SimTransport, Any]:
        sock = await host.connect(name, port)
        protocol = protocol_factory()
        return SimTransport(loop, sock, protocol), protocol

    return open_connection
