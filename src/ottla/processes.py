"""Child processes on this machine, which can be killed and started again, with their output kept."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, NoReturn

from ottla.waiting import tries

_LAST_LINES: Final = 12


class ChildProcess:
    """A program in a process group of its own, with its output in the file `log`, start after start.

    user: the user it runs as, if not this one.
    """

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, name: str, command: Sequence[str], log: Path, *, user: str | None = None) -> None:
        self.name, self.log = name, log
        self._command, self._user = list(command), user
        self._process: subprocess.Popen[bytes] | Fork | None = None

    def start(self) -> None:
        """Start it; it is not ready yet."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = self._spawn(output)

    def _spawn(self, output: BinaryIO) -> "subprocess.Popen[bytes] | Fork":
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C on the terminal is handled here
            **owned_by(self._user),
        )

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last start, minus the signal if one ended it; None while it runs, or before the first
        start.
        """
        return None if self._process is None else self._process.poll()

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself, or was never started."""
        return self._process is None or self._process.poll() is not None

    def obituary(self) -> str | None:
        """What became of it, with its last words; None while it runs."""
        if not self.ended:
            return None
        return f"{self.name} has ended with code {self.exit_code}; the end of {self.log}:\n{self.last_words()}"

    def kill(self) -> None:
        """End all of its group at once, by SIGKILL. Does nothing if it was not started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # the group has no processes left
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self, *, within_s: float = 20.0) -> bool:
        """Ask it to end, and kill it if it has not by then; gives whether it ended by itself. True if it did not
        run."""
        if self._process is None:
            return True
        by_itself = True
        if self._process.poll() is None:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                by_itself = False
        self.kill()
        return by_itself

    def last_words(self) -> str:
        """The end of its output."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        except OSError:
            return ""


class Fork:
    """A function that runs in a copy of this process, which has imported everything by then: a new interpreter would
    take ten times as long. Offers what `ChildProcess` uses of `Popen`. Only for a process with one thread.
    """

    def __init__(self, run: Callable[[], int], output: BinaryIO) -> None:
        """`run` returns the exit code. The copy is a process group of its own, and writes to `output` only."""
        self.returncode: int | None = None
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if not self.pid:
            _run_as_child(run, output)
        with contextlib.suppress(OSError):  # the copy may have done it, and may have ended
            os.setpgid(self.pid, self.pid)

    def poll(self) -> int | None:
        """The exit code, minus the signal if one ended it; None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; its exit code. Raises `TimeoutExpired`."""
        for _ in tries(math.inf if timeout is None else timeout, every_s=0.01):
            code = self.poll()
            if code is not None:
                return code
        raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)

    def send_signal(self, number: int) -> None:
        """Send a signal to it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _run_as_child(run: Callable[[], int], output: BinaryIO) -> NoReturn:
    """Runs as a new interpreter would run it, and ends without what its parent does at its end."""
    code = 1
    try:
        os.setpgid(0, 0)
        for number, handler in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            signal.signal(number, handler)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        code = run()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def has_one_thread() -> bool:
    """Whether this process has one thread, those of C libraries included; False where that cannot be found out."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


class Companion:
    """An `ottla` command that runs beside this process, and writes to its terminal; not for longer than this process,
    even if that is killed: it watches a pipe, which ends with this process (`--while-stdin-open`)."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command, "--while-stdin-open"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is not ready yet."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)

    def stop(self) -> None:
        """Ask it to end, without waiting for that."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self, within_s: float = 5.0) -> None:
        """Wait until it has ended, and kill it if it does not."""
        if self._process is None:
            return
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def console_beside(bootstrap: str, port: int) -> Companion:
    """`ottla console` for the brokers at `bootstrap`; port 0 takes a free one."""
    return Companion(ottla_command("console", "--bootstrap", bootstrap, "--port", str(port)))


def ottla_command(*arguments: str, overrides: Mapping[str, str] | None = None) -> list[str]:
    """The command line of an `ottla` command in this environment, with an --override for each setting."""
    settings = [part for name, value in (overrides or {}).items() for part in ("--override", f"{name}={value}")]
    return [sys.executable, "-m", "ottla.cli.main", *arguments, *settings]


def owned_by(user: str | None) -> dict[str, Any]:
    """Arguments of `subprocess` that make a process a user's; none: this one's."""
    if user is None:
        return {}
    import pwd

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def free_ports(count: int) -> list[int]:
    """Free ports of 127.0.0.1."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def answers(port: int) -> bool:
    """Whether a process listens at that port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
