"""Log messages of a worker's Kafka clients, each only once in a while.

Every client logs several times a second that a broker is unreachable, and a worker has several clients for each task.
"""

import logging
import re
import time
from collections.abc import Callable
from typing import Final

_EVERY_S: Final = 30.0
_PASSING: Final = re.compile(r"\[rdkafka#[^\]]*\]:? ?|\[thrd:[^\]]*\]:? ?|[\w.-]*#(?:producer|consumer)-\d+:? ?|\d+")
"""What differs between two lines that say the same: which client, and numbers."""


class OnceInAWhile(logging.Filter):
    """Lets a line through if none like it came within half a minute, with the number of suppressed ones."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written. Lines for debugging all are."""
        if record.levelno <= logging.INFO:
            return True
        text, now = record.getMessage(), self._now()
        kind = _PASSING.sub("", text)
        at, left_out = self._said.get(kind, (float("-inf"), 0))
        if now < at + _EVERY_S:
            self._said[kind] = at, left_out + 1
            return False
        self._said[kind] = now, 0
        if left_out:
            record.msg, record.args = f"{text} (and {left_out} lines like this one since)", ()
        return True


CLIENT_LOG: Final = logging.getLogger("ottla.connect.client")
"""For every client's setting `logger`."""
CLIENT_LOG.addFilter(OnceInAWhile())
