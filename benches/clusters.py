"""Clusters to measure: several brokers of one kind, with what coordinates them."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import ask
from tests.support.zookeeper import ZooKeeperServer

from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

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
        self.brokers = self.made(brokers, shared, cpus, session_ms)

    @abstractmethod
    def made(
        self, count: int, shared: Mapping[str, str], cpus: Sequence[int], session_ms: int
    ) -> dict[int, BrokerProcess]:
        """The brokers, not started."""

    @property
    def coordination(self) -> BrokerProcess | None:
        """What coordinates the brokers, if they do not do it themselves."""
        return None

    @abstractmethod
    def controller(self) -> int:
        """The broker that decides."""

    def prepare(self) -> None:
        """Everything that is done before brokers are spawned: formatting, ZooKeeper."""
        if self.coordination is not None:
            self.coordination.start()
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

    def remove(self) -> None:
        """Kill everything and delete what it has written."""
        for broker in self.brokers.values():
            broker.kill()
        if self.coordination is not None:
            self.coordination.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def cpu_seconds(self) -> float:
        """CPU seconds of all brokers, and of ZooKeeper or the controllers."""
        coordination = 0.0 if self.coordination is None else self.coordination.cpu_seconds()
        return coordination + sum(broker.cpu_seconds() for broker in self.brokers.values() if broker.is_alive())

    def rss_bytes(self) -> int:
        """Resident bytes of all brokers, without ZooKeeper or the controllers."""
        return sum(broker.rss_bytes() for broker in self.brokers.values() if broker.is_alive())


class PinnedZooKeeper(ZooKeeperServer):
    """On the cores of the brokers."""

    def __init__(self, directory: Path, cpus: Sequence[int]) -> None:
        super().__init__(directory)
        self._cpus = tuple(cpus)


class OttlaCluster(Cluster):
    """Ottla brokers and a genuine ZooKeeper."""

    def made(
        self, count: int, shared: Mapping[str, str], cpus: Sequence[int], session_ms: int
    ) -> dict[int, BrokerProcess]:
        self._zookeeper = PinnedZooKeeper(self.directory / "zookeeper", cpus)
        own = {"zookeeper.connect": self._zookeeper.connect, "zookeeper.session.timeout.ms": str(session_ms)}
        return {
            number: OttlaProcess(
                self.directory / str(number), properties={**shared, **own, "node.id": str(number)}, cpus=cpus
            )
            for number in range(1, count + 1)
        }

    @property
    def coordination(self) -> BrokerProcess:
        return self._zookeeper

    def controller(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return eventually(lambda: max(admin.list_topics(timeout=10).controller_id, 0))


class KafkaCluster(Cluster):
    """Genuine Kafka in KRaft mode: three of the brokers, or all if there are fewer, are controllers as well."""

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
                "process.roles": "broker,controller" if decides else "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}"
                + (f",CONTROLLER://127.0.0.1:{controller_port}" if decides else ""),
                "broker.session.timeout.ms": str(session_ms),
                "broker.heartbeat.interval.ms": str(session_ms // 4),
            }
            brokers[number] = GenuineKafka(
                self.directory / str(number),
                properties={**shared, **own},
                port=port,
                cpus=cpus,
                heap="1g",
                as_it_comes=True,
            )
        return brokers

    def controller(self) -> int:
        wanted = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        alive = next(broker for broker in self.brokers.values() if broker.is_alive())
        answer = ask(alive.bootstrap, DescribeQuorumRequest(topics=[wanted]), 0)
        return int(answer.topics[0].partitions[0].leader_id)
