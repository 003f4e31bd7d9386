"""Whether the worker's brokers can be reached at all: when they are away, tasks let go of their clients, and wait.

Each client library has threads of its own that try to connect, and a worker has several clients for each task: a
hundred connectors would use most of a core for it. One thread here looks instead, and tasks go on as soon as a broker
is back.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from confluent_kafka import KafkaException

from ottla.connect.errors import Retriable
from ottla.connect.runtime.peers import listens

log = logging.getLogger(__name__)

_EVERY_S: Final = 0.5
_REFUSALS: Final = 5
"""In a row, of all addresses: a quick restart of a broker that is alone is no reason to begin anew. But meanwhile the
clients of a hundred connectors look for it, and use most of a core."""
_WAIT_S: Final = 1.0
_ANSWER_S: Final = 1.0
_ASK_EVERY_S: Final = 10.0
"""Interval for asking a client that reached a broker while the worker's bootstrap brokers were away."""


class Brokers:
    """Watches `bootstrap.servers` in a thread of its own.

    `away` is true while all of them refuse connections. Other brokers may still be reachable: `Lifeline` finds out
    whether a task's own client reaches them.
    """

    def __init__(self, bootstrap: str, look: Callable[[str], bool | None] = listens) -> None:
        self._addresses = [each.strip().rpartition("//")[2] for each in bootstrap.split(",") if each.strip()]
        self._bootstrap, self._look = bootstrap, look
        self._refusals = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect brokers", daemon=True)

    @property
    def away(self) -> bool:
        """Whether all have refused connections for some seconds."""
        return self._refusals >= _REFUSALS

    @property
    def refusing(self) -> bool:
        """Whether nobody listened a moment ago."""
        return self._refusals > 0

    def start(self) -> None:
        """Begin, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            self.look()

    def look(self) -> None:
        """Look at all addresses once. One that does not answer is not known to be away."""
        was_away = self.away
        refused = bool(self._addresses) and all(self._look(each) is False for each in self._addresses)
        self._refusals = self._refusals + 1 if refused else 0
        if self.away and not was_away:
            log.warning("no broker at %s takes connections: tasks wait until one does", self._bootstrap)
        elif was_away and not self.away:
            log.warning("a broker at %s takes connections again", self._bootstrap)

    def wait(self, stopped: threading.Event) -> bool:
        """Return when brokers are there, or a task is to stop. Returns whether it is to."""
        while self.away and not stopped.wait(_WAIT_S):
            pass
        return stopped.is_set()


class Client(Protocol):
    """A consumer or producer of the client library."""

    def list_topics(self, *, timeout: float) -> object:
        """Raises KafkaException if no broker answers."""


class Lifeline:
    """Whether a task's client reaches a broker while those of the worker are away.

    The client library reports the loss of all brokers only once, although the loss may be temporary, so the client is
    asked again.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._ask_at = 0.0

    def check(self, client: Client) -> None:
        """Raises Retriable if all brokers are away, and the client reaches none that is not among them."""
        if not self._brokers.away:
            self._ask_at = 0.0
            return
        if time.monotonic() < self._ask_at:
            return
        try:
            client.list_topics(timeout=_ANSWER_S)
        except KafkaException:
            raise Retriable("no broker takes connections") from None
        self._ask_at = time.monotonic() + _ASK_EVERY_S
