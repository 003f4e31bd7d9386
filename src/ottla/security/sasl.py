"""The broker's side of SASL mechanisms: one exchange of tokens for each authentication. PURE.

Sources: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-84, 255; errors as Kafka's
`PlainSaslServer`, `ScramSaslServer` and `OAuthBearerSaslServer`.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from ottla.cluster.scram_credentials import ScramCredential

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""As in Kafka: a credential with more would make each login dear for the client."""
_CLIENT_FIRST: Final = re.compile(r"n,(?:a=([^,]+))?,((?:m=[^,]*,)?n=([^,]+),r=([!-+\--~]+)(?:,(.*))?)", re.DOTALL)
_CLIENT_FINAL: Final = re.compile(r"(c=([^,]+),r=([!-+\--~]+)(?:,.*)?),p=([^,]+)", re.DOTALL)
_BEARER: Final = re.compile(
    r"n,(?:a=((?:[\x01-+\--<>-\x7F]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[!-~ \t\r\n]+\x01)*)\x01", re.DOTALL
)
_TOKEN_LOGIN: Final = "tokenauth=true"
_BAD_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


class AuthenticationRefused(Exception):
    """The client has not proved its name. The text is sent to the client, and does not help to guess."""


class Exchange(Protocol):
    """One authentication."""

    user: str | None
    """The name that the client has proved; None before."""
    claimed: str | None
    """The user that it claims to be, if there is one of this name: passwords are typed into the wrong field, too."""
    is_by_token: bool
    """Whether that was a delegation token."""
    lifetime_ms: int | None
    """How long what it was proved with is still valid; None for no end."""

    def respond(self, token: bytes) -> bytes:
        """The challenge that answers a client's token. Raises `AuthenticationRefused`."""
        ...


class PlainExchange:
    """User name and password in one token."""

    def __init__(
        self, is_right: Callable[[str, str], bool], is_user: Callable[[str], bool] = lambda user: False
    ) -> None:
        """`is_right(user, password)` decides; `is_user` knows the names."""
        self._is_right = is_right
        self._is_user = is_user
        self.user: str | None = None
        self.claimed: str | None = None
        self.lifetime_ms: int | None = None
        self.is_by_token = False

    def respond(self, token: bytes) -> bytes:
        """Nothing, if the password is right."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationRefused("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationRefused("Authentication failed: username not specified")
        if self._is_user(user):
            self.claimed = user
        if not password:
            raise AuthenticationRefused("Authentication failed: password not specified")
        if not self._is_right(user, password):
            raise AuthenticationRefused("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""


def is_one_of(passwords: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Whether a user has a password, found in the same time for every password of a length."""

    def is_right(user: str, password: str) -> bool:
        expected = passwords.get(user)
        return hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None

    return is_right


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Made of a password that was salted: PBKDF2 of it, as AlterUserScramCredentials sends it."""
    algorithm = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    server_key = hmac.digest(salted_password, b"Server Key", algorithm)
    return ScramCredential(salt, hashlib.new(algorithm, client_key).digest(), server_key, iterations)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of a password: milliseconds for thousands of iterations, for any thread."""
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)


class TokenLogin(NamedTuple):
    """What a login with a delegation token is checked against, and what it proves."""

    credential: ScramCredential
    owner: str
    lifetime_ms: int | None


def scram_name(message: bytes) -> str | None:
    """The name with which a client's first message begins a login by SCRAM; None for any other message."""
    found = _CLIENT_FIRST.fullmatch(message.decode(errors="replace"))
    return None if found is None else found.group(3)


