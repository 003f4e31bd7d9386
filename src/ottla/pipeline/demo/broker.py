"""The demo's own broker: `ottla serve` as a child process on a free port."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError

_READY_WITHIN_S: Final = 30.0
_STOP_WITHIN_S: Final = 15.0


class BrokerError(PipelineError):
    """The broker did not start; the message ends with its last words."""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    bootstrap: str
    pid: int
    ready_after_s: float


@contextmanager
def serve(log_dir: Path, output: Path) -> Iterator[RunningBroker]:
    """Run a broker with its log in `log_dir` until the block ends; what it prints goes to the file `output`.

    Raises BrokerError if it ends or stays silent for half a minute.
    """
    bootstrap = f"127.0.0.1:{_free_port()}"
    command = [sys.executable, "-m", "ottla.cli.main", "serve"]
    for override in (f"log.dirs={log_dir.absolute()}", f"listeners=PLAINTEXT://{bootstrap}"):
        command += ["--override", override]
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as sink:
        started = time.monotonic()
        # a session of its own: Ctrl-C on the terminal is for us to pass on
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    try:
        _await_ready(process, bootstrap, output, started)
        yield RunningBroker(bootstrap, process.pid, time.monotonic() - started)
    finally:
        _stop(process)


def _await_ready(process: "subprocess.Popen[bytes]", bootstrap: str, output: Path, started: float) -> None:
    host, port = bootstrap.rsplit(":", 1)
    while True:
        if process.poll() is not None:
            raise BrokerError(f"the broker ended with code {process.returncode}:\n{_last_words(output)}")
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() - started > _READY_WITHIN_S:
                raise BrokerError(
                    f"the broker did not open {bootstrap} within {_READY_WITHIN_S:.0f} s:\n{_last_words(output)}"
                ) from None
        time.sleep(0.01)


def _last_words(output: Path) -> str:
    return "\n".join(output.read_text(errors="replace").splitlines()[-15:])


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
