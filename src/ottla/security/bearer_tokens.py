"""Tokens of OAUTHBEARER: JSON Web Tokens, checked against the keys of their provider (KIP-255, 768).

A token is accepted as Kafka's `BrokerJwtValidator` does: signed by a key of the provider, with an end, and with the
issuer and the audience that are expected. Source: RFC 7519, RFC 8725 (what goes wrong with them).
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.config.sasl import TokenSettings
from ottla.errors import InvalidConfig
from ottla.security.sasl import AcceptedToken, AuthenticationRefused

if TYPE_CHECKING:
    from jwt import PyJWK

Keys = Mapping[str, "PyJWK"]
"""By their ids."""
LONGEST_TOKEN: Final = 1 << 16
LONGEST_KEY_ID: Final = 1000
MOST_KEYS: Final = 256
_LATEST_END_S: Final = 1 << 40
_ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the type of the key, which decides: a public key never serves as the secret of an HMAC."""
_REQUIRED: Final = ("exp", "iat")


def need_jwt() -> None:
    """Raise `InvalidConfig` with the remedy if the library that checks tokens is not installed."""
    try:
        import jwt  # noqa: F401
    except ImportError as error:
        raise InvalidConfig("OAUTHBEARER needs other packages: install Ottla with its extra `security`") from error


def read_keys(text: bytes) -> Keys:
    """The keys of a JWKS document that can check signatures. Raises ValueError if there are none."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    document = json.loads(text)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise ValueError(f"it has no list of at most {MOST_KEYS} keys")
    keys: dict[str, PyJWK] = {}
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("kty") not in _ALGORITHMS or entry.get("use", "sig") != "sig":
            continue
        try:
            keys[str(entry.get("kid", ""))] = PyJWK(entry)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise ValueError("it has no public key for signatures")
    return keys


def key_id(token: str) -> str:
    """The id of the key that a token names, empty without one. Raises `AuthenticationRefused`."""
    from jwt import get_unverified_header
    from jwt.exceptions import PyJWTError

    if len(token) > LONGEST_TOKEN:
        raise AuthenticationRefused("the token is too long")
    try:
        found = str(get_unverified_header(token).get("kid", ""))
    except (PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise AuthenticationRefused(f"the token cannot be read: {error}") from error
    if len(found) > LONGEST_KEY_ID:
        raise AuthenticationRefused("the token names a key by too long an id")
    return found


def accept_signed(settings: TokenSettings, keys: Keys) -> Callable[[str], AcceptedToken]:
    """What checks a token against the keys; it raises `AuthenticationRefused`, whose text is for the log."""

    def accept(token: str) -> AcceptedToken:
        return _accepted(settings, signed_claims(settings, keys, token))

    return accept


def signed_claims(settings: TokenSettings, keys: Keys, token: str) -> dict[str, Any]:
    """The claims of a token that a key has signed, with its issuer, audience and times checked.

    Raises `AuthenticationRefused`, whose text is for the log.
    """
    from jwt import decode
    from jwt.exceptions import PyJWTError

    named = key_id(token)
    key = keys.get(named) if named else next(iter(keys.values())) if len(keys) == 1 else None
    if key is None:
        raise AuthenticationRefused(f"the token is signed with the key {named!r}, which the provider does not have")
    try:
        claims: dict[str, Any] = decode(
            token,
            key.key,
            algorithms=_algorithms(key),
            audience=list(settings.audience) or None,
            issuer=settings.issuer,
            leeway=settings.clock_skew_s,
            options={"require": list(_REQUIRED)},
        )
    except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise AuthenticationRefused(f"the token is refused: {error}") from error
    return claims


def _algorithms(key: "PyJWK") -> list[str]:
    own = key._jwk_data.get("alg")  # noqa: SLF001
    fitting = _ALGORITHMS[str(key.key_type)]
    return [name for name in fitting if own is None or name == own]


def accept_unsigned(settings: TokenSettings) -> Callable[[str], AcceptedToken]:
    """Believe what a token claims, as Kafka's `OAuthBearerUnsecuredJws` does: for tests."""
    from jwt import decode
    from jwt.exceptions import PyJWTError

    def accept(token: str) -> AcceptedToken:
        key_id(token)
        checked = {"verify_exp": True, "verify_nbf": True, "verify_iat": True}
        options: Any = {"verify_signature": False, "verify_aud": False, "require": ["exp"], **checked}
        try:
            claims = decode(token, options=options, leeway=settings.clock_skew_s)
        except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise AuthenticationRefused(f"the token is refused: {error}") from error
        return _accepted(settings, claims)

    return accept


def _accepted(settings: TokenSettings, claims: Mapping[str, Any]) -> AcceptedToken:
    user = claims.get(settings.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise AuthenticationRefused(f"the claim {settings.user_claim!r} of the token is no name")
    scope = claims.get(settings.scope_claim, "")
    if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(each, str) for each in scope)):
        raise AuthenticationRefused(f"the claim {settings.scope_claim!r} of the token is neither a text nor a list")
    end_s = int(claims["exp"])
    if end_s > _LATEST_END_S:
        raise AuthenticationRefused("the token ends too late")
    return AcceptedToken(user.strip(), max(0, int((end_s - time.time()) * 1000)))