class ScramExchange:
    """The client proves that it knows the password, and then the broker that it knows the credential."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        nonce: str,
        find_token: "Callable[[str], TokenLogin | None] | None" = None,
    ) -> None:
        """`find` gives the credential of a user, `find_token` that of a delegation token. `nonce` is random, printable,
        without commas, and used once."""
        self._find_token = find_token
        self._algorithm = SCRAM_HASHES[mechanism]
        self._find = find
        self._nonce = nonce
        self.claimed: str | None = None
        self._credential: ScramCredential | None = None
        self._signed = ""
        self._is_first = True
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.is_by_token = False

    def respond(self, token: bytes) -> bytes:
        """The salt at first, then the proof of the broker."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationRefused("Invalid SCRAM message: it is not UTF-8") from None
        if self._is_first:
            self._is_first = False
            return self._first(text)
        return self._final(text)

    def _first(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or _BAD_ESCAPE.search(found.group(3)):
            raise AuthenticationRefused("Invalid SCRAM client first message")
        authorization_id, bare, name, nonce, extensions = found.groups()
        user = name.replace("=2C", ",").replace("=3D", "=")
        if authorization_id and authorization_id not in (name, user):
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        stored, claimed = self._find(user), user
        # librdkafka cannot say that a name is a token's: it is one if there is no such user, with the same restrictions
        if stored is None or _TOKEN_LOGIN in (extensions or "").split(","):
            token = None if self._find_token is None else self._find_token(user)
            stored, claimed, self.lifetime_ms = token or (None, "", None)
            self.is_by_token = True
        if stored is None:
            raise AuthenticationRefused("Authentication failed: Invalid user credentials")
        self.claimed, self._credential = claimed, stored
        self._nonce = nonce + self._nonce
        server_first = f"r={self._nonce},s={b64encode(stored.salt).decode()},i={stored.iterations}"
        self._signed = f"{bare},{server_first}"
        return server_first.encode()

    def _final(self, text: str) -> bytes:
        found = _CLIENT_FINAL.fullmatch(text)
        stored = self._credential
        if found is None or stored is None:
            raise AuthenticationRefused("Invalid SCRAM client final message")
        without_proof, _, nonce, proof_text = found.groups()
        if nonce != self._nonce:
            raise AuthenticationRefused("Invalid client nonce in the final client message")
        try:
            proof = b64decode(proof_text, validate=True)
        except Base64Error:
            raise AuthenticationRefused("Invalid SCRAM client final message") from None
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(stored.stored_key, signed, self._algorithm)
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=False))
        if len(proof) != len(signature) or not hmac.compare_digest(
            hashlib.new(self._algorithm, client_key).digest(), stored.stored_key
        ):
            raise AuthenticationRefused("Authentication failed: Invalid user credentials")
        self.user = self.claimed
        return b"v=" + b64encode(hmac.digest(stored.server_key, signed, self._algorithm))


class AcceptedToken(NamedTuple):
    """What a bearer's token proves."""

    user: str
    lifetime_ms: int


def bearer_token(message: bytes) -> tuple[str, str]:
    """The token of a client's first message, and the user that it asks for. Raises `AuthenticationRefused`."""
    found = _BEARER.fullmatch(message.decode("ascii", "replace"))
    if found is None:
        raise AuthenticationRefused("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.partition("=")[::2] for pair in found.group(2).split("\x01") if pair)
    scheme, _, token = pairs.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise AuthenticationRefused("Invalid OAUTHBEARER client first message: 'auth' is not a bearer's token")
    asked = (found.group(1) or "").replace("=2C", ",").replace("=3D", "=")
    return token.strip(), asked


class BearerExchange:
    """A token that a trusted provider has signed."""

    def __init__(self, accept: Callable[[str], AcceptedToken]) -> None:
        """`accept` raises `AuthenticationRefused` for a token that does not hold."""
        self._accept = accept
        self._refused: AuthenticationRefused | None = None
        self.user: str | None = None
        self.claimed: str | None = None
        self.lifetime_ms: int | None = None
        self.is_by_token = False

    def respond(self, token: bytes) -> bytes:
        """Nothing for a good token; else an error, which the client acknowledges before it is refused (RFC 7628)."""
        if self._refused is not None:
            raise AuthenticationRefused('{"status":"invalid_token"}') from self._refused
        bearer, asked = bearer_token(token)
        try:
            accepted = self._accept(bearer)
        except AuthenticationRefused as refused:
            self._refused = refused
            return b'{"status":"invalid_token"}'
        if asked and asked != accepted.user:
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different from the token's user"
            )
        self.user, self.lifetime_ms = accepted
        return b""
