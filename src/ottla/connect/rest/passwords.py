"""Passwords of the REST API's users: kept as they are, as Kafka Connect keeps them, or as a hash.

    alice=$scrypt$ln=14,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$FRgQ...

Source: RFC 7914 (scrypt), the PHC string format.
"""

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from typing import Final

_LOG_COST: Final = 14
_BLOCKS: Final = 8
_PARALLEL: Final = 1
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_MOST_MEMORY_BYTES: Final = 1 << 27
"""Which a hash of the file may ask for; this one's parameters take 16 MiB, and some 50 ms."""
_MOST_PARALLEL: Final = 4
_FORM: Final = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")
_BEGINNING: Final = "$scrypt$"


def hashed(password: str) -> str:
    """A hash to be kept in place of a password, with a salt of its own."""
    salt = secrets.token_bytes(_SALT_BYTES)
    key = _key(password, salt, _LOG_COST, _BLOCKS, _PARALLEL, _HASH_BYTES)
    return f"{_BEGINNING}ln={_LOG_COST},r={_BLOCKS},p={_PARALLEL}${_encoded(salt)}${_encoded(key)}"


def is_hash(kept: str) -> bool:
    """Whether this is a hash, and no password."""
    return kept.startswith(_BEGINNING)


def problem(kept: str) -> str | None:
    """Why a hash cannot be checked; None if it can."""
    found = _FORM.fullmatch(kept)
    if found is None:
        return "is no hash of the form $scrypt$ln=14,r=8,p=1$SALT$HASH, as `ottla connect hash-password` makes it"
    cost, blocks, parallel = (int(each) for each in found.groups()[:3])
    memory = 128 * blocks * (1 << cost)
    if not cost >= 1 or not blocks or memory > _MOST_MEMORY_BYTES or not 1 <= parallel <= _MOST_PARALLEL:
        return "is a hash that takes too much memory or time to check"
    if any(len(each) % 4 == 1 for each in found.groups()[3:]) or not 16 <= len(_decoded(found.group(5))) <= 64:
        return "is a hash that was cut off"
    return None


def is_right(kept: str, password: str) -> bool:
    """Whether a password is the one that is kept. Takes as long for a wrong one as for the right one."""
    if not is_hash(kept):
        return hmac.compare_digest(kept.encode(), password.encode())
    found = _FORM.fullmatch(kept)
    if found is None or problem(kept) is not None:
        return False
    cost, blocks, parallel = (int(each) for each in found.groups()[:3])
    salt, key = (_decoded(each) for each in found.groups()[3:])
    return hmac.compare_digest(_key(password, salt, cost, blocks, parallel, len(key)), key)


DECOY: Final = f"{_BEGINNING}ln={_LOG_COST},r={_BLOCKS},p={_PARALLEL}${'A' * 22}${'A' * 43}"
"""Checked where there is no such user, so that the time of a refusal does not tell that."""


def _key(password: str, salt: bytes, cost: int, blocks: int, parallel: int, length: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=1 << cost, r=blocks, p=parallel, maxmem=2 * _MOST_MEMORY_BYTES, dklen=length
    )


def _encoded(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4))
