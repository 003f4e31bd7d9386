"""`ottla cluster start` as a process: a cluster by one command, which outlives a broker and goes on where it was."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine39 import kafka39_libs
from tests.support.probe import free_port, free_ports_in_a_row

from ottla.admin import Admin, ClientError

OTTLA = Path(sys.executable).with_name("ottla")


class Started:
    """The command, and what it has said so far."""

    def __init__(self, directory: Path, port: int, *more: str) -> None:
        arguments = ["--dir", str(directory), "--port", str(port), "--controller-port", str(port + 3), *more]
        self.output = directory.with_suffix(".out")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([OTTLA, "cluster", "start", *arguments], stderr=output)

    def said(self) -> str:
        return self.output.read_text()

    def pid(self, broker: int) -> int:
        found = re.search(rf"broker {broker} is process (\d+)", self.said())
        assert found is not None
        return int(found[1])


@contextmanager
def started(directory: Path, port: int, *more: str) -> Iterator[Started]:
    running = Started(directory, port, *more)
    try:
        eventually(lambda: "ready: " in running.said() or running.process.poll() is not None, timeout_s=90)
        yield running
    finally:
        running.process.send_signal(signal.SIGINT)
        running.process.wait(90)


def produce(bootstrap: str, value: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce("orders", value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]


def in_sync(admin: AdminClient, topic: str) -> int:
    """How many replicas are in sync; 0 where a broker does not know yet."""
    try:
        return len(admin.list_topics(topic, 10).topics[topic].partitions[0].isrs)
    except KafkaException:
        return 0


def voters_are_in_the_log(bootstrap: str) -> bool:
    """Raise `kraft.version`, which the settings of the first start leave at 0; once every voter has reported itself."""
    with Admin(bootstrap) as admin:
        try:
            admin.update_features({"kraft.version": 1})
        except ClientError:
            return False
    return kraft_version(bootstrap) == 1


def kraft_version(bootstrap: str) -> int:
    with Admin(bootstrap) as admin:
        return admin.describe_features()["kraft.version"].level


@pytest.mark.timeout(300)
def test_a_cluster_by_one_command(tmp_path: Path) -> None:
    port = free_ports_in_a_row(6)
    bootstrap = ",".join(f"127.0.0.1:{each}" for each in range(port, port + 3))
    with started(tmp_path / "c", port) as running:
        assert f"ready: 3 brokers at {bootstrap}, controllers 1, 2, 3" in running.said()
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
        assert len(admin.list_topics("orders", 60).topics["orders"].partitions[0].replicas) == 3
        produce(bootstrap, "one")
        eventually(lambda: voters_are_in_the_log(bootstrap), timeout_s=60)
        os.kill(running.pid(1), signal.SIGKILL)
        eventually(lambda: "broker 1 was killed by signal 9; 2 brokers left (log: " in running.said())
        produce(bootstrap, "two")
        brokers = [running.pid(broker) for broker in (1, 2, 3)]
    assert running.process.returncode == 130
    for pid in brokers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with started(tmp_path / "c", port, "--brokers", "2") as running:
        assert running.process.wait(60) == 1
        assert "began with 3 controllers: --brokers 3" in running.said()
    with started(tmp_path / "c", port) as running:
        assert "ready" in running.said()
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        eventually(lambda: in_sync(admin, "orders") == 3, timeout_s=60)
        assert list(admin.list_topics(timeout=60).topics) == ["orders"]
        eventually(lambda: kraft_version(bootstrap) == 1, timeout_s=60)
        produce(bootstrap, "three")


@pytest.mark.soak
def test_a_cluster_with_zookeeper(tmp_path: Path) -> None:
    port = free_ports_in_a_row(2)
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    more = ["--brokers", "2", "--home", str(kafka39_libs()), "--zookeeper-port", str(free_port())]
    with started(tmp_path / "c", port, "--with-zookeeper", *more) as running:
        assert f"ready: 2 brokers at {bootstrap}, ZooKeeper at 127.0.0.1:" in running.said()
        produce(bootstrap, "one")
    with started(tmp_path / "c", port, *more) as running:
        assert f"ready: 2 brokers at {bootstrap}, ZooKeeper at 127.0.0.1:" in running.said()
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        assert list(admin.list_topics(timeout=60).topics) == ["orders"]


def test_says_why_it_cannot_start(tmp_path: Path) -> None:
    port = free_ports_in_a_row(6)
    with socket.create_server(("127.0.0.1", port + 1)), started(tmp_path / "taken", port) as running:
        assert running.process.wait(60) == 1
        assert f"127.0.0.1:{port + 1} cannot be had for a broker: address already in use" in running.said()
    one = ["--brokers", "1", "--override"]
    with started(tmp_path / "wrong", free_ports_in_a_row(6), *one, "num.partitions=many") as running:
        assert running.process.wait(60) == 1
        assert "num.partitions" in running.said()
    with started(tmp_path / "usage", free_ports_in_a_row(6), *one, "num.partitions") as running:
        assert running.process.wait(60) == 2
        assert "'num.partitions' is not KEY=VALUE" in running.said()
