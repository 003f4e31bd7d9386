"""One process of a unit: reports to its supervisor that it serves, and ends with it.

python -m ottla.cli.cores.child DESCRIPTOR SUPERVISOR LEVEL FORMAT FLAGS < settings and shared sockets as JSON
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from ottla.cli.terminal.log_lines import begin_log

if TYPE_CHECKING:
    from ottla.broker import Broker

READY: Final = b"\n"
_PR_SET_PDEATHSIG: Final = 1
_NO_FILE: Final = Path(os.devnull)
"""The settings are all there are, without those of a broker that is started without a file."""


class Given(TypedDict):
    """What the supervisor writes to standard input."""

    settings: dict[str, str]
    shared: dict[str, list[int]]
    """Descriptors of the unit's listening sockets, by the listener's name."""


def main(arguments: list[str]) -> int:
    """Run the broker; returns its exit code."""
    descriptor, supervisor, level, log_format, *flags = arguments
    _end_with(int(supervisor))
    given: Given = json.load(sys.stdin)
    shared = {name: [_opened(number) for number in numbers] for name, numbers in given["shared"].items()}
    begin_log(level, log_format)
    from ottla.broker_process import main as run_broker

    def serves(broker: "Broker") -> Callable[[], None]:
        unshare = broker.share(shared)
        os.write(int(descriptor), READY)
        return unshare

    return run_broker(
        _NO_FILE,
        given["settings"],
        strict="--strict" in flags,
        allow_insecure="--allow-insecure" in flags,
        ready=serves,
    )


def _opened(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock


def _end_with(supervisor: int) -> None:
    """Be stopped when the supervisor ends, even if that is killed; where the system can do that."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:  # it has ended meanwhile
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
