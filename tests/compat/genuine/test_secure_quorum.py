"""A genuine node and Ottla's in one quorum whose controllers speak SASL_SSL: votes, fetches, registrations, heartbeats
and forwarded requests in both directions."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.genuine_quorum import GenuineController, addresses
from tests.support.new_topics import is_created
from tests.support.quorum_nodes import OttlaNode
from tests.support.raw_client import ClosedError, RawConnection
from tests.support.steady_producer import SteadyProducer
from tests.support.tool_server import kafka_tool
from tests.support.whole_topic import read_all

from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

GENUINE, NODES = 1, (1, 2, 3)
TIMEOUT_S = 90.0
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{_PLAIN} username="node" password="between" user_node="between";'


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    authority = Authority("quorum")
    ca = authority.write(tmp_path / "ca.pem")
    quorum = addresses(*NODES)
    made: dict[int, BrokerProcess] = {}
    for number, own in quorum.items():
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue(f"node-{number}").write_pem(tmp_path / f"{number}.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
            "broker.session.timeout.ms": "6000",
            "default.replication.factor": "3",
            "min.insync.replicas": "1",
            "offsets.topic.replication.factor": "3",
        }
        directory = tmp_path / str(number)
        if number == GENUINE:
            made[number] = GenuineController(own, quorum, directory, broker=True, properties=settings)
        else:
            made[number] = OttlaNode(own, quorum, broker=True, properties=settings, directory=directory)
    with ExitStack() as stack:
        for node in made.values():
            stack.callback(node.kill)
            node.start(wait=False)
        for node in made.values():
            node.wait_until_ready()
        yield made


def active(nodes: dict[int, BrokerProcess], at: int) -> int:
    """The active controller, as a broker's tool shows it."""
    shown = kafka_tool("MetadataQuorumCommand", "--bootstrap-server", nodes[at].bootstrap, "describe", "--status")
    fields = dict(line.split(":", 1) for line in shown.stdout.splitlines() if ":" in line)
    assert {each["id"] for each in json.loads(fields["CurrentVoters"])} == set(NODES)
    return int(fields["LeaderId"])


def in_sync(admin: AdminClient, topic: str) -> list[set[int]]:
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return [set(part.isrs) for part in partitions.values()]


def test_each_of_them_leads_the_others(nodes: dict[int, BrokerProcess]) -> None:
    bootstrap = ",".join(node.bootstrap for node in nodes.values())
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
    eventually(lambda: in_sync(admin, "t") == [set(NODES)] * 3, timeout_s=TIMEOUT_S)
    led: set[bool] = set()
    with SteadyProducer(bootstrap, "t", **{"enable.idempotence": True}) as producer:
        for turn in range(8):
            producer.until_acknowledged(50)
            leader = active(nodes, at=next(iter(set(NODES) - {GENUINE})))
            led.add(leader == GENUINE)
            if len(led) == 2:
                break
            nodes[leader].kill()
            eventually(partial(is_created, admin, f"without-{turn}", replicas=2), timeout_s=TIMEOUT_S)
            nodes[leader].start()
            eventually(lambda: in_sync(admin, "t") == [set(NODES)] * 3, timeout_s=TIMEOUT_S)
        producer.until_acknowledged(50)
    assert led == {True, False}, "a genuine controller and one of Ottla's have been active"
    assert producer.failed == []
    values = {value for _, value in producer.acknowledged}
    assert values <= set(read_all(bootstrap, "t", len(values), timeout_s=TIMEOUT_S))
    for node in nodes.values():
        controller = node.properties["listeners"].rpartition("//")[2]
        with pytest.raises((ClosedError, ConnectionError)), RawConnection(controller, timeout_s=10) as stranger:
            stranger.ask(DescribeQuorumRequest(topics=[]), 2)
