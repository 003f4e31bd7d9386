"""Genuine Kafka nodes of one quorum, whose controllers have ports that are known before they start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka, kafka_tool
from tests.support.probe import free_port, listens


@dataclass(frozen=True)
class Address:
    """Where a controller listens."""

    node_id: int
    port: int

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"


def addresses(*node_ids: int) -> dict[int, Address]:
    """Free ports for the controllers of a quorum."""
    return {node_id: Address(node_id, free_port()) for node_id in node_ids}


def static_voters(quorum: Mapping[int, Address]) -> str:
    """`controller.quorum.voters` with all of them."""
    return ",".join(f"{each.node_id}@{each.endpoint}" for each in quorum.values())


class GenuineController(GenuineKafka):
    """A genuine node: a controller, or with `broker` a broker as well. The voters are static, unless `dynamic`."""

    def __init__(
        self,
        own: Address,
        quorum: Mapping[int, Address],
        directory: Path | None = None,
        *,
        broker: bool = False,
        dynamic: bool = False,
        properties: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        self._own = own
        port = free_port()
        client = f"PLAINTEXT://127.0.0.1:{port}"
        controller = f"CONTROLLER://{own.endpoint}"
        bootstrap = ",".join(each.endpoint for each in quorum.values())
        super().__init__(
            directory,
            port=port,
            format_options=format_options,
            heap="256m",
            properties={
                "node.id": str(own.node_id),
                "process.roles": "broker,controller" if broker else "controller",
                "controller.quorum.voters": "" if dynamic else static_voters(quorum),
                **({"controller.quorum.bootstrap.servers": bootstrap} if dynamic else {}),
                "listeners": f"{client},{controller}" if broker else controller,
                "advertised.listeners": f"{client},{controller}" if broker else controller,
                **(properties or {}),
            },
        )
        self._broker = broker

    def answers(self) -> bool:
        """A controller answers when its port is open."""
        if self._broker:
            return super().answers()
        return listens(self._own.port)


class GenuineBroker(GenuineKafka):
    """A genuine broker that is no controller."""

    def __init__(
        self,
        node_id: int,
        quorum: Mapping[int, Address],
        properties: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        port = free_port()
        super().__init__(
            directory,
            port=port,
            heap="256m",
            properties={
                "node.id": str(node_id),
                "process.roles": "broker",
                "controller.quorum.voters": static_voters(quorum),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                **(properties or {}),
            },
        )


def quorum_status(controller: Address, *arguments: str) -> str:
    """What `kafka-metadata-quorum.sh` prints about the quorum, asked at one of its controllers."""
    done = kafka_tool(
        "MetadataQuorumCommand", "--bootstrap-controller", controller.endpoint, *(arguments or ("describe", "--status"))
    )
    return done.stdout


def stop_all(nodes: Sequence[BrokerProcess]) -> None:
    """End processes in the reverse of their order."""
    for node in reversed(nodes):
        node.kill()
