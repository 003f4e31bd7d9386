"""Several brokers on this machine, each a process of its own, with controllers among them or with ZooKeeper."""

import gc
import importlib
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Self

from ottla.cli.cluster.own_controllers import LISTENER, directory_of, format_new, quorum_settings
from ottla.cli.serve import serve
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.cli.zookeeper.server import ZooKeeperProcess
from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.client.errors import ClientError
from ottla.processes import ChildProcess, Fork, has_one_thread, ottla_command
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.waiting import tries

HOST: Final = "127.0.0.1"
READY_S: Final = 60.0
STOP_S: Final = 30.0
POLL_INTERVAL_S: Final = 0.05
IMPORTED_BY_BROKERS: Final = (
    "ottla.broker_process",
    "ottla.cli.terminal.log_lines",
    "ottla.metadata.lone_broker",
    "ottla.metadata.quorum_metadata",
    "ottla.server.cluster_member",
    "ottla.server.controller_process",
    "ottla.server.controller_server",
    "ottla.server.forwarding",
    "ottla.server.quorum_membership",
    "ottla.server.quorum_nodes",
)
"""Modules that brokers with controllers of their own import one after the other."""
DEFAULTS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "broker.session.timeout.ms": "6000",
    "controlled.shutdown.max.retries": "1",
    "controlled.shutdown.retry.backoff.ms": "500",
}
"""Shorter than a broker's own: on one machine only a kill takes long, and takeover should be quick. When all brokers
stop, the last ones find no broker to hand over to, and need not try for long."""


class BrokerProcess(ChildProcess):
    """One `ottla serve`, with its data and its log in a directory of its own."""

    def __init__(
        self,
        number: int,
        port: int,
        directory: Path,
        settings: Mapping[str, str],
        log_level: str,
        controller_port: int | None = None,
    ) -> None:
        self.number = number
        self.ports = [port] if controller_port is None else [port, controller_port]
        listeners = f"PLAINTEXT://{HOST}:{port}"
        self.settings = {
            **settings,
            "node.id": str(number),
            "listeners": listeners if controller_port is None else f"{listeners},{LISTENER}://{HOST}:{controller_port}",
            "log.dirs": str(directory / "data"),
        }
        command = ottla_command("serve", "--log-level", log_level, overrides=self.settings)
        self._arguments = command[command.index("serve") + 1 :]
        super().__init__(f"broker {number}", command, directory / "broker.log")

    def _spawn(self, output: BinaryIO) -> "subprocess.Popen[bytes] | Fork":
        """Brokers that start together are copies of this process, which imports once what they all need."""
        if not has_one_thread():
            return super()._spawn(output)
        for name in IMPORTED_BY_BROKERS:
            importlib.import_module(name)
        gc.freeze()  # a collection would copy pages that are shared
        return Fork(lambda: serve(self._arguments), output)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports[0]}"


class LocalCluster:
    """Brokers 1, 2, 3, ...; the first are its controllers, or ZooKeeper coordinates. Inside `with`, all of them run."""

    def __init__(
        self,
        ports: Iterable[int],
        directory: Path,
        settings: Mapping[str, str],
        *,
        racks: Sequence[str] = (),
        controllers: Mapping[int, int] = MappingProxyType({}),
        server: ZooKeeperProcess | None = None,
        connect: str | None = None,
        log_level: str = "info",
    ) -> None:
        """`racks` are the racks of the first, the second, ... broker; `controllers` are the ports of those that are
        controllers, by broker. Without any, `connect` is `zookeeper.connect`; `server` is started and stopped as well.

        Topics get three replicas, two of which must have a record before it is acknowledged (fewer brokers, fewer
        replicas),
        unless `settings` name other values.
        """
        numbered = list(enumerate(ports, 1))
        in_racks = {number: {"broker.rack": rack} for number, rack in enumerate(racks, 1)}
        replicas = str(min(3, len(numbered)))
        common = {
            **DEFAULTS,
            "default.replication.factor": replicas,
            "min.insync.replicas": str(min(2, len(numbered))),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            **settings,
        }
        self.server = server
        self._has_controllers = bool(controllers)

        def coordination(number: int) -> dict[str, str]:
            return quorum_settings(number, HOST, controllers) if connect is None else {"zookeeper.connect": connect}

        self.brokers = {
            number: BrokerProcess(
                number,
                port,
                directory_of(directory, number, controllers),
                common | coordination(number) | in_racks.get(number, {}),
                log_level,
                controllers.get(number),
            )
            for number, port in numbered
        }

    @property
    def bootstrap(self) -> str:
        """All brokers, for `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.brokers.values())

    def __enter__(self) -> Self:
        """Start everything and wait until every broker is known. Raises `CommandFailed`."""
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        for broker in self.brokers.values():
            for port in broker.ports:
                _check_free(port)
        if self._has_controllers:
            format_new(broker.settings for broker in self.brokers.values())
        if self.server is not None:
            self.server.start()
        for broker in self.brokers.values():
            broker.start()
        self._wait_until_ready()

    def _stop(self) -> None:
        for broker in self.brokers.values():  # one after the other: each hands over to those that are left
            if not broker.ended and not broker.stop(within_s=STOP_S):
                note(f"{broker.name} did not stop, it was killed")
        if self.server is not None:
            self.server.stop()

    def _wait_until_ready(self) -> None:
        """Until every broker is named by the first one."""
        first = self.brokers[1]
        for _ in tries(READY_S, every_s=POLL_INTERVAL_S):
            for broker in self.brokers.values():
                if broker.ended:
                    raise CommandFailed(
                        f"{broker.name} ended with exit code {broker.exit_code} at its start (log: {broker.log})\n"
                        f"{broker.last_words()}"
                    )
            if self.brokers.keys() <= _brokers_known_at(first.ports[0]):
                return
        raise CommandFailed(f"the brokers have not found each other within {READY_S:.0f} s; see {first.log}")


def _brokers_known_at(port: int) -> set[int]:
    """The ids of the brokers that are known there; none if that broker does not answer yet."""
    try:
        with Connection(Address(HOST, port), client_id="ottla-cluster", timeout_s=1.0) as connection:
            answer = connection.ask(MetadataRequest(topics=[]))
    except ClientError:
        return set()
    return {broker.node_id for broker in answer.brokers}


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise CommandFailed(f"{HOST}:{port} cannot be had for a broker: {reason}; --port takes another") from None
