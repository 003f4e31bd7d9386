"""Several Ottla brokers, each a process of its own, on a genuine ZooKeeper."""

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from ottla.coordinators.topic import java_string_hash
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess

SETTINGS: Final[Mapping[str, str]] = {
    "zookeeper.session.timeout.ms": "2000",
    "zookeeper.connection.timeout.ms": "20000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
}
"""Quick to notice that a broker is gone; three replicas, two of which have to be in sync."""

_SHOWN_CHARACTERS = 6_000


class OttlaCluster:
    """Brokers numbered from 1; inside `with`, all of them run."""

    def __init__(self, connect: str, brokers: int = 3, controller: int | None = None, **properties: str) -> None:
        """`connect` is `zookeeper.connect`; `properties` are settings, with underscores for dots.

        `controller` is started before the others, so that it is the controller; without it any broker may be.
        """
        self._controller = controller
        self._stack = ExitStack()
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-cluster-"))
        settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in properties.items()}}
        self.brokers: dict[int, OttlaProcess] = {
            number: OttlaProcess(
                self._directory / str(number),
                properties={**settings, "node.id": str(number), "zookeeper.connect": connect},
            )
            for number in range(1, brokers + 1)
        }

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            if self._controller is not None:
                stack.enter_context(self.brokers[self._controller])
            rest = [broker for number, broker in self.brokers.items() if number != self._controller]
            for broker in rest:  # together: each spends most of its start waiting
                stack.push(broker)
                broker.start(wait=False)
            for broker in rest:
                broker.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:  # pytest shows it with the failure
            for number, broker in self.brokers.items():
                print(f"--- the end of broker {number}'s log\n{broker.log_text()[-_SHOWN_CHARACTERS:]}")
        for broker in self.brokers.values():
            broker.kill()  # to stop them one after the other would hand everything over again and again
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        """All of them, for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int = 3, replicas: int = 3, **configs: str) -> None:
        """A topic that every broker knows of."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, replicas, config=named)])[topic].result(30)
        eventually(lambda: self._shows(topic, partitions))

    def _shows(self, topic: str, partitions: int) -> bool:
        """Whether some broker knows the topic; not if the client has asked one that no controller has reached."""
        try:
            return len(self.partitions(topic)) == partitions
        except KafkaException:
            return False

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """Who leads, holds and keeps up with each partition, as some broker says."""
        found: dict[int, PartitionMetadata] = self.admin().list_topics(topic, timeout=20).topics[topic].partitions
        return found

    def leader(self, topic: str, partition: int = 0) -> int:
        """Who leads a partition, as soon as somebody does."""
        return eventually(lambda: max(self.partitions(topic)[partition].leader, 0))

    def partition_of_group(self, group_or_id: str, partitions: int = 3) -> int:
        """The partition of its coordinator's topic that a group or a transactional id belongs to."""
        return java_string_hash(group_or_id) % (1 << 31) % partitions

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self.partitions(topic)[partition].isrs)

    def until_led_by(self, topic: str, brokers: set[int]) -> None:
        """Wait until some of these lead all partitions."""
        eventually(lambda: all(part.leader in brokers for part in self.partitions(topic).values()), timeout_s=30)

    def until_in_sync(self, topic: str, *replicas: int) -> None:
        """Wait until all partitions have exactly these in-sync replicas."""
        wanted = set(replicas)
        eventually(
            lambda: all(set(part.isrs) == wanted for part in self.partitions(topic).values()),
            timeout_s=40,
            interval_s=0.2,
        )
