"""The demo's own broker: `ottla serve` as a child process on a free port."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.processes import ChildProcess, answers, free_ports

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
    (port,) = free_ports(1)
    bootstrap = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "ottla.cli.main", "serve"]
    for override in (f"log.dirs={log_dir.absolute()}", f"listeners=PLAINTEXT://{bootstrap}"):
        command += ["--override", override]
    output.unlink(missing_ok=True)
    broker = ChildProcess("the broker", command, output)
    started = time.monotonic()
    broker.start()
    try:
        _await_ready(broker, port, started)
        yield RunningBroker(bootstrap, broker.pid, time.monotonic() - started)
    finally:
        broker.stop(within_s=_STOP_WITHIN_S)


def _await_ready(broker: ChildProcess, port: int, started: float) -> None:
    while not answers(port):
        if (obituary := broker.obituary()) is not None:
            raise BrokerError(obituary)
        if time.monotonic() - started > _READY_WITHIN_S:
            raise BrokerError(
                f"the broker did not open port {port} within {_READY_WITHIN_S:.0f} s; the end of {broker.log}:\n"
                f"{broker.last_words()}"
            )
        time.sleep(0.01)
