"""Rules of a login by OpenID Connect: what binds it to a browser, and what its tokens have to claim. PURE.

    browser                     console                      provider
       |--- GET /login/oidc ------>|                             |
       |<-- cookie, state, nonce --|                             |
       |---- state, nonce, challenge ------------------------->  |
       |<--- code, state ----------------------------------------|
       |---- cookie, code, state ->|-- code, verifier ---------->|
       |<--- session --------------|<- id token (nonce), access --|

The console keeps nothing of a login that has begun: state, nonce and verifier are made of the cookie with a key of the
process. Sources: OpenID Connect Core 1.0, RFC 6749, RFC 7636 (PKCE), RFC 9207, RFC 9700.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

ATTEMPT_S: Final = 600.0
"""How long a user may take at the provider."""
MOST_USED: Final = 10_000
"""Logins whose answer has come, which are remembered while they could be answered again."""
MOST_GROUPS: Final = 1_000
LONGEST_NAME: Final = 256
_LONGEST_PATH: Final = 1_000
_LONGEST_COOKIE: Final = 2_000
_LONGEST_SAID: Final = 200


class LoginProblem(Exception):
    """A login is not to be believed; the message has the reason, without secrets."""


class Attempt(NamedTuple):
    """A login that has begun in one browser."""

    cookie: str
    state: str
    nonce: str
    verifier: str
    following: str
    """The path of the console to which the login leads."""

    def __repr__(self) -> str:
        """Without what nobody may know."""
        return "Attempt()"

    @property
    def challenge(self) -> str:
        """The digest of the verifier (S256)."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())


class Attempts:
    """Begins logins, and recognizes their answers: each once, in the browser in which it was begun, and in time."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        self._now = now
        self._key = secrets.token_bytes(32)
        self._used: OrderedDict[bytes, float] = OrderedDict()

    def begin(self, following: str) -> Attempt:
        """A new login."""
        path = following if len(following) <= _LONGEST_PATH else "/"
        parts = (secrets.token_urlsafe(32), f"{self._now():.0f}", _text(path.encode("utf-8", "surrogatepass")))
        content = ".".join(parts)
        return self._of(f"{content}.{self._made('cookie', content)}", path)

    def take(self, cookie: str, state: str) -> Attempt:
        """The login that is answered. Raises LoginProblem."""
        content, _, mark = cookie.rpartition(".")
        if len(cookie) > _LONGEST_COOKIE or not _same(mark, self._made("cookie", content)):
            raise LoginProblem("this browser has begun no login, or another one since")
        _, began, path = content.split(".")
        attempt = self._of(cookie, urlsafe_b64decode(path + "=" * (-len(path) % 4)).decode("utf-8", "surrogatepass"))
        if not _same(state, attempt.state):
            raise LoginProblem("the answer belongs to another login")
        now, digest = self._now(), hashlib.sha256(cookie.encode()).digest()
        if now - float(began) > ATTEMPT_S:
            raise LoginProblem(f"the login has taken longer than {ATTEMPT_S / 60:.0f} minutes")
        if digest in self._used:
            raise LoginProblem("the answer has come before")
        self._used[digest] = now
        while len(self._used) > MOST_USED or now - next(iter(self._used.values())) > ATTEMPT_S + 1:
            self._used.popitem(last=False)
        return attempt

    def _of(self, cookie: str, following: str) -> Attempt:
        state, nonce, verifier = (self._made(use, cookie) for use in ("state", "nonce", "verifier"))
        return Attempt(cookie, state, nonce, verifier, following)

    def _made(self, use: str, content: str) -> str:
        text = f"{use}\0{content}".encode("utf-8", "surrogatepass")
        return _text(hmac.digest(self._key, text, hashlib.sha256))


class Identity(NamedTuple):
    """The user of an id token."""

    subject: str
    user: str
    groups: frozenset[str]


def address_of(endpoint: str, attempt: Attempt, client_id: str, redirect: str, scope: str) -> str:
    """Where a browser is led to log in at the provider."""
    query = urlencode(
        {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect,
            "scope": scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
    )
    return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{query}"


def code_of(query: Mapping[str, str], issuer: str, *, names_issuer: bool) -> str:
    """The code of an answer. `names_issuer`: whether the provider's answers have its name. Raises LoginProblem."""
    if query.get("iss", issuer) != issuer or (names_issuer and "iss" not in query):
        raise LoginProblem("the answer comes from another provider")
    if error := query.get("error"):
        raise LoginProblem(f"the provider refuses the login: {reported(error, query.get('error_description', ''))}")
    code = query.get("code", "")
    if not code:
        raise LoginProblem("the provider's answer has no code")
    return code


def reported(error: str, description: str) -> str:
    """The reason that a provider gives for a failure, cut."""
    text = f"{error} ({description})" if description else error
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST_SAID])


def check_claims(claims: Mapping[str, Any], client_id: str, nonce: str | None, access_token: str) -> None:
    """Check what a signed token claims besides issuer, audience and times. Raises LoginProblem.

    `nonce` None: the token was renewed, and may have none.
    """
    audience = claims.get("aud")
    party = claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, client_id):
        raise LoginProblem("the id token was given to another client")
    if nonce is not None and not _same(claims.get("nonce"), nonce):
        raise LoginProblem("the id token belongs to another login (its nonce differs)")
    digest = claims.get("at_hash")
    if digest is not None and not any(_same(digest, each) for each in _halves(access_token)):
        raise LoginProblem("the access token does not belong to the id token")


def identity_of(claims: Mapping[str, Any], user_claim: str, groups_claim: str | None) -> Identity:
    """The user of checked claims. Raises LoginProblem."""
    subject, user = claims.get("sub"), claims.get(user_claim)
    if not isinstance(subject, str) or not subject:
        raise LoginProblem("the id token names no subject")
    if not isinstance(user, str) or not user or len(user) > LONGEST_NAME or not user.isprintable():
        raise LoginProblem(f"the claim {user_claim} of the id token is no name of 1 to {LONGEST_NAME} characters")
    if user_claim == "email" and claims.get("email_verified") is not True:
        raise LoginProblem("the provider has not verified the user's email address")
    groups = [] if groups_claim is None else claims.get(groups_claim, [])
    groups = [groups] if isinstance(groups, str) else groups
    if not isinstance(groups, list) or len(groups) > MOST_GROUPS or not all(isinstance(each, str) for each in groups):
        raise LoginProblem(f"the claim {groups_claim} of the id token is no list of at most {MOST_GROUPS} names")
    return Identity(subject, user, frozenset(groups))


def _halves(token: str) -> list[str]:
    """The left half of the digest, by the digest of each algorithm."""
    digests = (hashlib.new(name, token.encode()).digest() for name in ("sha256", "sha384", "sha512"))
    return [_text(each[: len(each) // 2]) for each in digests]


def _same(given: object, expected: str) -> bool:
    if not isinstance(given, str):
        return False
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
