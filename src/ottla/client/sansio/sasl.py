"""SASL mechanisms: what a client answers to each of a broker's challenges. PURE.

One object per connection. Sources: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), as used by KIP-84;
RFC 7628 (OAUTHBEARER), by KIP-255.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ottla.client.errors import AuthenticationFailed

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_MECHANISMS: Final = frozenset(_HASHES)
_FEWEST_ITERATIONS: Final = 4096
_MOST_ITERATIONS: Final = 1_000_000
"""A hostile server must not keep a client busy for minutes."""


class Mechanism(Protocol):
    """One authentication."""

    @property
    def name(self) -> str:
        """As SASL calls it, such as `PLAIN`."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """What to send after `challenge`, which is None at first; None when nothing is left to send.

        Raises `AuthenticationFailed` if the broker does not prove what the mechanism asks of it.
        """


class Plain:
    """User name and password as they are: for TLS only, outside of tests."""

    name: Final = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token: bytes | None = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Name and password at first, then nothing."""
        token, self._token = self._token, None
        return token


class Scram:
    """A proof of the password that does not contain it; the broker has to prove that it knows the password, too."""

    def __init__(self, name: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        """`name` is one of `SCRAM_MECHANISMS`; `nonce` is random, printable, and used once. `is_token`: user and
        password are the id and the secret of a delegation token (KIP-48)."""
        self.name = name
        self._hash = _HASHES[name]
        self._user = user.replace("=", "=3D").replace(",", "=2C")
        self._password = password.encode()
        self._nonce = nonce
        self._respond: Callable[[str], bytes | None] = self._answer_first
        self._first = f"n={self._user},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._server_proof = b""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The client's first message, then its proof, then nothing."""
        if challenge is None:
            return f"n,,{self._first}".encode()
        try:
            return self._respond(challenge.decode())
        except (ValueError, Base64Error, KeyError) as error:
            raise AuthenticationFailed("sends a SCRAM message that does not parse") from error

    def _answer_first(self, message: str) -> bytes:
        fields = dict(_fields(message))
        nonce, iterations = fields["r"], int(fields["i"])
        if not nonce.startswith(self._nonce) or not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise AuthenticationFailed(f"offers SCRAM with another nonce, or {iterations} iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, b64decode(fields["s"], validate=True), iterations)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first},{message},{without_proof}".encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_proof = self._mac(self._mac(salted, b"Server Key"), signed)
        self._respond = self._check_last
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _check_last(self, message: str) -> None:
        fields = dict(_fields(message))
        if "e" in fields:
            raise AuthenticationFailed(f"does not authenticate this client: {fields['e']}")
        if not hmac.compare_digest(b64decode(fields["v"], validate=True), self._server_proof):
            raise AuthenticationFailed("does not prove that it knows the password: it may be another server")

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


class Bearer:
    """A token of an identity provider (RFC 7628)."""

    name: Final = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._first: bytes | None = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The token at first, then nothing; the acknowledgement of an error, after which the broker refuses."""
        if challenge:
            return b"\x01"
        first, self._first = self._first, None
        return first


def _fields(message: str) -> Iterator[tuple[str, str]]:
    for field in message.split(","):
        name, _, value = field.partition("=")
        yield name, value
