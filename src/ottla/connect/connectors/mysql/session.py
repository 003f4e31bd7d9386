"""Connections to MySQL and MariaDB, and sentences about their failures for a connector's status."""

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pymysql
from pymysql.constants import FIELD_TYPE
from pymysql.converters import conversions, convert_date, convert_datetime
from pymysql.cursors import SSCursor

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors.mysql.settings import MysqlSettings

_NO_RIGHTS: Final = (1044, 1142, 1143, 1227)
_LOST: Final = (1236, 1373)
LOST: Final = "for a new snapshot delete the connector's offsets, or set snapshot.mode to when_needed, and restart it"
_AWAY: Final = (
    1040,
    1053,
    1129,
    1152,
    1158,
    1159,
    1160,
    1161,
    1203,
    1205,
    1213,
    1226,
    1927,
    2002,
    2003,
    2006,
    2013,
    2014,
)
_RIGHTS: Final = "GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user of database.user"


def _date(text: Any) -> dt.date | None:
    """None for a day that no calendar has, which the driver leaves a text: so does the binlog's reader."""
    found = convert_date(text)
    return None if isinstance(found, str) else found


def _datetime(text: Any) -> dt.datetime | None:
    found = convert_datetime(text)
    return found if isinstance(found, dt.datetime) else None


def _timestamp(text: Any) -> dt.datetime:
    """An invalid time becomes zero, which the binlog has as 1970's first second; no other timestamp is that."""
    return _datetime(text) or _ZERO_TIMESTAMP


class _RowsAsFetched(SSCursor):
    """A cursor whose rows come as they are fetched. Closed before the last one, it closes its connection.

    The driver's own reads the rest instead, however much that is. Of a connection that broke it reads as well, and
    raises AttributeError in place of the reason, again when it is deleted.
    """

    connection: Any
    _result: Any

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and self._result is not None and self._result.unbuffered_active:
            self._result.unbuffered_active = False
            connection._force_close()

    __del__ = close


_ZERO_TIMESTAMP: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (as the driver has them, in UTC)
_CONVERSIONS: Final[dict[Any, Any]] = {
    **conversions,
    FIELD_TYPE.DATE: _date,
    FIELD_TYPE.DATETIME: _datetime,
    FIELD_TYPE.TIMESTAMP: _timestamp,
}


def connection_settings(settings: MysqlSettings) -> dict[str, Any]:
    """For the driver."""
    given: dict[str, Any] = {
        "host": settings.database_hostname,
        "port": settings.database_port,
        "user": settings.database_user,
        "password": settings.database_password.get_secret_value() if settings.database_password is not None else "",
        "charset": "utf8mb4",
        "connect_timeout": 10,
    }
    if settings.database_ssl_mode == "required":
        given["ssl"] = {"check_hostname": False}  # encrypted, for `required`; not verified
    return given


def connect(settings: MysqlSettings, *, streaming: bool = False) -> "pymysql.connections.Connection[Any]":
    """A connection in autocommit whose times are UTC's; `streaming`: rows come as they are fetched.

    Raises ConnectError if the server refuses, Retriable if it cannot be reached.
    """
    more: dict[str, Any] = {"cursorclass": _RowsAsFetched} if streaming else {}
    where = f"{settings.database_hostname}:{settings.database_port}"
    with explained(f"connecting to {where}"):
        init = "SET time_zone = '+00:00', SESSION net_write_timeout = 3600"
        return pymysql.connect(
            autocommit=True, init_command=init, conv=_CONVERSIONS, **connection_settings(settings), **more
        )


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raise what the driver raises as ConnectError or Retriable, saying what was being done and what to do."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        if code == 1045:
            raise ConnectError(f"{doing}: {text}; check database.user and database.password") from error
        if code in _NO_RIGHTS:
            raise ConnectError(f"{doing}: {text}; {_RIGHTS}") from error
        if code in _LOST and "same server" in text:
            raise ConnectError(
                f"{doing}: {text}; give each reader of the server a database.server.id of its own"
            ) from error
        if code in _LOST and "max_allowed_packet" in text:
            raise ConnectError(f"{doing}: {text}; SET GLOBAL max_allowed_packet = 1073741824") from error
        if code in _LOST:
            raise ConnectError(
                f"{doing}: the server no longer has the binlog from there on ({text}), and changes are lost: {LOST}"
            ) from error
        if code in _AWAY or not code or isinstance(error, pymysql.err.InterfaceError):
            raise Retriable(f"{doing}: {text}") from error
        raise ConnectError(f"{doing}: {text}") from error
    except OSError as error:
        raise Retriable(f"{doing}: {error}") from error


