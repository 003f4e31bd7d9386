"""The nodes of a cluster under test, each on a host: Ottla on ZooKeeper, Ottla with its own controllers, Kafka."""

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.cli.app import run
from ottla.ids import uuid_to_text
from tests.chaos.cluster_broken import ClusterBreakage
from tests.chaos.cluster_broker import MovableClock
from tests.chaos.cluster_disk import SmallDisk
from tests.chaos.cluster_network import Network
from tests.chaos.run import BROKER_PROPERTIES
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import CLUSTER_ID, GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

CLIENTS: Final = "clients"
ZOOKEEPER: Final = "zookeeper"
REPLICAS: Final = 3
CONTROLLER_PORT: Final = 9093
DISK_BYTES: Final = 192 << 20
_REPOSITORY: Final = Path(__file__).resolve().parents[2]

PROPERTIES: Final[Mapping[str, str]] = {
    **BROKER_PROPERTIES,
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "leader.imbalance.check.interval.seconds": "10",
}
"""Three replicas, two of which have to be in sync; quick to notice what breaks."""
ON_ZOOKEEPER: Final[Mapping[str, str]] = {
    **PROPERTIES,
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "30000",
}
IN_A_QUORUM: Final[Mapping[str, str]] = {
    **PROPERTIES,
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "metadata.log.max.snapshot.interval.ms": "15000",
    "metadata.log.segment.ms": "10000",
    "metadata.max.retention.ms": "20000",
}
"""Snapshots so often, and records kept for so short a time, that nodes which were away begin with a snapshot."""


class Makeup(Enum):
    """What the nodes are, and where the metadata is."""

    QUORUM = "own controllers"
    """Ottla nodes that are brokers and controllers."""
    ZOOKEEPER = "ZooKeeper"
    ONE_GENUINE = "own controllers and one genuine Kafka"
    TWO_GENUINE = "own controllers and two genuine Kafka"

    @property
    def genuine(self) -> int:
        """How many of the nodes are genuine Kafka."""
        return {Makeup.ONE_GENUINE: 1, Makeup.TWO_GENUINE: 2}.get(self, 0)


@dataclass(frozen=True)
class Place:
    """Where a node is to listen, and as which replica of the metadata log it is known."""

    number: int
    host: str
    address: str
    port: int
    controller_port: int

    @property
    def directory_id(self) -> str:
        """The id of its log directory, as text."""
        return uuid_to_text(self.directory_uuid)

    @property
    def directory_uuid(self) -> UUID:
        """The same."""
        return UUID(int=(self.number << 96) | 0xABCDEF)

    @property
    def controller(self) -> str:
        """`host:port` of its controller."""
        return f"{self.address}:{self.controller_port}"


def places(network: Network | None) -> dict[int, Place]:
    """For each node, by its number."""
    found = {}
    for number in range(1, REPLICAS + 1):
        host = f"broker-{number}"
        if network is None:
            found[number] = Place(number, host, "127.0.0.1", free_port(), free_port())
        else:
            found[number] = Place(number, host, network.address(host), 9092, CONTROLLER_PORT)
    return found


class Node(BrokerProcess):
    """One of them; see `BrokerProcess`. `disk` is None where it has none of its own, `clock` where none is movable."""

    at: str
    """Its host."""
    clock: MovableClock | None = None
    disk: SmallDisk | None = None

    @property
    def log_dir(self) -> Path:
        return self.directory / "disk" / "data"

    def settle(self, place: Place, network: Network | None) -> None:
        """Give it its names, and its disk, which is not mounted yet."""
        self.name = self.at = place.host
        self.disk = None if network is None else SmallDisk(self.directory / "disk", DISK_BYTES)


