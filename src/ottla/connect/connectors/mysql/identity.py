"""The binlog that an offset belongs to: file names and GTIDs start over after RESET MASTER, and on a new server.

An offset names its binlog's server (`server`: MySQL's server_uuid, MariaDB's server_id) and the creation time of its
file
(`created`, of the file's first event). Another server with the same data is recognized only by GTIDs.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import FormatDescriptionEvent

from ottla.connect.api import ConnectError, Position, Retriable, SourceLag
from ottla.connect.connectors.mysql.session import code_of, connection_settings, explained, rows
from ottla.connect.connectors.mysql.settings import MysqlSettings

_NO_GTIDS: Final = 1772
_FIRST_POS: Final = 4
"""Where the first event of a file is."""


@dataclass(frozen=True, slots=True)
class Binlog:
    """A server's binlog: whose it is, and the sizes of its files by their names, in order."""

    server: str
    files: Mapping[str, int]

    def lag(self, position: Position, settings: MysqlSettings) -> SourceLag:
        """How far a position is behind the end. Raises ConnectError if it is in none of these files."""
        file, pos = position["file"], position["pos"]
        where = f"the server at {settings.database_hostname}:{settings.database_port}"
        if position.get("server", self.server) != self.server:
            raise ConnectError(
                f"{where} is server {self.server}, and the position is one of server {position['server']}: the lag "
                "cannot be given in bytes"
            )
        names = list(self.files)
        if file not in self.files or pos > self.files[file]:
            raise ConnectError(
                f"{where} has no {pos} in {file}: its binlog was purged or reset, or it is another server"
            )
        later = sum(self.files[name] for name in names[names.index(file) + 1 :])
        end = f"{names[-1]}:{self.files[names[-1]]}"
        return SourceLag(f"{file}:{pos}", end, max(0, self.files[file] - pos) + later)


def identify(connection: Any, kind: str) -> Binlog:
    """The binlog that is there now. `kind`: mysql or mariadb."""
    name = "server_id" if kind == "mariadb" else "server_uuid"
    server = str(rows(connection, f"SELECT @@GLOBAL.{name}")[0][0])
    return Binlog(server, {str(row[0]): int(row[1]) for row in rows(connection, "SHOW BINARY LOGS")})


def created(settings: MysqlSettings, connect: Callable[..., Any], file: str) -> int:
    """The second in which a file of the binlog was begun. `connect`: the driver's. Raises ConnectError, Retriable."""
    with explained(f"reading the begin of {file}"):
        stream = BinLogStreamReader(
            connection_settings=connection_settings(settings),
            server_id=settings.replica_id,
            log_file=file,
            log_pos=_FIRST_POS,
            resume_stream=True,
            enable_logging=False,
            pymysql_wrapper=connect,
            only_events=[FormatDescriptionEvent],
        )
        try:
            event = stream.fetchone()
        finally:
            stream.close()
    if event is None:
        raise Retriable(f"the server ended the stream of {file} before its first event")
    return int(event.timestamp)


def check_same(
    binlog: Binlog, settings: MysqlSettings, position: Position, connection: Any, kind: str, begun: Callable[[str], int]
) -> None:
    """Raises ConnectError if `position` is not in this binlog with all later changes.

    `begun`: the creation time of a file. A server with other transactions of the same numbers sends the later ones
    without
    an error. Positions without an identity, from before there was one or set by hand, are checked as far as they go.
    """
    where = f"the server at {settings.database_hostname}:{settings.database_port}"
    file, pos, gtids = position["file"], position["pos"], position.get("gtids")
    at = f"{file}:{pos}" + (f" (GTIDs {gtids:.200})" if gtids else "")
    remedy = _remedy(binlog, at)
    if gtids and kind == "mysql" and not _has_all(connection, gtids):
        raise ConnectError(
            f"{where} does not have all transactions that this connector has read, up to {at}: it is another server, "
            f"was restored, or lost them in a failover; {remedy}"
        )
    if "server" not in position:
        return
    if position["server"] != binlog.server:
        if not gtids:
            raise ConnectError(
                f"{where} is server {binlog.server}, but the position "
                f"{at} is of server {position['server']}; without GTIDs it cannot be found here: {remedy}"
            )
        return  # the server refuses GTIDs that it does not have
    if file not in binlog.files:
        if gtids and binlog.files and _is_before(file, next(iter(binlog.files))):
            return  # it was purged; the server refuses if what follows was, too
        raise ConnectError(
            f"{where} no longer has {file}, to which this connector has read ({at}): its binlog was begun anew "
            f"(RESET MASTER, or another server with the same number) or purged, and changes may be lost; {remedy}"
        )
    if begun(file) != position["created"]:
        raise ConnectError(
            f"{where} has begun its binlog anew since this connector read it up to {at} (RESET MASTER, or another "
            f"server with the same number): {file} is another file now, and changes would be passed over; {remedy}"
        )
    if binlog.files[file] < pos:
        raise ConnectError(
            f"{where} has {file} up to {binlog.files[file]} only, and this connector has read up to {at}: the server "
            f"was restored, or lost the rest in a crash, and transactions that got the same numbers since would be "
            f"passed over; {remedy}"
        )


def _has_all(connection: Any, gtids: str) -> bool:
    try:
        return bool(rows(connection, "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", gtids)[0][0])
    except ConnectError as error:
        if code_of(error) != _NO_GTIDS:
            raise
        return False  # MariaDB's look otherwise


def _remedy(binlog: Binlog, at: str) -> str:
    choices = [
        f"connect it to the server that has all up to {at}",
        "for a new snapshot delete the connector's offsets, or set snapshot.mode to when_needed",
    ]
    if binlog.files:
        begin = json.dumps({"file": next(iter(binlog.files)), "pos": _FIRST_POS})
        choices.append(
            f"if this binlog is known to begin where the topics end, set the connector's offset to {begin} to go on "
            "from there"
        )
    return "; or ".join(choices) + "; and restart it"


def _is_before(file: str, other: str) -> bool:
    """Whether a file's number is smaller than another's of the same binlog."""
    name, _, number = file.rpartition(".")
    other_name, _, other_number = other.rpartition(".")
    return name == other_name and number.isdigit() and other_number.isdigit() and int(number) < int(other_number)
