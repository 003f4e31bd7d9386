"""Being asked to stop: the first SIGTERM or Ctrl-C lets micro-batches finish, the second one does not."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """How often this process has been asked to stop."""

    def __init__(self) -> None:
        self.times = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count signals within the block, rather than end by them. For the main thread.

        A signal that was ignored before (SIGHUP under nohup) still is.
        """
        heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._count) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.times += 1
