"""The metrics and the health of the console (`--metrics-listeners`): what its viewers do, read when a scrape asks."""

import asyncio
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.metrics.families import Family, Measurements, counter, gauge
from ottla.metrics.health import Health
from ottla.metrics.process import FAMILIES as _OF_PROCESSES

if TYPE_CHECKING:
    from ottla.console.access.access import Access

VIEWERS: Final = gauge("ottla_console_viewers", "pages", "Pages that are being watched as they change.")
SEARCHES: Final = gauge(
    "ottla_console_running_searches",
    "searches",
    "Searches, exports and live tails that run or wait.",
    "kind",
)
SEARCHED: Final = counter("ottla_console_searches_total", "searches", "Those that were begun since the start.", "kind")
SEARCH_SECONDS: Final = counter(
    "ottla_console_search_seconds_total", "seconds", "Time that they took, once they end.", "kind"
)
SESSIONS: Final = gauge("ottla_console_sessions", "sessions", "Sessions of users that have logged in.")
PAGES: Final = counter("ottla_console_requests_total", "requests", "Requests answered, by status.", "status")

FAMILIES: Final = (*_OF_PROCESSES, *(value for value in list(globals().values()) if isinstance(value, Family)))
ANSWER_S: Final = 10.0
"""How long the event loop may take to answer; a console that is longer busy does not live."""


class Counts:
    """What pages count, on the loop's thread."""

    def __init__(self) -> None:
        self.viewers = 0
        self.running: Counter[str] = Counter()
        """Searches and the like that run or wait, by kind."""
        self.begun: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.answers: dict[int, int] = {}
        """By status."""

    def begins(self, kind: str) -> float:
        """Count a search; returns when it began."""
        self.running[kind] += 1
        self.begun[kind] += 1
        return time.monotonic()

    def ends(self, kind: str, began: float) -> None:
        """The search is over."""
        self.running[kind] -= 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + time.monotonic() - began

    def answered(self, status: int) -> None:
        """Count a request that is answered."""
        self.answers[status] = self.answers.get(status, 0) + 1


class ConsoleMetrics:
    """Reads the counts, and asks the loop whether it lives; on the endpoint's threads."""

    def __init__(self, access: "Access", counts: Counts, loop: asyncio.AbstractEventLoop) -> None:
        self._access, self._counts, self._loop = access, counts, loop
        self.is_serving = False

    def gather(self, to: Measurements) -> None:
        """Everything of the console."""
        counts = self._counts
        for family, value in (
            (VIEWERS, counts.viewers),
            (SESSIONS, len(self._access.sessions)),
        ):
            to.add(family, value)
        for kind, count in list(counts.begun.items()):
            to.add(SEARCHED, count, kind)
            to.add(SEARCHES, counts.running[kind], kind)
            to.add(SEARCH_SECONDS, counts.seconds.get(kind, 0.0), kind)
        for status, count in list(counts.answers.items()):
            to.add(PAGES, count, str(status))

    def health(self) -> Health:
        """Whether pages are served. A cluster that does not answer is a sentence on them, and keeps nobody out."""
        return Health([] if self.is_serving else ["the console is starting, or stopping"], [])

    def lives(self) -> bool:
        """Whether the event loop answers."""
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(ANSWER_S)
