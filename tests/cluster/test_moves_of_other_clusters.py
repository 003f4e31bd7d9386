"""Clusters that move from ZooKeeper with logins and TLS everywhere, and as a broker per core; and those that do not
yet, since a genuine broker, or a controller without the switch, is in them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.support.broker_process import BrokerFailedError
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.genuine_quorum import addresses
from tests.support.mixed_cluster import KAFKA, MixedCluster
from tests.support.moving_cluster import (
    COMMITTED,
    FROZEN,
    LEFT,
    TIMEOUT_S,
    TOPIC,
    UnformattedController,
    at,
    combined,
    controllers_apart,
    load,
    under,
    until_moved,
)
from tests.support.ottla_cluster import OttlaCluster
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.secure_zookeeper import SecureZooKeeper
from tests.support.steady_producer import SteadyProducer
from tests.support.tool_server import kafka_tool
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer
from tests.wire.test_cores import free_ports

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{_PLAIN} username="node" password="between" user_node="between";'
PROTOCOLS = "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:SASL_SSL"


def test_brokers_and_controllers_log_in_over_tls_and_zookeeper_is_protected(tmp_path: Path) -> None:
    authority = Authority("brokers")
    ca = authority.write(tmp_path / "brokers-ca.pem")
    (tmp_path / "zookeeper").mkdir()
    with SecureZooKeeper(tmp_path / "zookeeper", Authority("keepers")) as zookeeper:
        cluster = OttlaCluster(f"{zookeeper.secure_connect}/{uuid4()}")
        for number, broker in cluster.brokers.items():
            listeners = f"PLAINTEXT://{broker.bootstrap},BROKERS://127.0.0.1:{free_port()}"
            broker.properties = {
                **zookeeper.settings(),
                **broker.properties,
                "listeners": listeners,
                "inter.broker.listener.name": "BROKERS",
                "listener.security.protocol.map": PROTOCOLS,
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.brokers.plain.sasl.jaas.config": JAAS,
                "listener.name.controller.plain.sasl.jaas.config": JAAS,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(authority.issue(f"node-{number}").write_pem(tmp_path / f"{number}.pem")),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(ca),
            }
        quorum = addresses(*cluster.brokers)
        with cluster, load(cluster) as producer:
            for number, broker in cluster.brokers.items():
                listeners = f"{broker.properties['listeners']},CONTROLLER://{quorum[number].endpoint}"
                broker.properties |= combined(broker, quorum, number)
                broker.properties |= {"listeners": listeners, "listener.security.protocol.map": PROTOCOLS}
                began = time.monotonic()
                broker.restart()
            until_moved(*cluster.brokers.values())
            cluster.create("later")
            print(f"with logins and TLS: longest wait of a record {producer.longest_wait_s(began):.2f} s")
            for topic in (TOPIC, COMMITTED, "later"):
                cluster.until_in_sync(topic, *cluster.brokers)


def test_a_genuine_broker_is_waited_for(zookeeper: ZooKeeperServer) -> None:
    cluster = MixedCluster(f"{zookeeper.connect}/{uuid4()}", ottlas=2)
    ours = [broker for broker in cluster.brokers.values() if isinstance(broker, OttlaProcess)]
    with ExitStack() as stack:
        for broker in cluster.brokers.values():
            stack.callback(broker.kill)
            broker.start(wait=False)
        for broker in cluster.brokers.values():
            broker.wait_until_ready()
        cluster.create(TOPIC, [[1, 2], [2, 3]])
        quorum = addresses(2, 3)
        with SteadyProducer(cluster.bootstrap, TOPIC, **{"enable.idempotence": True}) as producer:
            for broker, number in zip(ours, (2, 3), strict=True):
                producer.until_acknowledged(20)
                broker.properties |= combined(broker, quorum, number)
                broker.restart()
            at(f"broker {KAFKA} was started without the settings of the quorum", *ours)
            producer.until_acknowledged(100)
        assert not any(FROZEN in broker.log_text() for broker in ours)
        acknowledged = [value for _, value in producer.acknowledged]
        assert sorted(read_all(cluster.bootstrap, TOPIC, len(acknowledged))) == sorted(acknowledged)


def test_a_controller_without_the_switch_stops_the_move_and_begins_no_cluster(zookeeper: ZooKeeperServer) -> None:
    quorum = addresses(11, 12, 13)
    cluster = OttlaCluster(f"{zookeeper.connect}/{uuid4()}")
    with ExitStack() as stack, cluster, load(cluster) as producer:
        controllers = controllers_apart(stack, cluster, quorum)
        forgetful, given = controllers[0], dict(controllers[0].properties)
        forgetful.stop()
        for name in ("zookeeper.connect", "zookeeper.metadata.migration.enable"):
            del forgetful.properties[name]
        with pytest.raises(BrokerFailedError, match="waits for the metadata of a cluster on ZooKeeper"):
            forgetful.start()
        for broker in cluster.brokers.values():
            broker.properties |= under(quorum)
            broker.restart()
        line = "waits: controller 11 does not run, or was started without zookeeper.metadata.migration.enable"
        at(line, *controllers)
        at_leader = ("--bootstrap-controller", ",".join(own.endpoint for own in quorum.values()))
        shown = kafka_tool("MetadataQuorumCommand", *at_leader, "describe", "--status")
        assert "LeaderId:" in shown.stdout, shown
        producer.until_acknowledged(50)
        assert not any(FROZEN in node.log_text() for node in controllers)
        forgetful.properties = given
        forgetful.start()
        until_moved(*cluster.brokers.values(), *controllers)
        for topic in (TOPIC, COMMITTED):
            cluster.until_in_sync(topic, *cluster.brokers)


class Unit:
    """Two brokers, nodes 1 and 2, run by `ottla serve --cores 2`."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.settings = settings
        self.log = directory / "unit.log"

    @contextmanager
    def running(self) -> Iterator[None]:
        begins = self.log.stat().st_size if self.log.exists() else 0
        command = [str(Path(sys.executable).with_name("ottla")), "serve", "--allow-insecure", "--cores", "2"]
        command += [word for name, value in self.settings.items() for word in ("--override", f"{name}={value}")]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(
                lambda: "ready: rack box" in self.log.read_text()[begins:] or process.poll() is not None, timeout_s=60
            )
            assert process.poll() is None, self.log.read_text()[begins:]
            yield
        finally:
            children = psutil.Process(process.pid).children()
            process.terminate()
            process.wait(30)
            for each in children:
                if each.is_running():
                    each.kill()


