"""Processes of the demo, which are killed and started again."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ottla.connect.errors import ConnectError

_LAST_LINES: Final = 12


class DemoError(ConnectError):
    """The demo cannot go on, or what came out is wrong."""


class Child:
    """A program in a process group of its own, with what it says in a file.

    user: whose process it is, if not this one's.
    """

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, name: str, command: Sequence[str], log: Path, *, user: str | None = None) -> None:
        self.name, self.log = name, log
        self._command, self._user = list(command), user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is not ready yet."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C on the terminal is handled here
                **owned_by(self._user),
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself, or was never started."""
        return self._process is None or self._process.poll() is not None

    def check(self) -> None:
        """Raise DemoError with its last words if it has ended."""
        if self.ended:
            code = None if self._process is None else self._process.returncode
            raise DemoError(f"{self.name} has ended with code {code}; the end of {self.log}:\n{self.last_words()}")

    def kill(self) -> None:
        """End all of its group at once, by SIGKILL. Does nothing if it was not started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # nobody of the group is left
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self, *, within_s: float = 20.0) -> None:
        """Ask it to end, and kill it if it has not by then. Does nothing if it does not run."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)
        self.kill()

    def last_words(self) -> str:
        """The end of what it has said."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        except OSError:
            return ""


def owned_by(user: str | None) -> dict[str, Any]:
    """Arguments of `subprocess` that make a process a user's; none: this one's."""
    if user is None:
        return {}
    import pwd

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens at."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
