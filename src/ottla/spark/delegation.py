"""Delegation tokens for tasks: Spark's driver logs in as its user, tasks with a token that ends (KIP-48).

    driver      password, certificate or provider --> token, renewed in the middle of its time, replaced before its end
    tasks       get the token's id and secret with their partitions, and never the driver's credentials

Spark's own tokens are obtained in the JVM for Kerberos alone, and no Python data source is asked for them. Several
Python processes plan the micro-batches of a driver, so the token is kept in a file of the user that owns them.
"""

import fcntl
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import ClientError
from ottla.client.properties import TOKEN_LOGIN
from ottla.client.sansio.sasl import SCRAM_MECHANISMS
from ottla.spark.client_settings import ClientSettings, as_settings
from ottla.spark.errors import OptionError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RENEWED_AT: Final = 0.5
_REPLACED_AT: Final = 0.75
_DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
_CLUSTERS: Final = "spark.kafka.clusters"
_NOT_OPTIONS: Final = ("target.bootstrap.servers.regex", "sasl.token.mechanism")


class KeptToken(NamedTuple):
    """A token of the driver; times are milliseconds since 1970."""

    token_id: str
    secret: str
    made_ms: int
    renewed_ms: int
    expires_ms: int
    max_ms: int

    def __repr__(self) -> str:
        """Without its secret."""
        return f"KeptToken({self.token_id}, expires_ms={self.expires_ms})"


class Next(Enum):
    """What to do before tasks are given a token."""

    USE = auto()
    RENEW = auto()
    REPLACE = auto()


def judged(kept: KeptToken | None, now_ms: int) -> Next:
    """What to do with the token that was kept."""
    if kept is None or now_ms >= kept.expires_ms:
        return Next.REPLACE
    if now_ms >= kept.made_ms + _REPLACED_AT * (kept.max_ms - kept.made_ms):
        return Next.REPLACE
    is_late = now_ms >= kept.renewed_ms + _RENEWED_AT * (kept.expires_ms - kept.renewed_ms)
    return Next.RENEW if is_late else Next.USE


def for_tasks(client: ClientSettings) -> ClientSettings:
    """The settings with which tasks log in, by a token of the user of `client`. On the driver.

    Raises OptionError if the connection has no login, SourceError if the brokers give no token.
    """
    given = dict(client)
    if not given.get("security.protocol", "").lower().startswith("sasl_"):
        raise OptionError("'delegationTokens' needs 'kafka.security.protocol' SASL_SSL or SASL_PLAINTEXT")
    with _kept(client) as file:
        token = _read(file)
        now_ms = int(time.time() * 1000)
        todo = judged(token, now_ms)
        if token is None or todo is not Next.USE:
            token = _asked(given, token if todo is Next.RENEW else None, now_ms)
            _write(file, token)
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    return as_settings(
        {
            **dict(without_login(client)),
            "sasl.mechanism": mechanism if mechanism in SCRAM_MECHANISMS else _DEFAULT_MECHANISM,
            "sasl.username": token.token_id,
            "sasl.password": token.secret,
            TOKEN_LOGIN: "true",
        }
    )


def without_login(client: ClientSettings) -> ClientSettings:
    """The settings without what identifies the driver's user."""
    own = ("sasl.", "ssl.keystore.", "ssl.key.", "ssl.certificate.")
    return as_settings({name: value for name, value in client if not name.startswith(own) and name != TOKEN_LOGIN})


def _asked(given: dict[str, str], renewable: KeptToken | None, now_ms: int) -> KeptToken:
    from base64 import b64decode

    from ottla.admin import Admin, RequestRefused

    try:
        with Admin(given["bootstrap.servers"], client_id="ottla-spark", properties=given) as admin:
            if renewable is not None:
                try:
                    expires_ms = admin.renew_delegation_token(b64decode(renewable.secret))
                except RequestRefused:
                    pass  # it was ended, or the brokers lost it: another one takes its place
                else:
                    return renewable._replace(renewed_ms=now_ms, expires_ms=expires_ms)
            made = admin.create_delegation_token()
    except (ClientError, ValueError) as error:
        raise SourceError(f"no delegation token for the tasks: {error}") from error
    return KeptToken(made.token_id, made.secret, now_ms, now_ms, made.expires_ms, made.max_ms)


@contextmanager
def _kept(client: ClientSettings) -> Iterator[int]:
    """The file of the token, locked; nobody else can read it. Raises SourceError for a directory of another user."""
    directory = Path(tempfile.gettempdir()) / f"ottla-tokens-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise SourceError(f"{directory} is open to other users: no delegation token is kept there; remove it")
    name = hashlib.sha256(json.dumps(sorted(client)).encode()).hexdigest()[:32]
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(file: int) -> KeptToken | None:
    content = os.pread(file, 1 << 16, 0)
    try:
        return KeptToken(**json.loads(content))
    except (ValueError, TypeError):  # new, or written in the midst of a crash
        return None


def _write(file: int, token: KeptToken) -> None:
    content = json.dumps(token._asdict()).encode()
    os.ftruncate(file, 0)
    os.pwrite(file, content, 0)


def cluster_options(spark: "SparkSession", name: str) -> dict[str, str]:
    """Options of a read or write from the session's settings `spark.kafka.clusters.NAME.*`, with delegation tokens.

    They are those of Spark's own connector: `auth.bootstrap.servers`, `security.protocol` (SASL_SSL by default),
    `ssl.*`, and `kafka.*` for all else. Raises OptionError if there is no such cluster.
    """
    prefix = f"{_CLUSTERS}.{name}."
    given = {
        key.removeprefix(prefix): value
        for key, value in spark.sparkContext.getConf().getAll()
        if key.startswith(prefix)
    }
    servers = given.pop("auth.bootstrap.servers", None)
    if servers is None:
        raise OptionError(f"the session has no setting {prefix}auth.bootstrap.servers")
    own = {key: value for key, value in given.items() if key not in _NOT_OPTIONS}
    return {
        "kafka.security.protocol": "SASL_SSL",
        **{f"kafka.{key.removeprefix('kafka.')}": value for key, value in own.items()},
        "kafka.bootstrap.servers": servers,
        "delegationTokens": "true",
    }
