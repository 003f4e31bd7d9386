"""The database itself: how it is reached, and what its failures mean."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import ConfigError, ConnectError, Retriable
from ottla.connect.connectors.relational.settings import DatabaseSettings

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, CursorResult, Engine
    from sqlalchemy.engine import ExceptionContext
    from sqlalchemy.exc import DBAPIError

DRIVERS: Final = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}
_IN_UTC: Final = {
    "postgresql": "SET TIME ZONE 'UTC'",
    "mysql": "SET time_zone = '+00:00'",
    "mariadb": "SET time_zone = '+00:00'",
}
"""So that times without a zone, which are UTC's in records, mean the same in columns that have one."""
_ENCRYPTING: Final = ("ssl", "sslmode", "sslMode", "useSSL", "requireSSL")
_NOT: Final = ("", "false", "disable", "disabled", "prefer", "preferred", "allow")
_REFUSALS: Final = (
    ("password authentication failed", "check connection.user and connection.password"),
    ("no password supplied", "set connection.password"),
    ("Access denied", "check connection.user and connection.password, and what the user may do"),
    ("command denied", "grant the user the right to do that"),
    ("permission denied", "grant the user the right to do that"),
    ("Unknown database", "check connection.url"),
    ("no pg_hba.conf entry", "let this machine in by a line of the server's pg_hba.conf"),
    ("unable to open database file", "check connection.url, and that the directory is there and may be written to"),
    ("readonly database", "let the file and its directory be written to"),
    ("does not exist", "check the names in connection.url and in the settings"),
)
"""Words of refusals that stay, and what to do."""
_PERMANENT: Final = ("28", "42", "3D", "0A")
"""Classes of SQLSTATEs: rights, unknown names, unsupported. PyMySQL raises for them what it does for a lost server."""
_OF_ROWS: Final = ("22", "23", "54")
"""Classes of SQLSTATEs: values, constraints, limits (an entry of an index that is too long)."""
_OF_VALUES: Final = (
    "can not be used with MySQL",
    "UnicodeEncodeError",
    "doesn't have a default value",
    "Check constraint ",
)
"""Drivers' words for values that they do not send, and MySQL's for rows that it refuses with no SQLSTATE of its own."""


def engine(settings: DatabaseSettings) -> "Engine":
    """One connection at a time, kept, in sessions whose time zone is UTC.

    Raises ConfigError for a URL that is none, or whose driver is not installed.
    """
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        url = parsed_url(settings)
        more: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 1, "max_overflow": 1}
        if url.get_backend_name() == "sqlite":
            more = {"connect_args": {"timeout": 30}}
        made = create_engine(url, **more)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            f"connection.url is no URL of a database that SQLAlchemy knows: {error}", "connection.url"
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"connection.url needs the package {error.name}: pip install {error.name}", "connection.url"
        ) from error
    in_utc = _IN_UTC.get(url.get_backend_name())
    if in_utc is not None:

        def set_zone(connection: Any, _record: object) -> None:
            with closing(connection.cursor()) as cursor:
                cursor.execute(in_utc)
            connection.commit()  # a rollback would take it back

        event.listen(made, "connect", set_zone)
    event.listen(made, "handle_error", _close_broken_cursor)
    return made


def _close_broken_cursor(failure: "ExceptionContext") -> None:
    """Close the cursor of a connection that has just broken, which SQLAlchemy leaves open and psycopg warns of."""
    cursor = getattr(failure.execution_context, "cursor", None)  # `failure.cursor` is documented, and never set
    if failure.is_disconnect and cursor is not None:
        close_broken(cursor)


def close_broken(cursor: Any) -> None:
    """Close a cursor of the driver whose connection may be gone.

    psycopg leaves one open when the connection breaks while it is closed: the second time, it knows.
    """
    for _ in range(2):
        with suppress(Exception):
            cursor.close()


def leave_unread(result: "CursorResult[Any]", cursor: Any) -> None:
    """Give up the connection of a result that PyMySQL would read to its end, however long, to close its cursor.

    Of a connection that broke it would read, too, and raise AttributeError, again when the cursor is deleted.
    """
    unread: Any = getattr(cursor, "_result", None)
    if getattr(unread, "unbuffered_active", False):
        unread.unbuffered_active = False
        result.connection.invalidate()


