"""Workers of connectors for tests: inside the test's process, or processes of their own, which can be killed anywhere.

with Broker() as broker, ConnectProcess(broker.bootstrap) as worker:
    worker.put("ticks", {"connector.class": "tests.ticks.Ticks", "topic": "t"})
    worker.wait("ticks", "RUNNING")
    worker.kill()       # nothing is flushed, no transaction ended, no peer notified
    worker.start()      # then compare the topic or the target with the expected content
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from ottla.connect.rest.client import Access, RestError, ask
from ottla.connect.rest.server import Server
from ottla.processes import ottla_command

_TIMEOUT_S: Final = 60.0

TEST_SETTINGS: Final[Mapping[str, str]] = {
    "listeners": "http://127.0.0.1:0",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.flush.interval.ms": "200",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "value.converter.schemas.enable": "false",
    "key.converter.schemas.enable": "false",
    "plugin.modules": "*",
    "file.connectors.allowed.paths": "/",
    "http.allowed.targets": "127.0.0.0/8,::1",
    "config.providers": "env,file",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}
"""What differs from `ottla connect serve` unless `settings` say otherwise."""


class _Worker:
    """A worker at some address, with the settings of a test."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        self.settings = {**TEST_SETTINGS, "bootstrap.servers": bootstrap, **(settings or {})}
        self.access: Access | None = None
        """How requests log in, where the worker asks for that."""

    @property
    def url(self) -> str:
        """Where its REST API is."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start, and return once it has read its state."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop cleanly. Does nothing when not running."""
        raise NotImplementedError

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the REST API; its answer from JSON. Raises RestError."""
        return ask(self.url, method, path, body, within_s=_TIMEOUT_S, access=self.access)

    def put(self, name: str, config: Mapping[str, str]) -> Any:
        """Create or change a connector, waiting while the workers are about to find together."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self.request("PUT", f"/connectors/{quote(name, safe='')}/config", dict(config))
            except RestError as refused:
                if refused.status != 409 or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def wait(self, name: str, state: str, *, tasks: int = 1, timeout_s: float = _TIMEOUT_S) -> Any:
        """Return the status once so many tasks of a connector, and no others, are in a state. Raises AssertionError."""
        deadline = time.monotonic() + timeout_s
        status: Any = None
        while time.monotonic() < deadline:
            try:
                status = self.request("GET", f"/connectors/{quote(name, safe='')}/status")
            except RestError as refused:
                status = refused.body
            else:
                if len(status["tasks"]) == tasks and all(each["state"] == state for each in status["tasks"]):
                    return status
            time.sleep(0.05)
        raise AssertionError(f"{name} has not {tasks} tasks {state} within {timeout_s:.0f} s: {status}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ConnectWorker(_Worker):
    """One worker inside this process, for `with`, or started and stopped by hand; it can be started again.

    bootstrap: the brokers. settings: a worker's, by Kafka Connect's names, over `TEST_SETTINGS`.
    """

    server: Server | None = None

    @property
    def url(self) -> str:
        """Where its REST API is."""
        assert self.server is not None, "the worker does not run"
        return self.server.url

    def start(self) -> Self:
        """Start, and return once it has read its state."""
        assert self.server is None, "the worker runs already"
        server = Server(self.settings)
        server.start()
        self.server = server
        return self

    def stop(self) -> None:
        """Stop cleanly. Does nothing when not running."""
        server, self.server = self.server, None
        if server is not None:
            server.stop()


class ConnectProcess(_Worker):
    """One worker in a process of its own: `ottla connect serve`. Keeps its port when it is started again.

    bootstrap: the brokers. settings: a worker's, by Kafka Connect's names, over `TEST_SETTINGS`. path: directories
    from which
    connectors are imported.
    """

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None, *, path: str = "") -> None:
        super().__init__(bootstrap, settings)
        # bound and silent as long as this object lives: while the worker is down, no connection gets its port
        place = socket.socket()
        weakref.finalize(self, place.close)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        self._port = place.getsockname()[1]
        self.settings["listeners"] = f"http://127.0.0.1:{self._port}"
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        descriptor, name = tempfile.mkstemp(prefix="ottla-connect-", suffix=".log")
        os.close(descriptor)
        self._log = Path(name)
        weakref.finalize(self, self._log.unlink, missing_ok=True)

    @property
    def url(self) -> str:
        """Where its REST API is."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def output(self) -> str:
        """All that it has logged, in all its lives."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> Self:
        """Start, and return once it answers."""
        command = ottla_command("connect", "serve", overrides=self.settings)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [self._path, *sys.path]))}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self.request("GET", "/health")
            except (OSError, RestError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the worker does not start:\n{self.output}") from None
                time.sleep(0.05)
            else:
                return self

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None, "the worker does not run"
        return self._process.pid

    def kill(self) -> None:
        """End it at once, by SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it cleanly, by SIGTERM. Does nothing when not running."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        assert process is not None, "the worker does not run"
        process.send_signal(signal_number)
        try:
            process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the worker does not stop:\n{self.output}") from None
