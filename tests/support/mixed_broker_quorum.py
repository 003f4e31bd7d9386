"""Genuine Kafka with its roles apart, a controller and brokers that belong to it, and Ottla beside them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import kafka_tool
from tests.support.genuine_quorum import GenuineBroker, GenuineController, addresses, static_voters
from tests.support.mixed_cluster import TIMEOUT_S, MixedCluster
from tests.support.ottla_process import OttlaProcess

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


class QuorumCluster(MixedCluster):
    """A genuine controller, a genuine broker, number 1, and an Ottla broker, number 2. Inside `with`, all run."""

    def __init__(self, *, apart: bool, properties: Mapping[str, str] | None = None) -> None:
        """`apart`: the controller is a process of its own, so that the genuine broker can be stopped. `properties` are
        further settings of all."""
        settings = {**CLUSTER_SETTINGS, **(properties or {})}
        quorum = addresses(CONTROLLER if apart else KAFKA)
        (own,) = quorum.values()
        controller = GenuineController(own, quorum, broker=not apart, properties=settings)
        self.genuine_controller = controller if apart else None
        kafka = GenuineBroker(KAFKA, quorum, settings) if apart else controller
        self.ottla = OttlaProcess(
            properties={
                **settings,
                "process.roles": "broker",
                "node.id": str(OTTLA),
                "controller.quorum.voters": static_voters(quorum),
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
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(held)} for number, held in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})
