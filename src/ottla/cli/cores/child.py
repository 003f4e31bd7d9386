"""One process of a unit: reports to its supervisor that it serves, and ends with it.

python -m ottla.cli.cores.child DESCRIPTOR SUPERVISOR LEVEL FORMAT FLAGS < settings as JSON
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.terminal.log_lines import begin_log

if TYPE_CHECKING:
    from ottla.broker import Broker

READY: Final = b"\n"
_PR_SET_PDEATHSIG: Final = 1
_NO_FILE: Final = Path(os.devnull)
"""The settings are all there are, without those of a broker that is started without a file."""


def main(arguments: list[str]) -> int:
    """Run the broker; returns its exit code."""
    descriptor, supervisor, level, log_format, *flags = arguments
    _end_with(int(supervisor))
    settings: dict[str, str] = json.load(sys.stdin)
    begin_log(level, log_format)
    from ottla.broker import main as run_broker

    def serves(_: "Broker") -> Callable[[], None]:
        os.write(int(descriptor), READY)
        return lambda: None

    return run_broker(
        _NO_FILE, settings, strict="--strict" in flags, allow_insecure="--allow-insecure" in flags, ready=serves
    )


def _end_with(supervisor: int) -> None:
    """Be stopped when the supervisor ends, even if that is killed; where the system can do that."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:  # it has ended meanwhile
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
