"""Users of SCRAM that exist before the first start, so that brokers and administrators can log in to a new cluster.

As `kafka-storage.sh format --add-scram` does, from the setting `initial.scram.users`. A user that is there already
keeps the password.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.cluster.commands import SetConfigs
from ottla.cluster.image import MetadataImage, ResourceType, empty_image
from ottla.cluster.scram_credentials import credential_text
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.metadata.store import layout
from ottla.metadata.store.base import MetadataStore, StoreConflict
from ottla.security.sasl import FEWEST_ITERATIONS, MOST_ITERATIONS, credential, salted

log = logging.getLogger(__name__)

SETTING: Final = "initial.scram.users"
_ENTRY: Final = re.compile(
    r"\s*(SCRAM-SHA-256|SCRAM-SHA-512)=\[((?:name|password|iterations)=[^\]]*)\]\s*(?:[,;]|\s|$)\s*"
)
_PART: Final = re.compile(r"(?:^|,)\s*(name|password|iterations)=")
_SALT_BYTES: Final = 16
_ATTEMPTS: Final = 5


class InitialUser(NamedTuple):
    """A user with a password for one mechanism."""

    mechanism: str
    name: str
    password: str
    iterations: int

    def __repr__(self) -> str:
        """Without the password."""
        return f"InitialUser({self.mechanism}, {self.name})"


def initial_users(text: str) -> list[InitialUser]:
    """The users of the setting. Raises `InvalidConfig`, which quotes no password."""
    return list(_parsed(text.strip()))


def _parsed(text: str) -> Iterator[InitialUser]:
    at = 0
    while at < len(text):
        found = _ENTRY.match(text, at)
        if found is None:
            raise _malformed("it is not a list of such entries")
        at = found.end()
        mechanism, content = found.groups()
        pieces = _PART.split(content)
        parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
        iterations = parts.get("iterations", str(FEWEST_ITERATIONS)).strip()
        if not parts.get("name") or not parts.get("password"):
            raise _malformed("an entry has no name or no password")
        if not iterations.isdecimal() or not FEWEST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            raise _malformed(f"iterations are between {FEWEST_ITERATIONS} and {MOST_ITERATIONS}")
        yield InitialUser(mechanism, parts["name"], parts["password"], int(iterations))


def _malformed(why: str) -> InvalidConfig:
    return InvalidConfig(f"{SETTING}: {why}; it has the form SCRAM-SHA-512=[name=admin,password=...]")


def warn_of_missing_users(config: BrokerConfig, image: MetadataImage) -> None:
    """Warn of users of the setting that a cluster under a quorum does not have: only its first controller adds any."""
    missing = [
        f"{user.name} ({user.mechanism})"
        for user in initial_users(config.initial_scram_users or "")
        if user.mechanism not in image.config(ResourceType.USER, user.name)
    ]
    if missing:
        log.warning(
            "%s: this cluster has no such users: %s; under a quorum the setting acts only where a new cluster's "
            "controllers have it: add them with `ottla user set` or kafka-configs.sh",
            SETTING,
            ", ".join(missing),
        )


async def add_initial_users(store: MetadataStore, config: BrokerConfig) -> None:
    """Give the users of the setting that have no password yet theirs; the store is open.

    Raises `InvalidConfig`, `StoreUnavailable`, `StoreConflict`, `MalformedNode`.
    """
    for user in initial_users(config.initial_scram_users or ""):
        for attempt in range(_ATTEMPTS):
            try:
                await _add(store, user)
                break
            except StoreConflict:  # another broker starts at the same time
                if attempt == _ATTEMPTS - 1:
                    raise


async def _add(store: MetadataStore, user: InitialUser) -> None:
    path = layout.config_path(ResourceType.USER, user.name)
    node = (await store.read(path)).get(path)
    known = layout.read_configs(path, node)
    configs = {} if known is None else dict(known.configs)
    if user.mechanism in configs:
        return
    salt = secrets.token_bytes(_SALT_BYTES)
    loop = asyncio.get_running_loop()
    hashed = await loop.run_in_executor(None, salted, user.mechanism, user.password, salt, user.iterations)
    configs[user.mechanism] = credential_text(credential(user.mechanism, hashed, salt, user.iterations))
    versions = {} if node is None else {path: node.version}
    command = SetConfigs(ResourceType.USER, user.name, configs)
    await store.commit(
        layout.operations_for([command], empty_image(""), versions, controller_epoch=0, now_ms=0, notify=True)
    )
