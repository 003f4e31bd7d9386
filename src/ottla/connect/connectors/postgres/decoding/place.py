"""PURE: how far the stream has come, as offsets have it.

A position is `{"lsn": where to start the stream, "transaction": final LSN, "events": n}`: all transactions before `lsn`
are done, and the first n changes of the one that ends at `transaction`. The server sends a transaction whole and always
in the same order, so a count is exact, which the LSN of a change is not (the rows of one COPY share one). `begun` means
that the begin record of that transaction has been sent, where configured; `commit` is where the last one ended.
`system` and `timeline` identify the server's WAL of these positions.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.api import Position
from ottla.connect.connectors.capture.changes import Count
from ottla.connect.connectors.postgres.decoding.pgoutput import Begin


class Place:
    """Begins at the position at which the stream was started.

    sends_begins: whether begin records are sent. also: what a position has to say about the incremental snapshot.
    """

    def __init__(
        self, position: Position, also: Callable[[], Mapping[str, Any]] | None = None, *, sends_begins: bool = False
    ) -> None:
        self.lsn: int = position["lsn"]
        """Everything before is taken: the end of the last whole transaction."""
        self.commit: int | None = position.get("commit")
        """Where the last reported transaction ended."""
        self.begin: Begin | None = None
        """The begin of the transaction that is being read."""
        self.count = Count()
        self._identity = {name: position[name] for name in ("system", "timeline") if name in position}
        self._half_done = {name: position[name] for name in ("transaction", "events", "begun") if name in position}
        """The start position's part of a transaction that has not come yet; no position may lose it until it has."""
        self._also = also
        self._sends_begins = sends_begins

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        position: dict[str, Any] = {"lsn": self.lsn, **self._identity}
        if self.commit is not None:
            position["commit"] = self.commit
        if self._also is not None:
            position.update(self._also())
        if self._half_done:
            position.update(self._half_done)
        elif self.begin is not None and ((done := self.count.done) or self._sends_begins):
            position["transaction"], position["events"] = self.begin.final_lsn, done
            if self._sends_begins:
                position["begun"] = True
        return position

    def began(self, begin: Begin) -> bool:
        """A transaction begins. Returns whether its begin record was sent before the stream began."""
        half_done = self._half_done
        goes_on = begin.final_lsn == half_done.get("transaction")
        if begin.final_lsn >= half_done.get("transaction", 0):
            self._half_done = {}
        self.begin = begin
        self.count.events, self.count.to_skip = 0, half_done.get("events", 0) if goes_on else 0
        return goes_on and bool(half_done.get("begun", False))

    def passed(self, lsn: int) -> None:
        """Everything before is taken, and a commit may begin there."""
        self.lsn = self.commit = lsn

    def ended(self, lsn: int) -> None:
        """The transaction ends before `lsn`."""
        self.begin = None
        self.count.events = self.count.to_skip = 0
        self.passed(lsn)
