"""PURE. What a user logs in with by SCRAM, as the metadata keeps it: a user's setting, named like the mechanism."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.errors import InvalidConfig

SCRAM_CODES: Final[Mapping[int, str]] = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
"""The mechanisms by their numbers in requests and records (KIP-554)."""


class ScramCredential(NamedTuple):
    """What a broker stores of a user: enough to check a password, too little to log in with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def credential_text(stored: ScramCredential) -> str:
    """In the form in which Kafka keeps it in ZooKeeper (`ScramCredentialUtils`)."""
    salt, stored_key, server_key = (b64encode(part).decode() for part in stored[:3])
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={stored.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """The reverse of `credential_text`. Raises `InvalidConfig`, which does not quote it."""
    fields = dict(field.partition("=")[::2] for field in text.split(","))
    try:
        salt, stored_key, server_key = (
            b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))
    except (KeyError, ValueError) as error:
        raise InvalidConfig("a SCRAM credential has not the form salt=,stored_key=,server_key=,iterations=") from error
