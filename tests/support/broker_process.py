"""A broker as a child process: started, watched, stopped by its own pid, restarted on the same directory."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.support.freezing import freeze, thaw
from tests.support.probe import free_port, knows_a_broker

_TAIL_LINES = 30


class BrokerFailedError(RuntimeError):
    """The broker ended, or did not become ready or stop in time; the message ends with its last log lines."""


def pinned(command: Sequence[str], cpus: Sequence[int]) -> list[str]:
    """The command, to run on these cores if there are any (Linux only)."""
    can = cpus and shutil.which("taskset")
    return ["taskset", "-c", ",".join(map(str, cpus)), *command] if can else [*command]


class BrokerProcess(ABC):
    """One broker, on 127.0.0.1 unless told otherwise, with its data under `directory`.

    As a context manager it starts on entry, and on exit stops and removes a directory that it made itself.
    """

    name = "broker"
    ready_timeout_s = 60.0
    poll_interval_s = 0.02

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        cpus: Sequence[int] | None = None,
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """Describe the broker; nothing is started.

        Args:
            directory: parent of the log directory and of the process's output; made and removed when None.
            properties: server properties by Kafka's names, over this class's own.
            port: of the client listener; a free one when None.
            cpus: pin the process to these cores (Linux only).
            environment: variables over those inherited.
            host: the address of its listener.
            prefix: words before its command line: a program that runs it somewhere else, in the same process.
        """
        self._owns_directory = directory is None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix=f"{self.name}-"))).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.properties = dict(properties or {})
        self._cpus = tuple(cpus or ())
        self.environment = dict(environment or {})
        self.host = host
        self._prefix = tuple(prefix)
        self._process: subprocess.Popen[bytes] | None = None
        self.spawned_at = 0.0
        """`time.perf_counter()` at which the process was last spawned."""

    @property
    def bootstrap(self) -> str:
        """`host:port`, as clients want it."""
        return f"{self.host}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """The log directory (`log.dirs`)."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """Everything the process has written to stdout and stderr, over all its starts."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            BrokerFailedError: the broker was never started or has been stopped.
        """
        if self._process is None:
            raise BrokerFailedError(f"{self.name} is not running")
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that runs the broker in the foreground."""

    def prepare(self) -> None:  # noqa: B027 - most brokers need no preparation
        """Called before every start: whatever must lie on disk beforehand."""

    def start(self, *, wait: bool = True) -> None:
        """Spawn the process and, unless told otherwise, wait until it answers.

        Raises:
            BrokerFailedError: already running, ended at once, or silent for `ready_timeout_s`.
        """
        if self._process is not None:
            raise BrokerFailedError(f"{self.name} is already running as {self._process.pid}")
        self.prepare()
        command = self.command()
        command = [*self._prefix, *pinned(command, self._cpus)]
        with self.log_file.open("ab") as output:
            self.spawned_at = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,  # a Ctrl-C on the terminal is ours to handle, not the broker's
            )
        atexit.register(self.kill)
        if wait:
            self.wait_until_ready()

    def answers(self) -> bool:
        """Whether the process does its work by now: here, answers Metadata with a broker in it."""
        return knows_a_broker(self.port, host=self.host)

    def wait_until_ready(self) -> None:
        """Wait until the process `answers`.

        Raises:
            BrokerFailedError: it ended, or stayed silent for `ready_timeout_s`.
        """
        deadline = time.monotonic() + self.ready_timeout_s
        while not self.answers():
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                self._forget()
                raise BrokerFailedError(f"{self.name} ended with exit code {code} at start\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailedError(
                    f"{self.name} gave no answer on {self.bootstrap} in {self.ready_timeout_s:.0f} s\n{self.log_tail()}"
                )
            time.sleep(self.poll_interval_s)

    def stop(self, *, timeout_s: float = 60.0) -> int:
        """Send SIGTERM, wait for the end, return the exit code (0 if it was not running).

        Raises:
            BrokerFailedError: still alive after `timeout_s`; it has been killed then.
        """
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # a test may have failed while it was paused
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            stacks = self._stacks()
            self.kill()
            raise BrokerFailedError(
                f"{self.name} did not stop within {timeout_s:.0f} s of SIGTERM\n{self.log_tail()}\n{stacks}"
            ) from None
        self._forget()
        return code

    def _stacks(self) -> str:
        """What the threads of a Java process do, which SIGQUIT has it print; empty for any other process."""
        if self._process is None or "java" not in Path(psutil.Process(self._process.pid).exe()).name:
            return ""
        known = len(self.log_text())
        self._process.send_signal(signal.SIGQUIT)
        time.sleep(1)
        return self.log_text()[known:]

    def kill(self) -> None:
        """Send SIGKILL and wait for the end; nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def pause(self) -> None:
        """Stop the process in its tracks (SIGSTOP): its connections stay, and nothing answers."""
        freeze(self.pid)

    def resume(self) -> None:
        """Let a paused process go on."""
        thaw(self.pid)

    def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) the broker and start it again on the same directory and port."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def is_alive(self) -> bool:
        """Whether the process runs at this moment."""
        return self._process is not None and self._process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory of the process and its children."""
        return sum(process.memory_info().rss for process in self._family())

    def cpu_seconds(self) -> float:
        """User and system time used so far by the process and its children, as the OS counts it."""
        total = 0.0
        for process in self._family():
            times = process.cpu_times()
            total += times.user + times.system
        return total

    def log_text(self) -> str:
        """What the process has written so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self) -> str:
        """The last lines the process wrote."""
        return "\n".join(self.log_text().splitlines()[-_TAIL_LINES:])

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self.remove()

    def remove(self) -> None:
        """Delete the directory if this object made it."""
        self.kill()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _family(self) -> list[psutil.Process]:
        leader = psutil.Process(self.pid)
        return [leader, *leader.children(recursive=True)]

    def _forget(self) -> None:
        self._process = None
        atexit.unregister(self.kill)
