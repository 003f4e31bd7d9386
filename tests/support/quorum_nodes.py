"""Nodes of a quorum as processes: Ottla's controllers and combined nodes, and genuine brokers under them."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.metadata.store.layout import uuid_to_text
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

CLUSTER_ID: Final = "b3R0bGFfZ2VudWluZV8wMQ"
"""That of `GenuineKafka`."""
PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


class OttlaNode(OttlaProcess):
    """`ottla serve` as a controller, or with `broker` as both; its directory is formatted at the first start."""

    def __init__(
        self,
        node_id: int,
        ports: Mapping[int, int],
        *,
        broker: bool,
        properties: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """`ports`: where each voter's controller listens, by node id."""
        self._node_id = node_id
        self._controller_port = ports[node_id]
        self._is_broker = broker
        port = free_port()
        listeners = f"CONTROLLER://127.0.0.1:{self._controller_port}"
        if broker:
            listeners = f"PLAINTEXT://127.0.0.1:{port},{listeners}"
        settings = {
            "node.id": str(node_id),
            "process.roles": "broker,controller" if broker else "controller",
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": PROTOCOLS,
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{at}" for each, at in ports.items()),
            **(properties or {}),
        }
        super().__init__(directory, properties=settings, port=port)

    def prepare(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        own = self.log_dir / "meta.properties"
        if not own.exists():
            directory_id = uuid_to_text(UUID(int=(self._node_id << 96) | 0xABCDEF))
            own.write_text(
                f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={self._node_id}\ndirectory.id={directory_id}\n"
            )

    def answers(self) -> bool:
        """A controller alone is ready when its port is open."""
        if self._is_broker:
            return super().answers()
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._controller_port)) == 0


class GenuineBroker(GenuineKafka):
    """A genuine broker that is no controller."""

    def __init__(self, node_id: int, ports: Mapping[int, int], properties: Mapping[str, str] | None = None) -> None:
        port = free_port()
        super().__init__(
            port=port,
            heap="256m",
            properties={
                "node.id": str(node_id),
                "process.roles": "broker",
                "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{at}" for each, at in ports.items()),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                **(properties or {}),
            },
        )


@contextmanager
def ottla_nodes(
    *node_ids: int, broker: bool = True, properties: Mapping[str, str] | None = None
) -> Iterator[Sequence[OttlaNode]]:
    """Nodes of one quorum, all of them voters, that are ready."""
    ports = {node_id: free_port() for node_id in node_ids}
    with ExitStack() as stack:
        nodes = [OttlaNode(node_id, ports, broker=broker, properties=properties) for node_id in node_ids]
        for node in nodes:
            stack.callback(node.kill)
            node.start(wait=False)
        for node in nodes:
            node.wait_until_ready()
        yield nodes
