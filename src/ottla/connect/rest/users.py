"""The users of the REST API: a file with `name=password` a line, read again when it has changed.

Kafka Connect's `BasicAuthSecurityRestExtension` names such a file in a JAAS configuration:

    KafkaConnect {
        org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required
        file="/etc/kafka/connect-users.properties";
    };

The configuration is named by `-Djava.security.auth.login.config=FILE` in the variable KAFKA_OPTS, as Kafka's start
scripts have it, or by the worker's setting `rest.jaas.file`.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ottla.config.jaas import login_module
from ottla.config.properties import PropertiesProblem, parse_properties
from ottla.connect.errors import ConfigError
from ottla.connect.rest.passwords import is_hash, problem
from ottla.errors import InvalidConfig

log = logging.getLogger(__name__)

EXTENSION: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
JAAS: Final = "rest.jaas.file"
USERS: Final = "rest.users.file"
LOOK_AGAIN_S: Final = 0.5
_MODULE: Final = "PropertyFileLoginModule"
_OPTION: Final = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
_SECTION: Final = re.compile(r"\bKafkaConnect\s*\{(.*?)\}\s*;", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*.*?\*/|^\s*//[^\n]*|^\s*#[^\n]*", re.DOTALL | re.MULTILINE)
_MOST_BYTES: Final = 1 << 20


def jaas_users_file(jaas: str | None, environment: Mapping[str, str] | None = None) -> Path:
    """The file of users that a JAAS configuration names. jaas: its path. Raises ConfigError."""
    if jaas is None:
        found = _OPTION.search((os.environ if environment is None else environment).get("KAFKA_OPTS", ""))
        if found is None:
            raise ConfigError(
                f"rest.extension.classes={EXTENSION} takes its users from a JAAS configuration: name it with "
                f"{JAAS}, or with -Djava.security.auth.login.config=FILE in the variable KAFKA_OPTS",
                JAAS,
            )
        jaas = found.group(1).strip("'\"")
    section = _SECTION.search(_COMMENT.sub("", _text(Path(jaas), JAAS)))
    if section is None:
        raise ConfigError(f"{jaas} has no section KafkaConnect {{ ... }};", JAAS)
    try:
        module = login_module(jaas, section.group(1))
    except InvalidConfig as wrong:
        raise ConfigError(str(wrong), JAAS) from None
    if module.name != _MODULE:
        raise ConfigError(f"{jaas}: the login module {module.class_name} is not served; {_MODULE} is", JAAS)
    file = module.options.get("file")
    if not file:
        raise ConfigError(f'{jaas}: {_MODULE} has no option file="...", the file of its users', JAAS)
    return Path(file)


class Users:
    """The passwords of a file, by user. Raises ConfigError if it cannot be read at first.

    One that cannot be read later lets nobody in: a user who was removed stays removed.
    """

    def __init__(self, file: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._file, self._now = file, now
        self._seen = self._stat()
        self._passwords: Mapping[str, str] = _read(file)
        self._looked_at = now()
        self.revision = 0
        """Another one after each change of the file."""

    def kept(self, user: str) -> str | None:
        """The password, or its hash; None for nobody."""
        self.refresh()
        return self._passwords.get(user)

    def refresh(self) -> None:
        """Read the file again if it has changed; looks twice a second at most."""
        if self._now() - self._looked_at < LOOK_AGAIN_S:
            return
        self._looked_at = self._now()
        seen = self._stat()
        if seen == self._seen:
            return
        self._seen = seen
        self.revision += 1
        try:
            self._passwords = _read(self._file)
        except ConfigError as wrong:
            self._passwords = {}
            log.error("%s; nobody can log in to the REST API with a password", wrong)
        else:
            log.info("the users of the REST API were read again from %s", self._file)

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _read(file: Path) -> Mapping[str, str]:
    try:
        found = parse_properties(_text(file, USERS))
    except PropertiesProblem:  # it quotes the line
        raise ConfigError(f"{file} has a line that is not of the form name=password", USERS) from None
    if not found:  # Kafka's module would let everybody in
        raise ConfigError(f"{file} has no user: it has lines of the form name=password", USERS)
    for user, password in found.items():
        if not password:
            raise ConfigError(f"{file}: {user} has no password", USERS)
        if is_hash(password) and (why := problem(password)) is not None:
            raise ConfigError(f"{file}: the password of {user} {why}", USERS)
    return found


def _text(file: Path, setting: str) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{file} is larger than 1 MiB: does {setting} name the right file?", setting)
        return content.decode()
    except OSError as failure:
        raise ConfigError(f"{file} cannot be read: {failure.strerror}", setting) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text", setting) from None
