"""Ottla's nodes of a quorum as processes: controllers, and nodes of both roles."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.ids import uuid_to_text
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import Address, addresses, static_voters
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port, listens

PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


class OttlaNode(OttlaProcess):
    """`ottla serve` as a controller, or with `broker` as both; its directory is formatted at the first start."""

    def __init__(
        self,
        own: Address,
        quorum: Mapping[int, Address],
        *,
        broker: bool,
        properties: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """`quorum`: the voters' controllers, by node id."""
        self._own = own
        self._is_broker = broker
        port = free_port()
        listeners = f"CONTROLLER://{own.endpoint}"
        if broker:
            listeners = f"PLAINTEXT://127.0.0.1:{port},{listeners}"
        settings = {
            "node.id": str(own.node_id),
            "process.roles": "broker,controller" if broker else "controller",
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": PROTOCOLS,
            "controller.quorum.voters": static_voters(quorum),
            **(properties or {}),
        }
        super().__init__(directory, properties=settings, port=port)

    def prepare(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        own = self.log_dir / "meta.properties"
        if not own.exists():
            directory_id = uuid_to_text(UUID(int=(self._own.node_id << 96) | 0xABCDEF))
            own.write_text(
                f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={self._own.node_id}\ndirectory.id={directory_id}\n"
            )

    def answers(self) -> bool:
        """A controller alone is ready when its port is open."""
        if self._is_broker:
            return super().answers()
        return listens(self._own.port)


@contextmanager
def ottla_nodes(
    *node_ids: int, broker: bool = True, properties: Mapping[str, str] | None = None
) -> Iterator[Sequence[OttlaNode]]:
    """Nodes of one quorum, all of them voters, that are ready."""
    quorum = addresses(*node_ids)
    with ExitStack() as stack:
        nodes = [OttlaNode(own, quorum, broker=broker, properties=properties) for own in quorum.values()]
        for node in nodes:
            stack.callback(node.kill)
            node.start(wait=False)
        for node in nodes:
            node.wait_until_ready()
        yield nodes
