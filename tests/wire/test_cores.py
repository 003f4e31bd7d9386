"""`ottla serve --cores`: several brokers as one unit, with a controller of their own."""

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.freezing import freeze
from tests.support.probe import free_port

from ottla.cli.brokers.client import Connection as Connected
from ottla.cli.cluster.watch import ClusterLook
from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.protocol.messages.metadata import MetadataRequest

PARTITIONS = 4
OWN = ("broker.rack=box", "broker.session.timeout.ms=3000", "group.initial.rebalance.delay.ms=0")


def free_ports(count: int) -> int:
    """The first of several free ports in a row."""
    while True:
        first = free_port()
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            return first


class Unit:
    """Two brokers, nodes 2 and 3, and controller 1. Their ports follow the unit's, the controller's is before it."""

    def __init__(self, directory: Path, protocol: str = "PLAINTEXT", *settings: str) -> None:
        self.port = free_ports(4) + 1
        self.log = directory / "unit.log"
        ottla = str(Path(sys.executable).with_name("ottla"))
        overrides = (f"log.dirs={directory}/data", f"listeners={protocol}://127.0.0.1:{self.port}", *OWN, *settings)
        self._command = [ottla, "serve", "--cores", "2", *(word for text in overrides for word in ("--override", text))]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        begins = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        children: list[psutil.Process] = []
        try:
            ready = "ready: rack box with controller 1, broker 2, broker 3"
            eventually(lambda: ready in self.log.read_text()[begins:] or process.poll() is not None)
            assert process.poll() is None, self.log.read_text()[begins:]
            children = psutil.Process(process.pid).children()
            yield process
        finally:
            process.kill()
            process.wait()
            for each in children:
                with suppress(psutil.NoSuchProcess):
                    each.kill()


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    return Unit(tmp_path)


def has_ended(process: psutil.Process) -> bool:
    """Also one that nobody has waited for."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def at_port(unit: "subprocess.Popen[bytes]", port: int) -> psutil.Process:
    """The process of the unit that has a port of its own."""
    return next(
        process
        for process in psutil.Process(unit.pid).children()
        if any(each.laddr.port == port and each.status == psutil.CONN_LISTEN for each in process.net_connections())
    )


def ask_anew(unit: Unit, times: int) -> None:
    """The unit's address answers each of so many new clients."""
    host, _, port = unit.bootstrap.partition(":")
    for _ in range(times):
        with closing(Connection(Address(host, int(port)), client_id="test", timeout_s=30)) as connection:
            assert connection.ask(MetadataRequest(topics=[])).brokers


def send(unit: Unit, text: str) -> None:
    producer = Producer({"bootstrap.servers": unit.bootstrap, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce("t", f"{text}-{partition}", partition=partition)
    assert producer.flush(60) == 0


def received(unit: Unit, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": unit.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[str] = []

    def has_all() -> bool:
        found.extend((each.value() or b"").decode() for each in consumer.consume(count, 1) if not each.error())
        return len(found) >= count

    eventually(has_all)
    consumer.close()
    return sorted(found)


def test_brokers_are_one_unit(unit: Unit) -> None:
    with unit.running() as process:
        admin = AdminClient({"bootstrap.servers": unit.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        described = admin.describe_cluster().result(30)
        assert {node.id: node.rack for node in described.nodes} == {2: "box", 3: "box"}
        topic = eventually(lambda: admin.list_topics(timeout=10).topics["t"])
        assert {each.leader for each in topic.partitions.values()} == {2, 3}, "each core has its share"
        send(unit, "first")
        with ClusterLook(Connected(unit.bootstrap)) as look:
            (machine,) = look.take().machines
        assert (machine.name, machine.brokers, machine.controllers) == ("127.0.0.1", (2, 3), (1,))

        victim = at_port(process, unit.port + 1)
        assert freeze(victim.pid)
        ask_anew(unit, times=8)
        victim.kill()
        ask_anew(unit, times=8)
        eventually(lambda: "ended with code -9; it is started again" in unit.log.read_text())
        eventually(lambda: len(psutil.Process(process.pid).children()) == 3)
        send(unit, "second")
        assert len(received(unit, 2 * PARTITIONS)) == 2 * PARTITIONS

        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert all(map(has_ended, children))


def test_the_units_address_has_the_listeners_tls(tmp_path: Path) -> None:
    authority = Authority()
    store, ca = authority.issue("broker").write_pem(tmp_path / "store.pem"), authority.write(tmp_path / "ca.pem")
    files = (f"ssl.keystore.location={store}", f"ssl.truststore.location={ca}")
    types = ("ssl.keystore.type=PEM", "ssl.truststore.type=PEM", "security.inter.broker.protocol=SSL")
    unit = Unit(tmp_path, "SSL", *files, *types)
    context = ssl.create_default_context(cafile=ca)
    settings = {"bootstrap.servers": unit.bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(ca)}
    with unit.running() as process:
        victim = at_port(process, unit.port + 1)
        for number in range(12):
            if number == 4:
                assert freeze(victim.pid)
            if number == 8:
                victim.kill()
            with (
                eventually(lambda: socket.create_connection(("127.0.0.1", unit.port), 30)) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
            ):
                assert secured.version() == "TLSv1.3"
        admin = AdminClient({**settings, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(30)

        def is_in_sync() -> bool:
            """False while the broker that answers does not know the topic, which the other one has created."""
            topic = admin.list_topics(timeout=10).topics.get("t")
            return topic is not None and [len(each.isrs) for each in topic.partitions.values()] == [2]

        eventually(is_in_sync)


@pytest.mark.soak
def test_a_unit_goes_on_with_its_data_and_leaves_nothing_behind(unit: Unit) -> None:
    with unit.running() as process:
        admin = AdminClient({"bootstrap.servers": unit.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        send(unit, "first")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with unit.running() as process:
        send(unit, "second")
        assert len(received(unit, 2 * PARTITIONS)) == 2 * PARTITIONS
        children = psutil.Process(process.pid).children()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: all(map(has_ended, children)))


def test_a_broker_that_cannot_start_ends_the_unit(unit: Unit) -> None:
    with socket.create_server(("127.0.0.1", unit.port + 2)):
        done = subprocess.run(unit._command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "broker 3 ended with code 1 before it served: all stop" in done.stderr
    assert "all processes have stopped" in done.stderr


def test_a_broker_of_another_cluster_ends_the_unit_at_once(unit: Unit) -> None:
    with unit.running() as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    directory = unit.log.parent / "data/core-0"
    properties = directory / "meta.properties"
    other = "4L6g3nShT-eMCtK--X86sw"
    properties.write_text(re.sub("cluster.id=.*", f"cluster.id={other}", properties.read_text()))
    done = subprocess.run(unit._command, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 1
    assert (
        f"{directory} belongs to the cluster {other}, and the controllers at 127.0.0.1:{unit.port - 1}" in done.stderr
    )
    assert "broker 2 ended with code 1 before it served: all stop" in done.stderr
