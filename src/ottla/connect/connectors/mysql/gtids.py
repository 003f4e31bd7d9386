"""The numbers of transactions: MySQL's and MariaDB's GTIDs, and the end of the binlog that they name."""

from typing import Any

import pymysql
from pymysqlreplication.gtid import Gtid, GtidSet

from ottla.connect.api import ConnectError
from ottla.connect.connectors.mysql.decoding.place import Origin
from ottla.connect.connectors.mysql.session import rows


def origin_of(connection: Any, kind: str, server: str) -> Origin:
    """How the server's changes are numbered. `server`: the name of the capture."""
    if kind == "mariadb":
        return Origin(kind, server, add_mariadb_gtid, f"-{rows(connection, 'SELECT @@server_id')[0][0]}-")
    return Origin(kind, server, add_mysql_gtid, f"{rows(connection, 'SELECT @@server_uuid')[0][0]}:")


def end_of_binlog(connection: Any, kind: str) -> dict[str, Any]:
    """The position of the next transaction."""
    file, pos, gtids = master_status(connection)
    position: dict[str, Any] = {"file": file, "pos": pos}
    if kind == "mariadb":
        return position | {"gtids": mariadb_gtids(connection, file, pos) or ""}
    if rows(connection, "SELECT @@GLOBAL.gtid_mode")[0][0] != "ON":
        return position  # there are transactions without a GTID, or may be
    return position | {"gtids": gtids.replace("\n", "")}


def master_status(connection: Any) -> tuple[str, int, str]:
    """File, position and GTIDs (MySQL's) of the end of the binlog. MySQL 8.4 has another name for the question.

    Raises ConnectError if the server writes no binlog.
    """
    try:
        found = rows(connection, "SHOW MASTER STATUS")
    except ConnectError as error:
        if not isinstance(error.__cause__, pymysql.err.ProgrammingError):
            raise
        found = rows(connection, "SHOW BINARY LOG STATUS")
    if not found:
        raise ConnectError("the server writes no binlog: set log_bin and restart it")
    row = found[0]
    return str(row[0]), int(row[1]), str(row[4]) if len(row) > 4 else ""


def mariadb_gtids(connection: Any, file: str, pos: int) -> str | None:
    """The GTIDs of all that is before a place in the binlog; None if there is no such place."""
    gtids = rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)[0][0]
    return None if gtids is None else str(gtids)


def add_mariadb_gtid(gtids: str, gtid: str) -> str:
    """A set of GTIDs and one more: the last one of each domain counts."""
    domains = {each.split("-", 1)[0]: each for each in filter(None, gtids.split(","))}
    return ",".join((domains | {gtid.split("-", 1)[0]: gtid}).values())


def add_mysql_gtid(gtids: str, gtid: str) -> str:
    """A set of GTIDs and one more."""
    if not gtids:
        return gtid
    merged = GtidSet(gtids)
    merged.merge_gtid(Gtid(gtid))
    return str(merged)
