"""The other workers that are gone: their address refuses connections.

A killed process is missed by its group only when its session is over, which brokers let be no shorter than 6 s. Its
REST API refuses connections at once. Only a refusal counts, twice in a row, and only of an address that was reached
before: one that a firewall refuses, or that does not answer, proves nothing. A host that is gone is left to the
session.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

log = logging.getLogger(__name__)

_EVERY_S: Final = 0.4
_ANSWER_S: Final = 1.0
_REFUSALS: Final = 2


def listens(address: str) -> bool | None:
    """Whether a process listens at `host:port`; None if unknown."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S)):
            return True
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError, UnicodeError):
        return None


class Peers:
    """Looks at workers in a thread of its own. changed: called from it when one is gone, or back."""

    def __init__(self, changed: Callable[[], None], look: Callable[[str], bool | None] = listens) -> None:
        self._changed, self._look = changed, look
        self._watched: frozenset[str] = frozenset()
        self._refusals: dict[str, int] = {}
        """Refused connections in a row, of those that were reached before."""
        self.gone: frozenset[str] = frozenset()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect peers", daemon=True)

    def start(self) -> None:
        """Begin, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch(self, addresses: Iterable[str]) -> None:
        """Look at these workers from now on, and at those that are gone, which may come back."""
        self._watched = frozenset(addresses)

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            self.look()

    def look(self) -> None:
        """Look at each once."""
        watched = self._watched
        for address in watched | self.gone:
            answer = self._look(address)
            if answer is True:
                self._refusals[address] = 0
            elif answer is False and address in self._refusals:
                self._refusals[address] += 1
        for address in self._refusals.keys() - watched - self.gone:
            del self._refusals[address]
        gone = frozenset(each for each, count in self._refusals.items() if count >= _REFUSALS)
        if gone != self.gone:
            for each in sorted(gone - self.gone):
                log.warning("worker %s is gone: its address refuses connections; its tasks go to others", each)
            self.gone = gone
            self._changed()