def test_a_unit_of_brokers_moves_to_controllers_elsewhere(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    quorum = addresses(11, 12, 13)
    moving = {"zookeeper.connect": f"{zookeeper.connect}/{uuid4()}"}
    port = free_ports(3) + 1  # the unit's, and those of its brokers behind it
    unit = Unit(
        tmp_path,
        {
            **moving,
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(tmp_path / "data"),
            "broker.rack": "box",
            "offsets.topic.replication.factor": "2",
        },
    )
    bootstrap = f"127.0.0.1:{port}"
    with unit.running():
        records = SteadyProducer(bootstrap, TOPIC, **{"enable.idempotence": True})
        with records:
            records.until_acknowledged(20)
    with ExitStack() as stack:
        for own in quorum.values():
            node = UnformattedController(own, quorum, broker=False, properties={**under(quorum), **moving})
            stack.callback(node.kill)
            node.start(wait=False)
        unit.settings |= under(quorum)
        with unit.running(), SteadyProducer(bootstrap, TOPIC, **{"enable.idempotence": True}) as producer:
            eventually(lambda: unit.log.read_text().count(LEFT) == 2, timeout_s=TIMEOUT_S)
            producer.until_acknowledged(50)
        acknowledged = [value for _, value in (*records.acknowledged, *producer.acknowledged)]
        with unit.running():  # with the same settings
            assert sorted(read_all(bootstrap, TOPIC, len(acknowledged))) == sorted(acknowledged)
