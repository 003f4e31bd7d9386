"""Access to files on any file system of fsspec, with each failure as one sentence."""

import gzip
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pydantic import field_validator

from ottla.connect.api import ConfigError, ConnectError, Retriable, SecretStr, Settings, setting

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_WILD: Final = re.compile(r"[*?\[]")
_REMOTE: Final = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "webhdfs", "http", "https", "sftp", "ssh", "ftp"}
    | {"memory"}
)
"""File systems of other machines, and the one that lasts as long as the process."""
_PERMANENT: Final = (
    PermissionError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    gzip.BadGzipFile,
)
_MISCONFIGURED: Final = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ParamValidationError")
"""What botocore raises before it asks a server, and would raise again."""


class StoreSettings(Settings):
    """Where files are, and how the place is reached."""

    path: str = setting(
        "Directory, file or pattern (/data/in/*.csv, s3://bucket/in/*.csv); any URL that fsspec knows.",
        importance="high",
    )
    storage_options: SecretStr = setting(
        "Options of the file system as an object of JSON, such as key, secret and endpoint_url for S3.",
        default_factory=lambda: SecretStr("{}"),
    )

    @field_validator("storage_options")
    @classmethod
    def _object(cls, options: SecretStr) -> SecretStr:
        try:
            parsed = json.loads(options.get_secret_value())
        except ValueError as error:
            raise ValueError("this is no JSON") from error
        if not isinstance(parsed, dict):
            raise ValueError("this is no object of JSON")
        return options


def local_paths(settings: StoreSettings) -> list[str]:
    """The files of this machine that the path covers: up to its first wildcard; none for those of other machines.

    All of them for a URL that may have others in it (`zip://a.csv::file:///b.zip`, `simplecache::/b.csv`).
    """
    from fsspec.implementations.local import LocalFileSystem

    kind, divided, _ = settings.path.partition("://")
    if "::" in settings.path:
        return ["/"]
    if not divided or kind in ("file", "local"):
        path = LocalFileSystem._strip_protocol(settings.path)  # as it is opened: `file:/a`, `~/a`, relative ones
        return [path if ".." in path.split("/") else _WILD.split(path)[0]]
    return [] if kind in _REMOTE else ["/"]


def store(settings: StoreSettings) -> "tuple[AbstractFileSystem, str]":
    """The file system, and the path in it. Raises ConfigError for a URL of an unknown kind or a package that lacks."""
    from fsspec.core import url_to_fs

    options: dict[str, Any] = json.loads(settings.storage_options.get_secret_value())
    try:
        found, path = url_to_fs(settings.path, use_listings_cache=False, skip_instance_cache=True, **options)
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigError(f"path {settings.path} cannot be used: {error}", "path") from error
    return found, path


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Raise what file systems raise: ConnectError for what is not there or not allowed, Retriable for the rest."""
    try:
        yield
    except _PERMANENT as error:
        raise ConnectError(f"{doing} failed: {str(error) or type(error).__name__}") from error
    except OSError as error:
        raise Retriable(f"{doing} failed: {error}") from error
    except Exception as error:
        library: Any = sys.modules.get(
            "botocore.exceptions"
        )  # there if files are in S3: s3fs lets some of them through
        if library is None or not isinstance(error, library.BotoCoreError):
            raise
        if type(error).__name__ in _MISCONFIGURED:
            raise ConnectError(f"{doing} failed: {error}; look at storage.options") from error
        raise Retriable(f"{doing} failed: {error}") from error
