"""Bearer tokens of an identity provider: by client credentials (RFC 6749, section 4.4) or from a file (KIP-768).

Tokens are kept until four fifths of their time are over. Requests block: call from a thread that may wait.
"""

import json
import ssl
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from ottla.client.errors import AuthenticationFailed
from ottla.client.properties import ENDPOINT, PropertiesProblem, is_file

_ANSWER_S: Final = 10.0
_LARGEST_ANSWER_BYTES: Final = 1 << 20
_USED_PART: Final = 0.8
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class Token(NamedTuple):
    """A token, and when it expires, in seconds since 1970."""

    text: str
    expires_s: float

    def __repr__(self) -> str:
        """Without the token."""
        return f"Token(expires_s={self.expires_s:.0f})"


class TokenSource:
    """Finds tokens by the properties `sasl.oauthbearer.*`. Any thread may call."""

    def __init__(self, properties: Mapping[str, str], now: Callable[[], float] = time.time) -> None:
        """Raises PropertiesProblem for properties that name no source of tokens."""
        self._properties = properties
        self._now = now
        self._lock = threading.Lock()
        self._kept: Token | None = None
        self._kept_until_s = 0.0
        endpoint = properties.get(ENDPOINT)
        if endpoint is None:
            raise PropertiesProblem(f"OAUTHBEARER needs {ENDPOINT}: the identity provider, or a token's file:///path")
        self._endpoint = endpoint
        if is_file(endpoint):
            return
        for name in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
            if not properties.get(name):
                raise PropertiesProblem(f"OAUTHBEARER needs {name} for the provider at {endpoint}")
        parts = urlsplit(endpoint)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
            raise PropertiesProblem(f"{ENDPOINT} has to begin with https://, for the client's secret is sent there")

    def token(self) -> Token:
        """A token that is valid for a while. Raises `AuthenticationFailed`."""
        with self._lock:
            now = self._now()
            if self._kept is None or now >= self._kept_until_s:
                self._kept = token_of_file(self._endpoint) if is_file(self._endpoint) else self._asked()
                self._kept_until_s = now + _USED_PART * (self._kept.expires_s - now)
                if is_file(self._endpoint):  # it may be replaced at any time
                    self._kept_until_s = now
            return self._kept

    def _asked(self) -> Token:
        given = self._properties
        credentials = {"grant_type": "client_credentials"}
        if given.get("sasl.oauthbearer.scope"):
            credentials["scope"] = given["sasl.oauthbearer.scope"]
        login = ":".join(quote(given[f"sasl.oauthbearer.client.{name}"], safe="") for name in ("id", "secret"))
        headers = {
            "Authorization": "Basic " + b64encode(login.encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        request = Request(self._endpoint, urlencode(credentials).encode(), headers, method="POST")
        answer = _answer(request, given)
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise AuthenticationFailed(f"no token came from {self._endpoint}: its answer has no access_token")
        lifetime_s = answer.get("expires_in")
        if isinstance(lifetime_s, int | float) and lifetime_s > 0:
            return Token(token, self._now() + lifetime_s)
        return Token(token, expiry_s(token, self._endpoint))


class _NoRedirects(HTTPRedirectHandler):
    """A secret is sent to the address that was named, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer is an error then."""


def _answer(request: Request, properties: Mapping[str, str]) -> dict[str, Any]:
    context = ssl.create_default_context(
        cafile=properties.get("https.ca.location"), cadata=properties.get("https.ca.pem")
    )
    where = request.full_url
    try:
        with build_opener(_NoRedirects, HTTPSHandler(context=context)).open(request, timeout=_ANSWER_S) as answer:
            content = answer.read(_LARGEST_ANSWER_BYTES + 1)
    except HTTPError as error:
        error.close()
        what = f"the identity provider at {where} answers {error.code} {error.reason}"
        if error.code in (400, 401, 403):
            what += "; are sasl.oauthbearer.client.id, the secret and the scope right?"
        raise AuthenticationFailed(what) from error
    except URLError as error:
        hint = "; name its authority in https.ca.location" if isinstance(error.reason, ssl.SSLError) else ""
        raise AuthenticationFailed(f"no token came from {where}: {error.reason}{hint}") from error
    except OSError as error:
        raise AuthenticationFailed(f"no token came from {where}: {error}") from error
    try:
        found = json.loads(content) if len(content) <= _LARGEST_ANSWER_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AuthenticationFailed(f"no token came from {where}: its answer is not JSON with an access_token")
    return found


def token_of_file(url: str) -> Token:
    """The token in a file, read anew each time. Raises `AuthenticationFailed`."""
    path = Path(unquote(urlsplit(url).path))
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(_LARGEST_ANSWER_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a token"
        raise AuthenticationFailed(f"the token file {path} cannot be read: {reason}") from error
    expires_s = expiry_s(text, str(path))
    if expires_s <= time.time():
        raise AuthenticationFailed(f"the token in {path} has expired: put a new one there")
    return Token(text, expires_s)


def expiry_s(token: str, where: str) -> float:
    """The claim `exp` of a token, whose signature is the broker's concern."""
    try:
        _, claims, _ = token.split(".")
        return float(json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, KeyError, TypeError, Base64Error) as error:
        raise AuthenticationFailed(f"what {where} gives is no JSON Web Token with a time of expiry") from error