class OttlaNode(Node, OttlaProcess):
    """An Ottla broker."""

    ready_timeout_s = 90.0

    def __init__(
        self,
        place: Place,
        directory: Path,
        *,
        network: Network | None,
        breakage: ClusterBreakage,
        properties: Mapping[str, str],
    ) -> None:
        super().__init__(
            directory / place.host,
            properties={**properties, "node.id": str(place.number)},
            environment={"PYTHONPATH": f"{_REPOSITORY / 'src'}{os.pathsep}{_REPOSITORY}"},
            port=place.port,
            host=place.address,
            prefix=() if network is None else network.prefix(place.host),
        )
        self.settle(place, network)
        self._clock_path = self.directory / "clock"
        self.clock = MovableClock(self._clock_path)
        self._breakage = breakage

    def command(self) -> list[str]:
        """`cluster_broker.py` in the place of the `ottla` command."""
        command = super().command()
        serve = command[command.index("serve") :]
        return [sys.executable, "-m", "tests.chaos.cluster_broker", str(self._clock_path), self._breakage.value, *serve]


def quorum_properties(place: Place, all_places: Mapping[int, Place]) -> dict[str, str]:
    """What makes a node a broker and a voter of a quorum whose voters can change."""
    client, controller = f"PLAINTEXT://{place.address}:{place.port}", f"CONTROLLER://{place.controller}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(place.number),
        "listeners": f"{client},{controller}",
        "advertised.listeners": f"{client},{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": ",".join(each.controller for each in all_places.values()),
    }


def first_voters(all_places: Mapping[int, Place]) -> tuple[str, str]:
    """The option of `storage format` that makes all nodes voters."""
    voters = ",".join(f"{each.number}@{each.controller}:{each.directory_id}" for each in all_places.values())
    return "--initial-controllers", voters


class OttlaVoter(OttlaNode):
    """An Ottla node with both roles; its directory is formatted at the first start."""

    def __init__(
        self,
        place: Place,
        all_places: Mapping[int, Place],
        directory: Path,
        *,
        network: Network | None,
        breakage: ClusterBreakage,
        properties: Mapping[str, str],
    ) -> None:
        self._roles = quorum_properties(place, all_places)
        self._voters = first_voters(all_places)
        super().__init__(place, directory, network=network, breakage=breakage, properties={**properties, **self._roles})

    def prepare(self) -> None:
        if (self.log_dir / "meta.properties").exists():
            return
        settings = {**self._roles, "log.dirs": str(self.log_dir)}
        file = self.directory / "format.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        _format("format", "-t", CLUSTER_ID, "-c", str(file), *self._voters)


class GenuineVoter(Node, GenuineKafka):
    """A genuine Kafka node with both roles, whose directory Ottla has formatted."""

    ready_timeout_s = 120.0

    def __init__(
        self,
        place: Place,
        all_places: Mapping[int, Place],
        directory: Path,
        *,
        network: Network | None,
        properties: Mapping[str, str],
    ) -> None:
        super().__init__(
            directory / place.host,
            properties={**properties, **quorum_properties(place, all_places)},
            port=place.port,
            host=place.address,
            prefix=() if network is None else network.prefix(place.host),
            heap="256m",
            format_options=first_voters(all_places),
        )
        self.settle(place, network)

    def _format(self, *arguments: str) -> None:
        _format(*arguments)


def _format(*arguments: str) -> None:
    """Run `ottla storage`, quietly."""
    with redirect_stdout(StringIO()) as said, redirect_stderr(said):
        done = run(["storage", *arguments])
    assert done == 0, said.getvalue()


def nodes_of(
    makeup: Makeup,
    directory: Path,
    connect: str | None,
    *,
    network: Network | None,
    breakage: ClusterBreakage,
    properties: Mapping[str, str],
) -> tuple[dict[int, Place], dict[int, Node]]:
    """Places and nodes by number; `connect` is `zookeeper.connect`, `properties` are over those of all."""
    where = places(network)
    if makeup is Makeup.ZOOKEEPER:
        assert connect is not None
        settings = {**ON_ZOOKEEPER, **properties, "zookeeper.connect": connect}
        return where, {
            number: OttlaNode(place, directory, network=network, breakage=breakage, properties=settings)
            for number, place in where.items()
        }
    settings = {**IN_A_QUORUM, **properties}
    nodes: dict[int, Node] = {}
    for number, place in where.items():
        if number <= makeup.genuine:
            nodes[number] = GenuineVoter(place, where, directory, network=network, properties=settings)
        else:
            nodes[number] = OttlaVoter(place, where, directory, network=network, breakage=breakage, properties=settings)
    return where, nodes
