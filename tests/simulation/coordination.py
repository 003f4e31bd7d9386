"""What coordinates the simulated cluster, and what it has decided: ZooKeeper, or a quorum with its log."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Final, Protocol
from uuid import UUID

from ottla.cluster.image import MetadataImage
from ottla.ids import TopicName, uuid_to_text
from ottla.metadata.quorum.formatting import Wishes
from ottla.metadata.store import layout
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.schema import Message
from ottla.testing.simulation.machine import METADATA, PORT, SimMachine
from ottla.testing.simulation.network import SimNetwork
from ottla.testing.simulation.store import SimZooKeeper
from tests.simulation.history import History, Place
from tests.simulation.metadata_observer import MetadataObserver

SESSION_S = 2.0
CONTROLLER_PORT = 9093
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
FIRST_DIRECTORY = 1 << 100
"""No id that Kafka reserves."""
APART = 100
"""Above the numbers of brokers: controllers on machines of their own."""


class Coordination(Protocol):
    """The coordinator of one run, and the machines of its brokers."""

    machines: list[SimMachine]
    nodes: list[SimMachine]
    """The machines, and those of controllers that have their own."""
    hosts: list[str]
    """Its own, beside the machines."""
    is_quorum: bool

    def begin(self) -> None:
        """Before the first broker starts."""

    async def run(self) -> None:
        """Until cancelled."""

    def installed(self, history: History, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Sees what is committed; `look` is called when partitions have changed."""

    def image(self) -> MetadataImage:
        """What has been decided, whether brokers know it or not."""

    def in_sync(self, place: Place) -> Sequence[int]:
        """The replicas in sync, as that has it."""

    def controller(self) -> str | None:
        """The name of the active controller's machine."""

    def look(self) -> None:
        """Now and then: whether brokers know what they may do."""

    def change_of_voters(self, random: Random) -> Message | None:
        """What an operator asks for."""

    def ailment(self) -> str | None:
        """What is not yet as it has to be in the end."""


class ZooKeeper:
    """A tree on a host of its own."""

    is_quorum = False

    def __init__(self, network: SimNetwork, brokers: int, settings: dict[str, str]) -> None:
        self._server = SimZooKeeper(network, session_timeout_seconds=SESSION_S)
        self.hosts = [self._server.host]
        own = {"zookeeper.connect": "zk:2181"} if brokers > 1 else {}
        self.machines = [
            SimMachine(network, self._server, f"b{number}", {"broker.id": str(number), **settings, **own})
            for number in range(1, brokers + 1)
        ]
        self.nodes = self.machines

    def begin(self) -> None:
        """Nothing has to be formatted."""

    async def run(self) -> None:
        await self._server.run()

    @contextmanager
    def installed(self, _history: History, _look: Callable[[], None]) -> Iterator[None]:
        """The tree is there to be read."""
        yield

    def image(self) -> MetadataImage:
        return layout.read_image(self._server.tree.nodes)

    def in_sync(self, place: Place) -> list[int]:
        node = self._server.tree.nodes.get(f"/brokers/topics/{place.topic}/partitions/{place.partition}/state")
        return [] if node is None else list(json.loads(node.data)["isr"])

    def controller(self) -> str | None:
        holder = self.image().controller_id
        return f"b{holder}" if holder >= 0 else None

    def look(self) -> None:
        """Nothing to see."""

    def change_of_voters(self, _random: Random) -> None:
        """There are none."""

    def ailment(self) -> str | None:
        """Nothing of a lone broker, which has no tree."""
        told = self.image().controller_id
        for machine in self.machines if len(self.machines) > 1 else ():
            assert machine.broker is not None
            known = machine.broker.metadata.image.controller_id
            if known != told:
                return f"{machine.name} takes {known} for the controller, which is {told}"
        return None