@contextmanager
def connected(settings: DatabaseSettings) -> "Iterator[Connection]":
    """A connection for one look at the database, of an engine that is disposed of at the end.

    A pool that nobody disposes of leaves its connection to the collector. Raises what `engine` and `explained` do.
    """
    found = engine(settings)
    try:
        with explained(f"reaching {describe(settings)}"), found.connect() as connection:
            yield connection
    finally:
        found.dispose()


def parsed_url(settings: DatabaseSettings) -> "URL":
    """SQLAlchemy's URL, with driver, user and password.

    Raises ArgumentError for what is no URL, ConfigError for what JDBC would do and this cannot.
    """
    from sqlalchemy import make_url

    text = settings.connection_url
    if text.startswith("jdbc:"):
        kind, _, rest = text.removeprefix("jdbc:").partition(":")
        if kind == "sqlite" and not rest.startswith("//"):
            rest = f"///{rest}"
        url = _without_jdbc(make_url(f"{kind}:{rest}"))
    else:
        url = make_url(text)
    if url.drivername in DRIVERS:
        url = url.set(drivername=DRIVERS[url.drivername])
    if settings.connection_user:
        url = url.set(username=settings.connection_user)
    if settings.connection_password is not None:
        url = url.set(password=settings.connection_password.get_secret_value())
    return url


def _without_jdbc(url: "URL") -> "URL":
    """A URL without the properties of Java's drivers; relevant ones are translated for Python's drivers."""
    said = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    url = url.set(username=said.get("user", url.username), password=said.get("password", url.password), query={})
    encrypts = next((f"{name}={said[name]}" for name in _ENCRYPTING if said.get(name, "").lower() not in _NOT), None)
    if url.drivername == "postgresql":
        query: dict[str, str] = {
            name: said[name] for name in ("sslmode", "sslrootcert", "sslcert", "sslkey") if name in said
        }
        if encrypts and "sslmode" not in query and "ssl" in said:
            query["sslmode"] = "verify-full"
        if "currentSchema" in said:
            query["options"] = f"-csearch_path={said['currentSchema']}"
        return url.set(query=query)
    if encrypts and url.drivername in DRIVERS:
        raise ConfigError(
            f"connection.url asks for {encrypts}, which is JDBC's alone: write it as SQLAlchemy's "
            "mysql+pymysql://user@host/name?ssl_ca=FILE",
            "connection.url",
        )
    return url


def describe(settings: DatabaseSettings) -> str:
    """The database without its password."""
    from sqlalchemy.exc import ArgumentError

    try:
        return parsed_url(settings).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ConfigError):
        return "the database of connection.url"


def is_of_rows(error: Exception) -> bool:
    """Whether a database, or its driver, does not take the rows themselves: they will not do later either."""
    from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

    if isinstance(error, DataError | IntegrityError | UnicodeError):
        return True
    if isinstance(error, DBAPIError):
        said = str(error.orig)
        return _sqlstate(error)[:2] in _OF_ROWS or any(each in said for each in _OF_VALUES)
    return isinstance(error, StatementError)  # what is raised before the driver is asked: a text for a date, say


def is_of_a_key_twice(error: Exception) -> bool:
    """Whether PostgreSQL found two rows of one statement to have the same key."""
    from sqlalchemy.exc import DBAPIError

    return isinstance(error, DBAPIError) and _sqlstate(error) == "21000"


def _sqlstate(error: "DBAPIError") -> str:
    """The SQLSTATE from psycopg, psycopg2 or PyMySQL; empty if there is none."""
    found = error.orig
    return str(getattr(found, "sqlstate", None) or getattr(found, "pgcode", None) or "")


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raise what SQLAlchemy raises as ConnectError or, where the database is away or busy, Retriable."""
    from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchTableError, OperationalError

    try:
        yield
    except NoSuchTableError as error:
        raise ConnectError(f"{doing}: there is no table {error}") from error
    except DBAPIError as error:
        text = " ".join(str(error.orig).split())
        advice = next((advice for words, advice in _REFUSALS if words in text), None)
        away = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
        if away and advice is None and _sqlstate(error)[:2] not in _PERMANENT:
            raise Retriable(f"{doing} failed: {text}") from error
        raise ConnectError(f"{doing} failed: {text}{f'; {advice}' if advice else ''}") from error
