"""Controllers that speak SASL_SSL with each other: votes, fetches and what brokers send them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.genuine_quorum import addresses, static_voters
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ClosedError, RawConnection

CLUSTER_ID: Final = "b3R0bGFfcXVvcnVtXzAwMQ"
NODES: Final = (1, 2)
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS: Final = f'{_PLAIN} username="node" password="between" user_node="between";'


class SecureNode(OttlaProcess):
    """A node of both roles, whose directory is formatted before it starts."""

    def prepare(self) -> None:
        if (self.log_dir / "meta.properties").exists():
            return
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = [sys.executable, "-m", "ottla.cli.main", "storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, SecureNode]]:
    authority = Authority("quorum")
    ca = authority.write(tmp_path / "ca.pem")
    quorum = addresses(*NODES)
    made = {}
    for number in NODES:
        node = SecureNode(tmp_path / str(number))
        listeners = f"PLAINTEXT://{node.bootstrap},CONTROLLER://{quorum[number].endpoint}"
        node.properties |= {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": static_voters(quorum),
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            "log.dirs": str(node.log_dir),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue(f"node-{number}").write_pem(tmp_path / f"{number}.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
        }
        made[number] = node
    try:
        for node in made.values():
            node.start(wait=False)
        for node in made.values():
            node.wait_until_ready()
        yield made
    finally:
        for node in made.values():
            node.kill()


def test_controllers_speak_with_each_other_over_tls_with_passwords(nodes: dict[int, SecureNode]) -> None:
    admin = AdminClient({"bootstrap.servers": ",".join(node.bootstrap for node in nodes.values()), "log_level": 0})
    eventually(lambda: len(admin.list_topics(timeout=10).brokers) == len(NODES))
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(30)
    eventually(
        lambda: {len(part.isrs) for part in admin.list_topics("t", timeout=10).topics["t"].partitions.values()} == {2}
    )
    controller = nodes[1].properties["listeners"].rpartition("//")[2]
    with pytest.raises((ClosedError, ConnectionError)), RawConnection(controller, timeout_s=10) as stranger:
        stranger.ask(DescribeQuorumRequest(topics=[]), 2)
