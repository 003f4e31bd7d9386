"""The demo's own broker: `ottla serve` as a child process on a free port."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.processes import ChildProcess, answers, free_ports, ottla_command
from ottla.waiting import tries

_READY_WITHIN_S: Final = 30.0
_STOP_WITHIN_S: Final = 15.0


class BrokerError(PipelineError):
    """The broker did not start; the message ends with its last words."""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """The demo's broker while it runs: its address, its process, and how long it took to be ready."""

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
    settings = {"log.dirs": str(log_dir.absolute()), "listeners": f"PLAINTEXT://{bootstrap}"}
    output.unlink(missing_ok=True)
    broker = ChildProcess("the broker", ottla_command("serve", overrides=settings), output)
    started = time.monotonic()
    broker.start()
    try:
        _await_ready(broker, port)
        yield RunningBroker(bootstrap, broker.pid, time.monotonic() - started)
    finally:
        broker.stop(within_s=_STOP_WITHIN_S)


def _await_ready(broker: ChildProcess, port: int) -> None:
    for _ in tries(_READY_WITHIN_S, every_s=0.01):
        if answers(port):
            return
        if (obituary := broker.obituary()) is not None:
            raise BrokerError(obituary)
    raise BrokerError(
        f"the broker did not open port {port} within {_READY_WITHIN_S:.0f} s; the end of {broker.log}:\n"
        f"{broker.last_words()}"
    )