class Quorum:
    """Controllers in the processes of all brokers, or in one run of three, and beside a lone broker, three of them on
    machines of their own. In one run of four the voters stand in the settings."""

    is_quorum = True

    def __init__(self, network: SimNetwork, brokers: int, settings: dict[str, str], *, seed: int) -> None:
        self.hosts: list[str] = []
        self.is_dynamic = seed % 4 != 2
        is_apart = seed % 3 == 1 or brokers == 1  # a lone node keeps its metadata in a file of its own
        self.voters = {APART + number: f"c{number}" for number in range(1, 4)}
        if not is_apart:
            self.voters = {number: f"b{number}" for number in range(1, brokers + 1)}
        shared = {**SETTINGS, **settings, **self._addresses()}
        roles = "broker" if is_apart else "broker,controller"
        self.machines = [
            SimMachine(network, None, f"b{number}", {**_role(number, f"b{number}", roles), **shared})
            for number in range(1, brokers + 1)
        ]
        controllers = [
            SimMachine(network, None, name, {**_role(number, name, "controller"), **shared})
            for number, name in (self.voters.items() if is_apart else ())
        ]
        self.nodes = [*self.machines, *controllers]
        self._log = MetadataObserver(CLUSTER_ID, self.machines)

    def _addresses(self) -> dict[str, str]:
        """How nodes find the quorum."""
        names = {number: f"{name}:{CONTROLLER_PORT}" for number, name in self.voters.items()}
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": ",".join(names.values())}
        return {"controller.quorum.voters": ",".join(f"{number}@{name}" for number, name in names.items())}

    def begin(self) -> None:
        """Format the controllers."""
        voters = ",".join(
            f"{number}@{name}:{CONTROLLER_PORT}:{uuid_to_text(_directory(number))}"
            for number, name in self.voters.items()
        )
        wishes = Wishes(CLUSTER_ID, initial_controllers=voters if self.is_dynamic else None)
        for machine in self.nodes:
            if machine.name in self.voters.values():
                machine.format(wishes)

    async def run(self) -> None:
        """It runs in processes of the cluster."""

    def installed(self, history: History, look: Callable[[], None]) -> AbstractContextManager[None]:
        return self._log.installed(history, look)

    def image(self) -> MetadataImage:
        return self._log.image

    def in_sync(self, place: Place) -> Sequence[int]:
        topic = self._log.image.topics.get(TopicName(place.topic))
        return () if topic is None else topic.partitions[place.partition].isr

    def controller(self) -> str | None:
        newest = self._log.newest_leader
        return None if newest is None else self.voters[newest]

    def look(self) -> None:
        self._log.look_at_leases()

    def change_of_voters(self, random: Random) -> Message | None:
        if not self.is_dynamic:
            return None
        number = random.choice(list(self.voters))
        if random.random() < 0.4:
            return RemoveRaftVoterRequest(cluster_id=None, voter_id=number, voter_directory_id=_directory(number))
        return AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=1_000,
            voter_id=number,
            voter_directory_id=_directory(number),
            listeners=[Listener(name="CONTROLLER", host=self.voters[number], port=CONTROLLER_PORT)],
            ack_when_committed=random.random() < 0.5,
        )

    def ailment(self) -> str | None:
        for machine in self.nodes:
            broker = machine.broker
            if broker is None:
                return f"{machine.name} does not serve"
            if broker.controller is None:
                continue
            node = broker.controller.node
            if node.leader.leader_id is None:
                return f"{machine.name} does not know the leader of the quorum"
            if node.high_watermark != self._log.end:
                return f"{machine.name} knows of {node.high_watermark} committed metadata records of {self._log.end}"
        return None


def _directory(number: int) -> UUID:
    return UUID(int=FIRST_DIRECTORY + number)


def _role(number: int, name: str, roles: str) -> dict[str, str]:
    addresses = {
        "broker": f"PLAINTEXT://{name}:{PORT}",
        "controller": f"CONTROLLER://{name}:{CONTROLLER_PORT}",
    }
    return {
        "node.id": str(number),
        "process.roles": roles,
        "listeners": ",".join(addresses[role] for role in roles.split(",")),
    }


SETTINGS: Final[Mapping[str, str]] = {
    "controller.listener.names": "CONTROLLER",
    "metadata.log.dir": METADATA,
    "metadata.log.segment.ms": "1500",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "20000",
    "metadata.max.idle.interval.ms": "500",
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "400",
    "initial.broker.registration.timeout.ms": "8000",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "1000",
}
