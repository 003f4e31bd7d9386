"""Processes stopped by SIGSTOP: the signal returns at once, while threads run on, long enough to commit."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.support.eventually import eventually

_STANDS_STILL: Final = "TtZX"
"""States of a thread that runs nothing more: stopped, traced, or ended."""


def freeze(pid: int) -> bool:
    """Stop a process and wait until all of its threads stand still; whether there was one.

    A process that ends meanwhile stands still, too.

    Raises:
        AssertionError: A thread runs on, after seconds.
    """
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    eventually(lambda: stands_still(pid), interval_s=0.001)
    return True


def thaw(pid: int) -> None:
    """Let a frozen process go on; nothing if it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def stands_still(pid: int) -> bool:
    """Does nothing of the process run?"""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return True
    return all(_state(thread) in _STANDS_STILL for thread in threads)


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
