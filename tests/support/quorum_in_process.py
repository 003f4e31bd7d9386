"""Several brokers under a controller of their own, on one event loop in a thread."""

from collections.abc import Mapping
from typing import Final

from ottla.broker import Broker
from ottla.cluster.image import PartitionImage
from ottla.ids import TopicName
from ottla.log.fs import FileSystem
from ottla.platform import Platform
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import Address, addresses, static_voters

CONTROLLER: Final = 100


class QuorumInProcess(ClusterInProcess):
    """Brokers numbered from 1, whose metadata logs are beside their partitions, and a node that is the controller."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        files: Mapping[int, FileSystem] | None = None,
        others: Mapping[int, Address] | None = None,
        **properties: str,
    ) -> None:
        """`files` are other file systems than the machine's, by broker; `others` are running controllers, in place of
        one of its own."""
        super().__init__(brokers, racks=None, files=files, **properties)
        quorum = others or addresses(CONTROLLER)
        self._own = quorum.get(CONTROLLER)
        self._properties = {name: text for name, text in self._properties.items() if not name.startswith("zookeeper.")}
        self._properties |= {
            "process.roles": "broker",
            "broker.heartbeat.interval.ms": "200",
            "controller.quorum.voters": static_voters(quorum),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        self._active: Broker | None = None

    def start(self, number: int) -> Broker:
        """Start a broker, and before the first one the controller."""
        if self._active is None and self._own is not None:
            directory = self.directory / str(CONTROLLER)
            directory.mkdir()
            (directory / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={CONTROLLER}\n")
            listeners = {"process.roles": "controller", "listeners": f"CONTROLLER://{self._own.endpoint}"}
            self._active = Broker.configured(None, {**self.settings_of(CONTROLLER), **listeners})
            self.run(self._active.__aenter__())
        return super().start(number)

    def platform(self, number: int) -> Platform:
        return Platform(fs=self.fs(number))

    @property
    def controller_port(self) -> int:
        """Where its own controller listens."""
        assert self._own is not None
        return self._own.port

    def _end(self) -> None:
        if self._active is not None:
            self.run(self._active.__aexit__(None, None, None))
        super()._end()

    def partition(self, topic: str, partition: int = 0) -> PartitionImage:
        if self._active is None or self._active.controller is None:
            return super().partition(topic, partition)
        return self._active.controller.replay.image.topics[TopicName(topic)].partitions[partition]

    @property
    def controller(self) -> int:
        """A broker that forwards to the controller, as all do."""
        return 1
