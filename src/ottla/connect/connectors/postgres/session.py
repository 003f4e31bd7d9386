"""Connections to PostgreSQL, and sentences about their failures for a connector's status.

psycopg2: the only maintained driver with the replication protocol; psycopg 3, asyncpg and pg8000 have none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import psycopg2
import psycopg2.extensions
from psycopg2 import errorcodes
from psycopg2.extras import LogicalReplicationConnection

from ottla.connect.api import ConnectError, Retriable, SecretStr
from ottla.connect.connectors.postgres.decoding.types import SESSION

_REFUSED: Final = (
    ("password authentication failed", "check database.user and database.password"),
    ("no password supplied", "set database.password"),
    ("role ", "check database.user"),
    ("no pg_hba.conf entry", "let this machine in by a line of the server's pg_hba.conf, or check database.sslmode"),
    ("does not support SSL", "set database.sslmode to prefer or disable"),
    ("certificate", "check database.sslmode and database.sslrootcert"),
    ("database ", "check database.dbname"),
)
SYSTEM_CERTIFICATES: Final = "system"
"""The value of `sslrootcert` that names no file, but the machine's own authorities."""
_NO_REPLICATION: Final = ("must be superuser or replication role", "permission denied to start WAL sender")
_COMES_OR_GOES: Final = ("the database system is ", "terminating connection due to administrator command")
"""Starting up, shutting down, in recovery, not yet accepting connections: messages during a restart or failover."""
_PERMANENT: Final = ("28", "42", "3D", "0A", "22", "55", "54")
"""Classes of SQLSTATEs that a retry does not mend: rights, syntax, unknown names, unsupported, wrong state, limits."""
_PASSING: Final = (errorcodes.OBJECT_IN_USE, errorcodes.LOCK_NOT_AVAILABLE, errorcodes.DEADLOCK_DETECTED)

PostgresConnection = psycopg2.extensions.connection


class Address(Protocol):
    """The settings that say where the database is."""

    @property
    def database_hostname(self) -> str: ...
    @property
    def database_port(self) -> int: ...
    @property
    def database_user(self) -> str: ...
    @property
    def database_password(self) -> SecretStr | None: ...
    @property
    def database_dbname(self) -> str: ...
    @property
    def database_sslmode(self) -> str: ...
    @property
    def database_sslrootcert(self) -> str: ...


def connect(address: Address, name: str, *, replication: bool = False) -> Any:
    """A connection in autocommit; of the replication protocol, if asked. `name` is what the server's tables show.

    Raises ConnectError if the server refuses, Retriable if it cannot be reached.
    """
    options: dict[str, Any] = {
        "host": address.database_hostname,
        "port": address.database_port,
        "user": address.database_user,
        "dbname": address.database_dbname,
        "sslmode": address.database_sslmode,
        "application_name": name,
        "connect_timeout": 10,
        "options": SESSION,
        "client_encoding": "UTF8",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    if address.database_password is not None:
        options["password"] = address.database_password.get_secret_value()
    if address.database_sslrootcert:
        options["sslrootcert"] = address.database_sslrootcert
    try:
        if replication:
            return psycopg2.connect(connection_factory=LogicalReplicationConnection, **options)
        opened = psycopg2.connect(**options)
        opened.autocommit = True
        return opened
    except psycopg2.OperationalError as error:
        raise _refused(address, str(error)) from error


def _refused(address: Address, message: str) -> ConnectError:
    text = " ".join(message.split())
    where = f"PostgreSQL at {address.database_hostname}:{address.database_port}"
    if any(each in text for each in _NO_REPLICATION):
        user = address.database_user
        return ConnectError(f"role {user} may not replicate: a superuser has to run ALTER ROLE {user} REPLICATION")
    if "too many clients" in text or "remaining connection slots" in text or "max_wal_senders" in text:
        return Retriable(f"{where} has no connection left: raise max_connections or max_wal_senders ({text})")
    if any(each in text for each in _COMES_OR_GOES):
        return Retriable(f"{where} is restarting: {text}")
    if "FATAL" in text or "SSL" in text:
        advice = next((advice for words, advice in _REFUSED if words in text), None)
        if advice is not None:
            return ConnectError(f"{where} refused the connection: {text}; {advice}")
    return Retriable(f"{where} cannot be reached: {text}")


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raise what the driver raises as ConnectError or Retriable, saying what was being done."""
    try:
        yield
    except psycopg2.Error as error:
        text = " ".join(str(error).split())
        code = error.pgcode or ""
        if code == errorcodes.INSUFFICIENT_PRIVILEGE:
            raise ConnectError(
                f"{doing} failed: {text}; grant the role of database.user the right to do that"
            ) from error
        if code[:2] in _PERMANENT and code not in _PASSING:
            raise ConnectError(f"{doing} failed: {text}") from error
        raise Retriable(f"{doing} failed: {text}") from error


def rows(connection: PostgresConnection, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """All rows of a query. Raises what `explained` does."""
    with explained("a query of PostgreSQL's catalog"), connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def lsn_number(text: str) -> int:
    """`16/B374D848` as the number that it is."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(number: int) -> str:
    """A number as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
