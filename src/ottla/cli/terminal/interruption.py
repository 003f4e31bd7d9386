"""Ctrl-C and SIGTERM as exceptions, which can be held back while two steps must not be torn apart."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

_LOOK_EVERY_S: Final = 0.5


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived: clean up as for Ctrl-C, and leave with that signal's code."""


_holding = False
_held_back: KeyboardInterrupt | None = None


def install() -> None:
    """Turn SIGINT into KeyboardInterrupt, SIGTERM and SIGHUP into Terminated: closing a terminal ends the programs
    in it, and their children.

    For the main thread of a program of its own. SIGHUP stays ignored where `nohup` has it ignored.
    """
    signal.signal(signal.SIGINT, _raise)
    signal.signal(signal.SIGTERM, _raise)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _raise)


def _raise(signal_number: int, _frame: FrameType | None) -> None:
    global _held_back
    interruption = KeyboardInterrupt() if signal_number == signal.SIGINT else Terminated()
    # Only the first is held back: the second one means it, should the first step never end.
    if _holding and _held_back is None:
        _held_back = interruption
        return
    raise interruption


def wait() -> NoReturn:
    """Wait, in the main thread, until one of the signals raises.

    A wait without end could miss the signal: when another thread unblocks its signals, as every start of a thread does,
    it may take the signal before the main thread runs. Python then only notes the signal, for the main thread to see.
    """
    while True:
        time.sleep(_LOOK_EVERY_S)


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interruption wait until the end of the block."""
    global _holding, _held_back
    _holding = True
    try:
        yield
    finally:
        _holding = False
        waiting, _held_back = _held_back, None
        if waiting is not None:
            raise waiting
