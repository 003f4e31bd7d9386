"""PURE: how far the binlog has been read, as offsets have it.

A position is `{"file", "pos", "gtids", "events": n, "transaction"}`: all transactions before `pos` in `file` are done,
which are those of `gtids`, and the first n rows of the one that begins there, whose GTID is `transaction`. `server` and
`created` identify the binlog of `file`: its server, and the second in which the file was begun. The stream is started
by GTIDs where they are known to be complete (MySQL would send again the missing ones of a set), so that another server
with the same data works as well. That transaction may come later there; until then `half_done` keeps the finished part
of it by its GTID. `incremental` is the state of incremental snapshots; `begun` means that the begin record of that
transaction has been sent, where such records are configured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ottla.connect.api import Position
from ottla.connect.connectors.capture.changes import Count


@dataclass(frozen=True, slots=True)
class Origin:
    """kind: mysql or mariadb. server: the name of the capture. add_gtid: a set of GTIDs and one more.

    own: what all GTIDs have in them that the server gives to its own transactions, and no others.
    """

    kind: str
    server: str
    add_gtid: Callable[[str, str], str]
    own: str


@dataclass(frozen=True, slots=True)
class _FilePosition:
    """created: when the file was begun, in seconds since 1970; None if that is not known."""

    file: str
    pos: int
    created: int | None


@dataclass(slots=True)
class Transaction(Count):
    """The transaction that is being read. gtid: None if it has none. begun: whether its begin record was sent."""

    gtid: str | None = None
    begun: bool = False

    def end(self) -> None:
        """Nothing is known of the next one."""
        self.events, self.to_skip, self.gtid, self.begun = 0, 0, None, False


class _HalfDone:
    """The finished parts of transactions that the stream has not come to."""

    def __init__(self, position: Position, at: _FilePosition, origin: Origin, warn: Callable[[str], None]) -> None:
        self.gtid: str | None = position.get("transaction")
        """The transaction that was half done when the stream began; None once another one has come."""
        self.at = at
        self.later: dict[str, dict[str, Any]] = dict(position.get("half_done") or {})
        """Finished parts of transactions that come later on this server."""
        self._origin = origin
        self._warn = warn

    def take_up(self, current: Transaction, gtid: str, file: str) -> None:
        """Have a transaction go on where it was left, and warn of those that can no longer come."""
        if self.gtid == gtid and self._origin.own in gtid and file != self.at.file:
            self._warn_of_loss(gtid, current.to_skip, "another one")  # after a crash a server begins a file
            current.to_skip, current.begun = 0, False
        elif self.gtid is not None and self.gtid != gtid:
            self.later[self.gtid] = {"events": current.to_skip, "begun": current.begun}
            current.to_skip, current.begun = 0, False
        self.gtid = None
        done = self.later.pop(gtid, None)
        if done is not None:
            current.to_skip, current.begun = done["events"], done["begun"]
        if self._origin.kind == "mariadb":
            for gone in [each for each in self.later if _domain(each) == _domain(gtid)]:
                self._warn_of_loss(gone, self.later.pop(gone)["events"], gtid)

    def _warn_of_loss(self, gtid: str, rows: int, instead: str) -> None:
        self._warn(
            f"transaction {gtid}, whose first rows ({rows}) were handed on, is no longer in the binlog, where {instead}"
            " has its place (after a failover, or a crash without sync_binlog=1): the server does not have these rows"
        )


class Place:
    """Begins at the position at which the stream was started.

    warn: called for a transaction that was half done and is gone. also: what a position has to say about the
    incremental snapshot.
    """

    def __init__(
        self,
        origin: Origin,
        position: Position,
        warn: Callable[[str], None],
        also: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._at = _FilePosition(position["file"], position["pos"], position.get("created"))
        self._next: _FilePosition | None = None
        """Where the stream is, if that is another file and a transaction was not ended in the one before."""
        self._server: Any = position.get("server")
        self._gtids: str | None = position.get("gtids")
        """Empty if none was done; None if it is not known which were."""
        self.transaction = Transaction(to_skip=position.get("events", 0), begun=position.get("begun", False))
        self._half_done = _HalfDone(position, self._at, origin, warn)
        self._origin = origin
        self._also = also

    @property
    def file(self) -> str:
        """The file of the binlog in which the transaction began."""
        return self._at.file

    @property
    def transaction_id(self) -> str:
        """The id of the transaction that is being read, in Debezium's form."""
        return self.transaction.gtid or f"file={self._at.file},pos={self._at.pos}"

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        current, half_done = self.transaction, self._half_done
        at = self._at if half_done.gtid is None else half_done.at
        position: dict[str, Any] = {"file": at.file, "pos": at.pos}
        if self._server is not None and at.created is not None:
            position |= {"server": self._server, "created": at.created}
        if self._gtids is not None:
            position["gtids"] = self._gtids
        done = current.done
        if done:
            position["events"] = done
        if current.begun:
            position["begun"] = True
        gtid = current.gtid or half_done.gtid
        if gtid is not None and (done or current.begun):
            position["transaction"] = gtid
        if half_done.later:
            position["half_done"] = dict(half_done.later)
        if self._also is not None:
            position.update(self._also())
        return position

    def rotated(self, file: str, pos: int) -> None:
        """The stream continues in another file, whose first event carries the time it was begun.

        By GTIDs it begins at the begin of a file, which may be the one that is known to be done up to a place.
        """
        known = file == self._at.file and self._at.created is not None
        self._next = _FilePosition(file, max(pos, self._at.pos) if known else pos, None)

    def file_began(self, created: int) -> None:
        """The file in which the stream goes on was begun in this second."""
        if self._next is not None:
            self._next = replace(self._next, created=created)

    def enter(self) -> None:
        """Be in the file in which the stream is."""
        if self._next is not None:
            self._at, self._next = self._next, None

    def numbered(self, gtid: str) -> None:
        """What comes next is a transaction, or one statement, with a GTID."""
        self.enter()
        self.transaction.events, self.transaction.gtid = 0, gtid
        self._half_done.take_up(self.transaction, gtid, self._at.file)

    def ended(self, pos: int) -> None:
        """The transaction is done; `pos` is what follows it."""
        gtid = self.transaction.gtid
        if gtid is not None and self._gtids is not None:
            self._gtids = self._origin.add_gtid(self._gtids, gtid)
        self.transaction.end()
        self._half_done.gtid = None
        self._at = replace(self._at, pos=pos)


def _domain(gtid: str) -> str:
    """The domain of a GTID of MariaDB: the transactions of a domain have one order on all servers."""
    return gtid.split("-", 1)[0]
