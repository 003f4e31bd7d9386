"""Being asked to stop, and asking: the first SIGTERM or Ctrl-C lets micro-batches finish, the second one does not."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import RunDirectory
from ottla.waiting import wait_until

_LOOK_EVERY_S: Final = 0.1
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


def stop(directory: RunDirectory, *, within_s: float, now: bool = False) -> None:
    """Have a run end, if it runs, and wait until it has. Raises PipelineError if it does not in time."""
    process = directory.process_id()
    if process is None:
        return
    for _ in range(2 if now else 1):
        try:
            os.kill(process, signal.SIGTERM)
        except ProcessLookupError:
            return
        except PermissionError:
            raise PipelineError(f"{directory.name!r} is run by process {process} of another user") from None
        time.sleep(_LOOK_EVERY_S)  # two signals at once would be one
    if not wait_until(lambda: directory.process_id() != process, within_s, every_s=_LOOK_EVERY_S):
        raise PipelineError(
            f"{directory.name!r} is still busy after {within_s:g} s: wait, or stop it with --now (process {process})"
        )
