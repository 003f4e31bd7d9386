"""The log of `ottla serve`: lines of text or JSON, with times in UTC, and no floods."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MOST_PER_PERIOD: Final = 100
PERIOD_S: Final = 10.0


class UtcText(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO ottla: ready ...`."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__(TEXT)
        self.converter = _utc


class JsonLines(UtcText):
    """One object a line: `time`, `level`, `logger`, `message`, and `error` with a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, in one line whatever it contains."""
        found = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found)


class FloodGate(logging.Filter):
    """Lets at most `MOST_PER_PERIOD` lines of one kind pass in `PERIOD_S`; the next one that passes counts the others.

    Lines are of one kind if they come from one place in the code, so that there are only so many kinds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = monotonic
        self._kinds: dict[tuple[str, int], list[float]] = {}
        """By kind: when its period began, and how many lines came in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line passes."""
        now = self._now()
        kind = self._kinds.setdefault((record.pathname, record.lineno), [now, 0])
        if now - kind[0] >= PERIOD_S:
            missing = int(kind[1]) - MOST_PER_PERIOD
            if missing > 0:
                record.msg = f"{record.getMessage()} ({missing} more lines like this one were left out before)"
                record.args = None
            kind[:] = now, 0
        kind[1] += 1
        return kind[1] <= MOST_PER_PERIOD


def begin_log(level: str, form: str) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else UtcText())
    handler.addFilter(FloodGate())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _utc(seconds: float | None) -> time.struct_time:
    return time.gmtime(seconds)