def code_of(error: ConnectError) -> int:
    """The server's number of the error that was explained, or 0."""
    cause = error.__cause__
    number = cause.args[0] if isinstance(cause, pymysql.err.MySQLError) and cause.args else 0
    return number if isinstance(number, int) else 0


def rows(connection: "pymysql.connections.Connection[Any]", statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """All rows of a query of the catalog. Raises what `explained` does."""
    return run("a query of the server's catalog", connection, statement, *parameters)


def run(
    doing: str, connection: "pymysql.connections.Connection[Any]", statement: str, *parameters: Any
) -> list[tuple[Any, ...]]:
    """All rows of a statement's answer. Raises what `explained` does, saying what was being done."""
    with explained(doing), connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return list(cursor.fetchall())


def check_server(connection: "pymysql.connections.Connection[Any]") -> None:
    """Raises ConnectError if the binlog lacks required data, or the user may not read it.

    With binlog_row_metadata=FULL it contains the columns' names, so that changes from before a change of a table are
    read right without keeping a history of all tables.
    """
    names = ", ".join(f"'{name}'" for name in (*_WANTED, *_UNWANTED))
    found = dict(rows(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})"))
    for name, (value, advice) in _WANTED.items():
        if str(found.get(name, "unknown")).upper() != value:
            raise ConnectError(f"the server's {name} is {found.get(name, 'unknown')} and has to be {value}: {advice}")
    for name, value in _UNWANTED.items():
        if str(found.get(name, value)).upper() != value:
            raise ConnectError(
                f"the server's {name} is {found[name]}, which cannot be read: SET GLOBAL {name} = '{value}'"
            )
    grants = [str(grant) for (grant,) in rows(connection, "SHOW GRANTS")]
    by_roles = any(" ON " not in grant for grant in grants)
    if not by_roles and not any(" ON *.* " in grant and _READS_BINLOG.search(grant) for grant in grants):
        raise ConnectError(f"database.user may not read the binlog: {_RIGHTS}")


def check_order(connection: "pymysql.connections.Connection[Any]") -> None:
    """Raises ConnectError if transactions may become visible in another order than they have in the binlog.

    MariaDB has no such setting. A chunk of an incremental snapshot relies on the order; a snapshot under a lock of all
    tables does not.
    """
    found = rows(connection, "SHOW GLOBAL VARIABLES WHERE variable_name IN ('binlog_order_commits')")
    if any(str(value).upper() != "ON" for _, value in found):
        raise ConnectError(
            "the server's binlog_order_commits is OFF, with which an incremental snapshot would lack changes: "
            "SET GLOBAL binlog_order_commits = 'ON', or leave signal.data.collection empty"
        )


_WANTED: Final = {
    "log_bin": ("ON", "set log_bin and restart the server"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW', which sessions have from their next start on"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL'"),
    "binlog_row_metadata": (
        "FULL",
        "SET GLOBAL binlog_row_metadata = 'FULL' (MySQL 8.0.14, MariaDB 10.5 or newer)",
    ),
}
_UNWANTED: Final = {"log_bin_compress": "OFF", "binlog_transaction_compression": "OFF", "binlog_row_value_options": ""}
"""MariaDB's, and two of MySQL's: events that the library does not read."""
_READS_BINLOG: Final = re.compile("ALL PRIVILEGES|REPLICATION SLAVE")
