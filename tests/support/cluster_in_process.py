"""Several brokers on one event loop in a thread, with a metadata store in memory whose sessions a test can end.

Quick to start, and everything inside can be looked at; brokers that are killed need processes (`ottla_cluster.py`).
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.broker import Broker
from ottla.broker_process import new_event_loop
from ottla.cluster.image import MetadataImage, PartitionImage
from ottla.ids import TopicName
from ottla.log.fs import FileSystem, RealFileSystem
from ottla.platform import Platform
from ottla.server.migration_state import LEFT
from ottla.testing.memory_store import MemoryStore, MemoryTree
from tests.support.eventually import eventually

T = TypeVar("T")

SETTINGS: Final[Mapping[str, str]] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.connect": "in-memory",
    "zookeeper.session.timeout.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.max.retries": "0",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
}


class ClusterInProcess:
    """Brokers numbered from 1."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Mapping[int, str] | None = None,
        log_directories: Sequence[str] = ("",),
        files: Mapping[int, FileSystem] | None = None,
        **properties: str,
    ) -> None:
        """`log_directories` are names below the directory of each broker; `files` are other file systems than the
        machine's, by broker."""
        self._count = brokers
        self._log_directories = log_directories
        self._files = files or {}
        self._racks = racks or {}
        self._properties = {**SETTINGS, **{name.replace("_", "."): value for name, value in properties.items()}}
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-in-process-"))
        self.tree = MemoryTree()
        self.own: dict[int, dict[str, str]] = {}
        """Settings that only one broker has, by Kafka's names, from its next start on."""
        self.stores: dict[int, MemoryStore] = {}
        self.brokers: dict[int, Broker] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            for number in range(1, self._count + 1):
                self.start(number)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for number in list(self.brokers):
                self.stop(number)
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The brokers' loop, which runs in a thread."""
        return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the brokers' loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def start(self, number: int) -> Broker:
        broker = Broker.configured(None, self.settings_of(number), platform=self.platform(number))
        self.run(broker.__aenter__())
        self.brokers[number] = broker
        return broker

    def settings_of(self, number: int) -> dict[str, str]:
        """A broker's settings."""
        directories = ",".join(str(self.directory / str(number) / name) for name in self._log_directories)
        settings = {**self._properties, "node.id": str(number), "log.dirs": directories}
        rack = {"broker.rack": self._racks[number]} if number in self._racks else {}
        return settings | rack | self.own.get(number, {})

    def platform(self, number: int) -> Platform:
        """What a broker runs on: its files, and its session with the store."""
        store = self.stores[number] = MemoryStore(self.tree)

        def open_store(file: Path) -> MemoryStore:
            return MemoryStore(self.tree) if file.name == LEFT else store

        return Platform(open_store=open_store, fs=self.fs(number))

    def fs(self, number: int) -> FileSystem:
        """The file system of a broker."""
        return self._files.get(number) or RealFileSystem()

    def stop(self, number: int) -> None:
        """By controlled shutdown."""
        self.run(self.brokers.pop(number).__aexit__(None, None, None))

    def lose_session(self, number: int) -> None:
        """As a broker does that ZooKeeper has not heard of for too long."""

        async def lose() -> None:
            self.stores[number].lose()

        self.run(lose())

    def begin_session(self, number: int) -> None:
        async def begin() -> None:
            self.stores[number].begin()

        self.run(begin())

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.brokers[number].port}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(number) for number in self.brokers)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, replicas: list[list[int]], **configs: str) -> None:
        """A topic whose partitions have these replicas, known to every broker."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=named)
        admin = self.admin()  # its requests end with it
        admin.create_topics([new])[topic].result(30)
        eventually(lambda: all(topic in self.image(number).topics for number in self.brokers))

    def image(self, number: int) -> MetadataImage:
        """What a broker knows."""
        return self.brokers[number].metadata.image

    def partition(self, topic: str, partition: int = 0) -> PartitionImage:
        """As the controller has it."""
        return self.partition_at(self.controller, topic, partition)

    def partition_at(self, number: int, topic: str, partition: int = 0) -> PartitionImage:
        """As a broker knows it."""
        return self.image(number).topics[TopicName(topic)].partitions[partition]

    @property
    def controller(self) -> int:
        """Who decides, by what all of them know."""

        def found() -> int:
            """0 while they do not agree."""
            said = {int(self.image(number).controller_id) for number in self.brokers}
            return said.pop() if len(said) == 1 and said <= set(self.brokers) else 0

        return eventually(found)

    def produce(self, topic: str, values: list[bytes], partition: int = 0, **settings: object) -> None:
        """With acks=all; all of them are acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0, **settings})
        problems: list[object] = []
        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: problems.append(error))
        assert producer.flush(40) == 0
        assert problems == [None] * len(values)

    def produce_without_waiting(self, topic: str, values: list[bytes]) -> None:
        """With acks=1."""
        self.produce(topic, values, acks="1")

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a topic's setting."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(20)

    def stop_copying(self, number: int, topic: str) -> None:
        """Have a follower copy nothing any more, without a word to anybody."""

        async def stop() -> None:
            replicas = self.brokers[number].replicas
            found = replicas.find(topic, 0)
            assert found is not None
            replicas.fetchers.stop(found)

        self.run(stop())

    def resume_copying(self, number: int, topic: str) -> None:
        async def resume() -> None:
            replicas = self.brokers[number].replicas
            found = replicas.find(topic, 0)
            assert found is not None
            assert found.log.topic_id is not None
            replicas.fetchers.follow(found, found.log.topic_id)

        self.run(resume())

    def log_bytes(self, number: int, topic: str, partition: int = 0) -> bytes:
        """The records of a replica, as they lie in its files."""
        directory = self.directory / str(number) / f"{topic}-{partition}"
        while True:
            with suppress(FileNotFoundError):  # it was renamed after it was found
                return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))
