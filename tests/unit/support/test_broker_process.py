"""The harness around a broker's process, with a small server in the broker's place."""

import signal
import sys
from pathlib import Path

import pytest
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.eventually import eventually
from tests.support.probe import free_port, knows_a_broker

# Answers any request with correlation id 7, no throttling, and as many brokers as its argument says.
_SERVER = """
import signal, socket, struct, sys, time
while time.process_time() < 0.05:
    pass
port, brokers, stubborn = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "stubborn"
signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else lambda *_: sys.exit(0))
if brokers < 0:
    sys.exit("no broker today")
print("listening", flush=True)
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(struct.pack(">iiii", 12, 7, 0, brokers))
"""


class SmallBroker(BrokerProcess):
    name = "small"
    ready_timeout_s = 0.7
    brokers = 1
    stubborn = False

    def command(self) -> list[str]:
        manner = "stubborn" if self.stubborn else "obedient"
        return [sys.executable, "-c", _SERVER, str(self.port), str(self.brokers), manner]


class SlowBroker(SmallBroker):
    ready_timeout_s = 10.0


def test_it_is_ready_on_entry_and_gone_on_exit() -> None:
    with SlowBroker() as broker:
        assert knows_a_broker(broker.port)
        assert broker.is_alive()
        assert broker.rss_bytes() > 1_000_000
        assert broker.cpu_seconds() > 0
        assert broker.log_text() == "listening\n"
        pid, directory = broker.pid, broker.directory
        broker.restart(kill=True)
        assert broker.pid != pid
        assert knows_a_broker(broker.port)
        assert broker.stop() == 0
        assert not knows_a_broker(broker.port)
        broker.start()
    assert not directory.exists()
    with pytest.raises(BrokerFailedError, match="not running"):
        _ = broker.pid


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with SlowBroker(tmp_path):
        pass
    assert (tmp_path / "broker.log").read_text() == "listening\n"


def test_a_broker_that_ends_at_once_says_why(tmp_path: Path) -> None:
    broker = SlowBroker(tmp_path)
    broker.brokers = -1
    with pytest.raises(BrokerFailedError, match=r"exit code 1 at start\nno broker today"):
        broker.start()
    assert not broker.is_alive()


def test_a_broker_that_lists_no_broker_is_not_ready(tmp_path: Path) -> None:
    broker = SmallBroker(tmp_path)
    broker.brokers = 0
    with pytest.raises(BrokerFailedError, match="gave no answer"):
        broker.start()
    assert not broker.is_alive()


def test_a_broker_deaf_to_sigterm_is_killed_and_told_of(tmp_path: Path) -> None:
    broker = SlowBroker(tmp_path)
    broker.stubborn = True
    broker.start()
    with pytest.raises(BrokerFailedError, match="did not stop"):
        broker.stop(timeout_s=0.2)
    assert not broker.is_alive()


def test_a_broker_that_dies_is_seen(tmp_path: Path) -> None:
    broker = SlowBroker(tmp_path)
    broker.start()
    broker._process.send_signal(signal.SIGKILL) if broker._process else pytest.fail("it does not run")
    eventually(lambda: not broker.is_alive())
    broker.kill()


def test_free_ports_can_be_bound() -> None:
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1
    assert all(20_000 <= port < 32_000 for port in ports)
