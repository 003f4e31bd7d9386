"""Users of SCRAM as `kafka-storage.sh format --add-scram` takes them.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="N3E=",saltedpassword="YCE="]

No error quotes a password. Source: Kafka 4.3, `ScramParser`.
"""

import secrets
from base64 import b64decode
from typing import Final

from ottla.cluster.metadata_log.settings import MECHANISM_CODES
from ottla.errors import InvalidConfig
from ottla.protocol.metadata_records import UserScramCredentialRecord
from ottla.security.sasl import FEWEST_ITERATIONS, MOST_ITERATIONS, credential, salted

OPTION: Final = "--add-scram"
_FORM: Final = "SCRAM-SHA-512=[name=admin,password=...]"
_PARTS: Final = ("name", "password", "iterations", "salt", "saltedpassword")
_SALT_BYTES: Final = 24


def argument_record(text: str) -> UserScramCredentialRecord:
    """The record of one user; salting its password takes milliseconds. Raises `InvalidConfig`."""
    mechanism, parts = _parsed(text)
    iterations = _iterations(parts.get("iterations"))
    salt = _decoded("salt", parts["salt"]) if "salt" in parts else secrets.token_bytes(_SALT_BYTES)
    if "password" in parts:
        hashed = salted(mechanism, parts["password"], salt, iterations)
    elif "saltedpassword" not in parts:
        raise InvalidConfig(f"{OPTION}: {parts['name']!r} has no password and no saltedpassword: give one of them")
    elif "salt" not in parts:
        raise InvalidConfig(f"{OPTION}: the saltedpassword of {parts['name']!r} needs its salt, too")
    else:
        hashed = _decoded("saltedpassword", parts["saltedpassword"])
    return _record(mechanism, parts["name"], hashed, salt, iterations)


def user_record(mechanism: str, name: str, password: str, iterations: int) -> UserScramCredentialRecord:
    """The record of a user with a password; salting takes milliseconds."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return _record(mechanism, name, salted(mechanism, password, salt, iterations), salt, iterations)


def _record(mechanism: str, name: str, hashed: bytes, salt: bytes, iterations: int) -> UserScramCredentialRecord:
    made = credential(mechanism, hashed, salt, iterations)
    return UserScramCredentialRecord(
        name=name,
        mechanism=MECHANISM_CODES[mechanism],
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    mechanism, has_parts, rest = text.strip().partition("=")
    if mechanism not in MECHANISM_CODES:
        raise InvalidConfig(f"{OPTION}: the mechanism is one of {', '.join(MECHANISM_CODES)}, as in {_FORM}")
    if not has_parts or not rest.startswith("[") or not rest.endswith("]"):
        raise InvalidConfig(f"{OPTION}: a user has the form {_FORM}")
    parts: dict[str, str] = {}
    for piece in rest[1:-1].split(","):
        name, has_value, value = piece.partition("=")
        if not has_value or name.strip() not in _PARTS:
            raise InvalidConfig(f"{OPTION}: a user has the parts {', '.join(_PARTS)}, each as name=value")
        is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        parts[name.strip()] = value[1:-1] if is_quoted else value
    if not parts.get("name"):
        raise InvalidConfig(f"{OPTION}: a user has no name")
    return mechanism, parts


def _iterations(text: str | None) -> int:
    if text is None:
        return FEWEST_ITERATIONS
    if not text.isdecimal() or not FEWEST_ITERATIONS <= int(text) <= MOST_ITERATIONS:
        raise InvalidConfig(f"{OPTION}: iterations are between {FEWEST_ITERATIONS} and {MOST_ITERATIONS}")
    return int(text)


def _decoded(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise InvalidConfig(f"{OPTION}: the {name} is not Base64") from None
