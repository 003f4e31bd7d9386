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
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine39 import kafka39_libs
from tests.support.probe import free_port

OTTLA = Path(sys.executable).with_name("ottla")


def two_free_ports() -> int:
    """The first of two ports in a row."""
    while True:
        port = free_port()
        with socket.socket() as after:
            try:
                after.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class Started:
    """The command, and what it has said so far."""

    def __init__(self, directory: Path, port: int, *more: str) -> None:
        arguments = ["--brokers", "2", "--dir", str(directory), "--port", str(port), "--home", str(kafka39_libs())]
        arguments += ["--zookeeper-port", str(free_port()), *more]
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
        eventually(lambda: "ready: 2 brokers" in running.said() or running.process.poll() is not None, timeout_s=90)
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


@pytest.mark.timeout(300)
def test_a_cluster_by_one_command(tmp_path: Path) -> None:
    port = two_free_ports()
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    with started(tmp_path / "c", port, "--override", "min.insync.replicas=1") as running:
        assert f"ready: 2 brokers at {bootstrap}, ZooKeeper at 127.0.0.1:" in running.said()
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
        assert len(admin.list_topics("orders", 60).topics["orders"].partitions[0].isrs) == 2
        produce(bootstrap, "one")
        os.kill(running.pid(1), signal.SIGKILL)
        eventually(lambda: "broker 1 was killed by signal 9; 1 broker left (log: " in running.said())
        produce(bootstrap, "two")
        brokers = [running.pid(1), running.pid(2)]
    assert running.process.returncode == 130
    for pid in brokers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with started(tmp_path / "c", port, "--override", "min.insync.replicas=1") as running:
        assert "ready" in running.said()
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        assert list(admin.list_topics(timeout=60).topics) == ["orders"]
        eventually(lambda: len(admin.list_topics("orders", 60).topics["orders"].partitions[0].isrs) == 2, timeout_s=60)
        produce(bootstrap, "three")


def test_says_why_it_cannot_start(tmp_path: Path) -> None:
    port = two_free_ports()
    with socket.create_server(("127.0.0.1", port + 1)), started(tmp_path / "taken", port) as running:
        assert running.process.wait(60) == 1
        assert f"127.0.0.1:{port + 1} cannot be had for a broker: address already in use" in running.said()
    with started(tmp_path / "wrong", two_free_ports(), "--override", "num.partitions=many") as running:
        assert running.process.wait(60) == 1
        assert "ended with exit code 1 at its start (log: " in running.said()
        assert "Invalid value many for configuration num.partitions: Not a number of type INT" in running.said()
    with started(tmp_path / "usage", two_free_ports(), "--override", "num.partitions") as running:
        assert running.process.wait(60) == 2
        assert "'num.partitions' is not KEY=VALUE" in running.said()
