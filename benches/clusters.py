"""Clusters to measure: several brokers of one kind, with controllers among them."""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient
from tests.support.broker_process import BrokerProcess, pinned
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port, free_ports_in_a_row
from tests.support.raw_client import ask

from benches.generators import first_ack
from ottla.cli.cluster.own_controllers import format_new
from ottla.processes import ChildProcess, ottla_command
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

DELETERS: Final = 16
VOTERS: Final = 3
"""How many of Kafka's brokers are controllers, too; all, if there are fewer."""


class Cluster(ABC):
    """Brokers numbered from 1, all with the same settings. Nothing runs before `start`, or `prepare` and `spawn`."""

    settings: ClassVar[Mapping[str, str]] = {
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.check.interval.ms": "86400000",
    }

    def __init__(self, directory: Path, brokers: int, cpus: Sequence[int], session_ms: int, **properties: str) -> None:
        """`session_ms`: for how long a broker may be silent before others take over."""
        replicas = str(min(3, brokers))
        shared = {
            **self.settings,
            "default.replication.factor": replicas,
            "min.insync.replicas": str(min(2, brokers)),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        self.directory = directory
        self._cpus = cpus
        self.brokers = self.made(brokers, shared, cpus, session_ms)

    @abstractmethod
    def made(
        self, count: int, shared: Mapping[str, str], cpus: Sequence[int], session_ms: int
    ) -> dict[int, BrokerProcess]:
        """The brokers, not started."""

    @abstractmethod
    def controller(self) -> int:
        """The broker that decides."""

    def prepare(self) -> None:
        """Everything that is done before brokers are spawned: formatting."""
        for broker in self.brokers.values():
            broker.prepare()

    def spawn(self) -> None:
        """Start all brokers, and wait for none."""
        for broker in self.brokers.values():
            broker.start(wait=False)

    def start(self) -> None:
        """Start everything, and wait until all brokers know of each other."""
        self.prepare()
        self.spawn()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        eventually(lambda: len(admin.list_topics(timeout=10).brokers) == len(self.brokers), timeout_s=120)

    def seconds_to_first_ack(self, topic: str) -> float:
        """Start everything on empty directories; seconds until a client that tries already has a record acknowledged.

        Formatting is not counted. Raises LoadFailedError.
        """
        self.prepare()
        began: list[float] = []

        def spawn() -> None:
            began.append(time.perf_counter())
            self.spawn()

        def all_run() -> bool:
            return all(broker.is_alive() for broker in self.brokers.values())

        return first_ack(self.bootstrap, topic, spawn, all_run) - began[0]

    def remove(self) -> None:
        """Kill everything and delete what it has written.

        Thousands of partitions are deleted by several threads: one alone waits a minute for a busy disk.
        """
        for broker in self.brokers.values():
            broker.kill()
        with ThreadPoolExecutor(DELETERS) as threads:
            partitions = self.directory.glob("*/data/*/")
            list(threads.map(partial(shutil.rmtree, ignore_errors=True), partitions))
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def cpu_seconds(self) -> float:
        """CPU seconds of all brokers and controllers."""
        return sum(broker.cpu_seconds() for broker in self.brokers.values() if broker.is_alive())

    def rss_bytes(self) -> int:
        """Resident bytes of all brokers and controllers."""
        return sum(broker.rss_bytes() for broker in self.brokers.values() if broker.is_alive())


class QuorumCluster(Cluster):
    """Three of the brokers, or all if there are fewer, are controllers as well."""

    def made(
        self, count: int, shared: Mapping[str, str], cpus: Sequence[int], session_ms: int
    ) -> dict[int, BrokerProcess]:
        numbers = range(1, count + 1)
        ports = {number: (free_port(), free_port()) for number in numbers}
        voters = ",".join(f"{number}@127.0.0.1:{ports[number][1]}" for number in numbers[:VOTERS])
        brokers: dict[int, BrokerProcess] = {}
        for number, (port, controller_port) in ports.items():
            decides = number <= VOTERS
            own = {
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "process.roles": "broker,controller" if decides else "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}"
                + (f",CONTROLLER://127.0.0.1:{controller_port}" if decides else ""),
                "broker.session.timeout.ms": str(session_ms),
                "broker.heartbeat.interval.ms": str(session_ms // 4),
            }
            brokers[number] = self.node(self.directory / str(number), {**shared, **own}, port, cpus)
        return brokers

    @abstractmethod
    def node(self, directory: Path, properties: Mapping[str, str], port: int, cpus: Sequence[int]) -> BrokerProcess:
        """A node that is not started."""

    def controller(self) -> int:
        wanted = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        alive = next(broker for broker in self.brokers.values() if broker.is_alive())
        answer = ask(alive.bootstrap, DescribeQuorumRequest(topics=[wanted]), 0)
        return int(answer.topics[0].partitions[0].leader_id)


class OttlaCluster(QuorumCluster):
    """Ottla brokers and controllers."""

    def prepare(self) -> None:
        format_new({**broker.properties, "log.dirs": str(broker.log_dir)} for broker in self.brokers.values())
        super().prepare()

    def seconds_to_first_ack(self, topic: str) -> float:
        """As for others, by `ottla cluster start`, which formats the directories as well."""
        count = len(self.brokers)
        port = free_ports_in_a_row(2 * count)
        options = {"--brokers": count, "--port": port, "--controller-port": port + count, "--dir": self.directory}
        command = ottla_command("cluster", "start", *(str(part) for option in options.items() for part in option))
        started = ChildProcess("the cluster", pinned(command, self._cpus), self.directory / "start.log")
        began: list[float] = []

        def spawn() -> None:
            began.append(time.perf_counter())
            started.start()

        bootstrap = ",".join(f"127.0.0.1:{port + number}" for number in range(count))
        try:
            return first_ack(bootstrap, topic, spawn, lambda: not started.ended) - began[0]
        finally:
            started.stop(within_s=60)

    def node(self, directory: Path, properties: Mapping[str, str], port: int, cpus: Sequence[int]) -> BrokerProcess:
        return OttlaProcess(directory, properties=properties, port=port, cpus=cpus)


class KafkaCluster(QuorumCluster):
    """Genuine Kafka."""

    def node(self, directory: Path, properties: Mapping[str, str], port: int, cpus: Sequence[int]) -> BrokerProcess:
        return GenuineKafka(directory, properties=properties, port=port, cpus=cpus, heap="1g", as_it_comes=True)
