"""The database itself: how it is reached, and what its failures mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import ConfigError, ConnectError, Retriable
from ottla.connect.connectors.relational.settings import DatabaseSettings

if TYPE_CHECKING:
    from sqlalchemy import Engine

_DRIVERS: Final = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}
_REFUSALS: Final = (
    "password authentication failed",
    "Access denied",
    "does not exist",
    "Unknown database",
    "no pg_hba.conf entry",
    "unable to open database file",
    "permission denied",
    "readonly database",
)


def engine(settings: DatabaseSettings) -> "Engine":
    """One connection at a time, kept. Raises ConfigError for a URL that is none, or whose driver is not installed."""
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    text = settings.connection_url
    if text.startswith("jdbc:"):
        text = text.removeprefix("jdbc:")
        kind, _, rest = text.partition(":")
        text = f"{_DRIVERS[kind]}:{rest}" if kind in _DRIVERS else text
        if kind == "sqlite" and not rest.startswith("//"):
            text = f"sqlite:///{rest}"
    try:
        url = make_url(text)
        if url.drivername in _DRIVERS:
            url = url.set(drivername=_DRIVERS[url.drivername])
        if settings.connection_user:
            url = url.set(username=settings.connection_user)
        if settings.connection_password is not None:
            url = url.set(password=settings.connection_password.get_secret_value())
        more: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 1, "max_overflow": 1}
        if url.get_backend_name() == "sqlite":
            more = {"connect_args": {"timeout": 30}}
        return create_engine(url, **more)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            f"connection.url is no URL of a database that SQLAlchemy knows: {error}", "connection.url"
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"connection.url needs the package {error.name}: pip install {error.name}", "connection.url"
        ) from error


def describe(settings: DatabaseSettings) -> str:
    """The database without its password."""
    from sqlalchemy import make_url

    url = make_url(settings.connection_url.removeprefix("jdbc:"))
    return url.set(query={}).render_as_string(hide_password=True)


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
        away = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
        if away and not any(each in text for each in _REFUSALS):
            raise Retriable(f"{doing} failed: {text}") from error
        raise ConnectError(f"{doing} failed: {text}") from error
