"""Genuine Kafka with its roles apart, a controller and brokers that belong to it, and Ottla beside them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka, kafka_tool
from tests.support.mixed_cluster import TIMEOUT_S, MixedCluster
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

KAFKA, OTTLA, CONTROLLER = 1, 2, 100
SESSION_S = 3
CLUSTER_SETTINGS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "broker.session.timeout.ms": str(SESSION_S * 1000),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
}


class GenuineNode(GenuineKafka):
    """A node of these roles."""

    def __init__(self, roles: str, node_id: int, voters: str, *, controller_port: int = 0) -> None:
        self.roles = roles
        own = {"process.roles": roles, "node.id": str(node_id), "controller.quorum.voters": voters}
        super().__init__(properties={**CLUSTER_SETTINGS, **own}, heap="256m")
        controllers = f"CONTROLLER://127.0.0.1:{controller_port}"
        clients = f"PLAINTEXT://{self.bootstrap}"
        listeners = {"broker": clients, "controller": controllers}.get(roles, f"{clients},{controllers}")
        self.properties["listeners"] = listeners
        self.properties["advertised.listeners"] = controllers if roles == "controller" else clients

    def answers(self) -> bool:
        """A controller answers no client: its log tells."""
        if self.roles == "controller":
            return self.log_file.exists() and "Kafka Server started" in self.log_file.read_text(errors="replace")
        return super().answers()


class QuorumCluster(MixedCluster):
    """A genuine controller, a genuine broker, number 1, and an Ottla broker, number 2. Inside `with`, all run."""

    def __init__(self, *, apart: bool) -> None:
        """`apart`: the controller is a process of its own, so that the genuine broker can be stopped."""
        port = free_port()
        self.voters = f"{CONTROLLER if apart else KAFKA}@127.0.0.1:{port}"
        self.genuine_controller = (
            GenuineNode("controller", CONTROLLER, self.voters, controller_port=port) if apart else None
        )
        kafka = GenuineNode("broker" if apart else "broker,controller", KAFKA, self.voters, controller_port=port)
        self.ottla = OttlaProcess(
            properties={
                **CLUSTER_SETTINGS,
                "process.roles": "broker",
                "node.id": str(OTTLA),
                "controller.quorum.voters": self.voters,
                "controller.listener.names": "CONTROLLER",
            }
        )
        self.brokers: Mapping[int, BrokerProcess] = {KAFKA: kafka, OTTLA: self.ottla}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for process in (self.genuine_controller, self.brokers[KAFKA], self.ottla):
                if process is not None:
                    stack.enter_context(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def controller(self) -> int:
        """A broker that takes requests for the controller: each forwards them."""
        return OTTLA

    def tool(self, name: str, *arguments: str, at: int = OTTLA, stdin: str | None = None) -> str:
        """What a console tool of genuine Kafka prints, when it asks this broker alone."""
        return kafka_tool(name, "--bootstrap-server", self.brokers[at].bootstrap, *arguments, stdin=stdin).stdout

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition."""
        return {number: leader for number, (leader, _, _) in self.partitions(topic).items()}

    def until_led_by(self, topic: str, leader: int) -> None:
        """Wait until one broker leads all partitions of a topic."""
        eventually(lambda: set(self.leaders(topic).values()) == {leader}, timeout_s=TIMEOUT_S)


def moves(topic: str, replicas: Mapping[int, Sequence[int]]) -> str:
    """The file that kafka-reassign-partitions.sh wants."""
    import json

    partitions = [
        {"topic": topic, "partition": number, "replicas": list(held)} for number, held in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})
