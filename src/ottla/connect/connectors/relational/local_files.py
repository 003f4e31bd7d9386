"""Files of the worker's machine that the URL of a database names, or may name.

The drivers take parameters of the URL as they are, and some of these read files: certificates, option files, files that
a server asks for. Parameters that are not known to be harmless count as files, so that no driver's parameter is missed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ottla.connect.api import ConfigError
from ottla.connect.connectors.relational.database import DRIVERS, parsed_url
from ottla.connect.connectors.relational.settings import DatabaseSettings

if TYPE_CHECKING:
    from sqlalchemy import URL

_SYSTEM_CERTIFICATES: Final = ("sslrootcert", "system")
"""A value of libpq's that names no file."""
_ANY_FILE: Final = ("local_infile", "allow_local_infile")
"""Parameters with which a server may ask for any file (LOAD DATA LOCAL INFILE)."""
_HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "postgresql": frozenset(
        {
            "application_name",
            "channel_binding",
            "client_encoding",
            "connect_timeout",
            "fallback_application_name",
            "gssencmode",
            "host",
            "hostaddr",
            "keepalives",
            "keepalives_count",
            "keepalives_idle",
            "keepalives_interval",
            "krbsrvname",
            "load_balance_hosts",
            "options",
            "password",
            "port",
            "require_auth",
            "requirepeer",
            "ssl_max_protocol_version",
            "ssl_min_protocol_version",
            "sslcertmode",
            "sslcompression",
            "sslmode",
            "sslnegotiation",
            "sslpassword",
            "sslsni",
            "target_session_attrs",
            "tcp_user_timeout",
            "user",
        }
    ),
    "mysql": frozenset(
        {
            "autocommit",
            "bind_address",
            "charset",
            "collation",
            "compress",
            "connect_timeout",
            "init_command",
            "max_allowed_packet",
            "program_name",
            "read_timeout",
            "sql_mode",
            "ssl_check_hostname",
            "ssl_cipher",
            "ssl_disabled",
            "ssl_verify_cert",
            "ssl_verify_identity",
            "unix_socket",
            "use_unicode",
            "write_timeout",
        }
    ),
    "sqlite": frozenset(
        {
            "cache",
            "cached_statements",
            "check_same_thread",
            "detect_types",
            "immutable",
            "isolation_level",
            "mode",
            "nolock",
            "psow",
            "timeout",
            "uri",
        }
    ),
}
"""Parameters that read and write no file, by the kind of database."""


def local_paths(settings: DatabaseSettings) -> dict[str, list[str]]:
    """The file of a database that is one, as SQLite's are, and the values of parameters that may name files."""
    from sqlalchemy.exc import ArgumentError

    try:
        url = parsed_url(settings)
    except (ArgumentError, ValueError, ConfigError):  # the connector reports the error
        return {}
    paths = _database(url) + _parameters(url)
    return {"connection.url": paths} if paths else {}


def _database(url: "URL") -> list[str]:
    name = url.database or ""
    if url.get_backend_name() in DRIVERS or url.host:
        return []
    paths = [name]
    if name.startswith("file:"):  # SQLite decodes what is left of such a name
        paths = [unquote(name.removeprefix("file:").partition("?")[0])]
    return [path for path in paths if path not in ("", ":memory:")]


def _parameters(url: "URL") -> list[str]:
    kind = "mysql" if url.get_backend_name() == "mariadb" else url.get_backend_name()
    harmless = _HARMLESS.get(kind, frozenset())
    return [
        "/" if name in _ANY_FILE else value
        for name, given in url.query.items()
        if name not in harmless
        for value in ([given] if isinstance(given, str) else given)
        if (name, value) != _SYSTEM_CERTIFICATES
    ]
