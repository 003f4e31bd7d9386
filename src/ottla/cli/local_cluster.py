"""ZooKeeper and several brokers on this machine, each a process of its own."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.cli.exits import CommandFailed
from ottla.cli.output import note
from ottla.cli.zookeeper_server import ZooKeeperProcess

HOST: Final = "127.0.0.1"
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.05
DEFAULTS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.max.retries": "1",
    "controlled.shutdown.retry.backoff.ms": "500",
}
"""Shorter than a broker's own: on one machine nothing but a kill takes long, and others should take over soon. When all
stop, the last ones find nobody to hand over to, and need not try for long."""


class BrokerProcess:
    """One `ottla serve`, with its data and its log in a directory of its own."""

    def __init__(self, number: int, port: int, directory: Path, settings: Mapping[str, str], log_level: str) -> None:
        self.number = number
        self.port = port
        self.log_file = directory / "broker.log"
        self._log_level = log_level
        self._settings = {
            **settings,
            "node.id": str(number),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(directory / "data"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; it is not ready yet."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        overrides = [part for name, value in self._settings.items() for part in ("--override", f"{name}={value}")]
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.main", "serve", "--log-level", self._log_level, *overrides],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C on the terminal is handled here
            )

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        """Have it hand over and end; kill it if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            note(f"broker {self.number} does not stop, it is killed")
            self.kill()

    def kill(self) -> None:
        """End it without a word to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-3:])
        except OSError:
            return ""


class LocalCluster:
    """Brokers 1, 2, 3, ... and, unless there is one, ZooKeeper. Inside `with`, all of them run."""

    def __init__(
        self,
        ports: Iterable[int],
        directory: Path,
        settings: Mapping[str, str],
        *,
        racks: Sequence[str] = (),
        server: ZooKeeperProcess | None,
        connect: str,
        log_level: str = "info",
    ) -> None:
        """`racks` are those of the first, the second, ... broker; `server` is to be started and stopped as well,
        `connect` is `zookeeper.connect`.

        Topics get three replicas, two of which have to have a record (fewer brokers, fewer replicas), unless `settings`
        say otherwise.
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
            "zookeeper.connect": connect,
        }
        self.server = server
        self.brokers = {
            number: BrokerProcess(
                number, port, directory / f"broker-{number}", common | in_racks.get(number, {}), log_level
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        for broker in self.brokers.values():
            _check_free(broker.port)
        if self.server is not None:
            self.server.start()
        for broker in self.brokers.values():
            broker.start()
        self._wait_until_ready()

    def _stop(self) -> None:
        for broker in self.brokers.values():  # one after the other: each hands over to those that are left
            broker.stop()
        if self.server is not None:
            self.server.stop()

    def _wait_until_ready(self) -> None:
        """Until every broker is named by the first one."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        first = self.brokers[1]
        admin = AdminClient({"bootstrap.servers": first.address, "log_level": 0})
        deadline = time.monotonic() + READY_SECONDS
        while True:
            for broker in self.brokers.values():
                code = broker.ended()
                if code is not None:
                    raise CommandFailed(
                        f"broker {broker.number} ended with exit code {code} at its start (log: {broker.log_file})\n"
                        f"{broker.last_lines()}"
                    )
            with contextlib.suppress(KafkaException):
                if self.brokers.keys() <= admin.list_topics(timeout=1).brokers.keys():
                    return
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"the brokers have not found each other within {READY_SECONDS:.0f} s; see {first.log_file}"
                )
            time.sleep(LOOK_SECONDS)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise CommandFailed(f"{HOST}:{port} cannot be had for a broker: {reason}; --port takes another") from None
