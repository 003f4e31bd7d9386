"""A line in the log for each refusal, and for floods of them a count: the logger `ottla.authorizer`."""

import logging
from collections.abc import Callable
from typing import Final

from ottla.security.authorization import Operation, ResourceType

log = logging.getLogger("ottla.authorizer")

LINES_A_SECOND: Final = 20
"""A client that is refused all the time must not fill the disk."""
_LONGEST_NAME: Final = 256


class RefusalLog:
    """Notes refusals. Any thread may call it; two that do so at once may write a line too many."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        self._now = now
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def note(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> None:
        """A client was refused something. Names are quoted: a client chooses some of them."""
        second = int(self._now())
        if second != self._second:
            self._second, self._lines = second, 0
            left_out, self._left_out = self._left_out, 0
            if left_out:
                log.info("%d more refusals, of which no line was written", left_out)
        self._lines += 1
        if self._lines > LINES_A_SECOND:
            self._left_out += 1
            return
        log.info("%r from %s was refused %s on %s %r", principal, host, operation.name, kind.name, name[:_LONGEST_NAME])
