"""`python -m tests.chaos.cluster_broker CLOCK BREAKAGE serve ...`: `ottla serve` whose time of day can be moved.

CLOCK is a file with one little-endian int64: milliseconds that are added to the time of day of this process, at once
when they change. Everything in the process sees the same time; monotonic clocks are left alone, as on
a host whose time of day is set. BREAKAGE is one of `cluster_broken.py`.
"""

import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Final

_OFFSET: Final = struct.Struct("<q")


class MovableClock:
    """The outside of such a file."""

    def __init__(self, path: Path) -> None:
        """Make it, if it is not there; the time is right then."""
        self.path = path
        if not path.exists():
            path.write_bytes(_OFFSET.pack(0))

    def move(self, offset_ms: int) -> None:
        """Tell the process a time that is so much later than it is."""
        with self.path.open("r+b") as file:
            file.write(_OFFSET.pack(offset_ms))


def follow(path: Path) -> None:
    """Let this process be told the time that the file says, from now on."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), _OFFSET.size, prot=mmap.PROT_READ)
    right_ns = time.time_ns

    def time_ns() -> int:
        offset_ms: int = _OFFSET.unpack_from(mapped)[0]
        return right_ns() + offset_ms * 1_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


def main() -> int:
    """Move, break, serve; the exit code is the broker's."""
    clock, breakage = Path(sys.argv.pop(1)), sys.argv.pop(1)
    follow(clock)

    from ottla.cli.main import main as ottla
    from tests.chaos.cluster_broken import ClusterBreakage, break_it

    break_it(ClusterBreakage(breakage))
    return ottla()


if __name__ == "__main__":
    sys.exit(main())
