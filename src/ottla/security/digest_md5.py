"""The client's side of SASL's DIGEST-MD5, which ZooKeeper has for passwords. PURE.

Source: RFC 2831; `ZooKeeperSaslClient` and `SaslServerCallbackHandler` of ZooKeeper 3.8. The server proves that it
knows the password, too.
"""

import hashlib
import hmac
import re
from typing import Final

_FIELD: Final = re.compile(r'\s*([a-zA-Z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,"]*))\s*(?:,|$)')
_COUNT: Final = "00000001"


class DigestLogin:
    """One authentication. Everything raised is a ConnectionError."""

    name: Final = "DIGEST-MD5"

    def __init__(self, user: str, password: str, uri: str, client_nonce: str) -> None:
        """`uri` is service/host; `client_nonce` is random, and used once."""
        self._user = user
        self._password = password
        self._uri = uri
        self._nonce = client_nonce
        self._expected = ""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """What to send after `challenge`, which is None at first; None when nothing is left to send."""
        if challenge is None:
            return b""
        fields = _fields(challenge)
        if self._expected:
            if not hmac.compare_digest(fields.get("rspauth", ""), self._expected):
                raise ConnectionError("the server does not prove that it knows the password")
            return None
        if fields.get("algorithm") != "md5-sess" or not fields.get("nonce"):
            raise ConnectionError("the server does not ask for a password (DIGEST-MD5)")
        if "auth" not in fields.get("qop", "auth").replace(" ", "").split(","):
            raise ConnectionError("the server asks for a security layer")
        realm, nonce = fields.get("realm", ""), fields["nonce"]
        proof = self._digest(realm, nonce, "AUTHENTICATE")
        self._expected = self._digest(realm, nonce, "")
        quoted = {"username": self._user, "realm": realm, "nonce": nonce, "cnonce": self._nonce}
        parts = ["charset=utf-8", *(f'{name}="{_escaped(value)}"' for name, value in quoted.items())]
        parts += [f"nc={_COUNT}", "qop=auth", f'digest-uri="{self._uri}"', f"response={proof}"]
        return ",".join(parts).encode()

    def _digest(self, realm: str, nonce: str, method: str) -> str:
        secret = hashlib.md5(f"{self._user}:{realm}:{self._password}".encode()).digest()
        first = hashlib.md5(secret + f":{nonce}:{self._nonce}".encode()).hexdigest()
        second = hashlib.md5(f"{method}:{self._uri}".encode()).hexdigest()
        return hashlib.md5(f"{first}:{nonce}:{_COUNT}:{self._nonce}:auth:{second}".encode()).hexdigest()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _fields(challenge: bytes) -> dict[str, str]:
    """Raises ConnectionError."""
    text, at, fields = challenge.decode("utf-8", "replace").strip(), 0, dict[str, str]()
    while at < len(text):
        found = _FIELD.match(text, at)
        if found is None:
            raise ConnectionError("the server sends a challenge that does not parse (DIGEST-MD5)")
        name, quoted, plain = found.groups()
        fields.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain.strip())
        at = found.end()
    return fields
