"""Tokens of OAUTHBEARER: which are accepted, and the many that are not."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.support.identity_provider import IdentityProvider

from ottla.config.sasl import TokenSettings
from ottla.security.bearer_tokens import accept_signed, accept_unsigned, key_id, read_keys
from ottla.security.sasl import AuthenticationRefused, BearerExchange

SETTINGS = TokenSettings("file:///keys", "https://issuer", ("ottla", "other"), "sub", "scope", 600)
PROVIDER = IdentityProvider()
PROVIDER.add_key("curve", elliptic=True)
KEYS = read_keys(PROVIDER.document().encode())
NOW = int(time.time())


def encoded(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(header: dict[str, Any], secret: bytes | None = None, **claims: Any) -> str:
    body = {"sub": "alice", "iat": NOW, "exp": NOW + 6000, "iss": "https://issuer", "aud": "ottla", **claims}
    signed = f"{encoded(header)}.{encoded(body)}"
    signature = b"" if secret is None else hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{encoded(signature)}"


def public_pem() -> bytes:
    return PROVIDER.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("key", ["first", "curve"])
def test_a_token_of_the_provider_names_its_user_and_its_end(key: str) -> None:
    accepted = accept_signed(SETTINGS, KEYS)(PROVIDER.token("bob", key_id=key, scope=["a", "b"]))
    assert accepted.user == "bob"
    assert 3_590_000 < accepted.lifetime_ms <= 3_600_000
    named = SETTINGS._replace(user_claim="email", audience=("ottla",))
    assert accept_signed(named, KEYS)(PROVIDER.token(email="bob@example")).user == "bob@example"
    assert accept_signed(SETTINGS, KEYS)(PROVIDER.token(exp=int(time.time()) - 5)).lifetime_ms == 0  # clocks differ


STRANGER = IdentityProvider()
BAD = {
    "expired": PROVIDER.token(exp=NOW - 6000, iat=NOW - 7000),
    "not valid yet": PROVIDER.token(nbf=NOW + 6000),
    "issued later": PROVIDER.token(iat=NOW + 6000),
    "without an end": PROVIDER.token(exp=None),
    "without a beginning": PROVIDER.token(iat=None),
    "of another issuer": PROVIDER.token(iss="https://other"),
    "without an issuer": PROVIDER.token(iss=None),
    "for another audience": PROVIDER.token(aud="somebody"),
    "without an audience": PROVIDER.token(aud=None),
    "without a user": PROVIDER.token(sub=None),
    "with an empty user": PROVIDER.token(" "),
    "with a number for a user": forged({"alg": "RS256", "kid": "first"}, sub=1),
    "with a scope that is a number": PROVIDER.token(scope=7),
    "signed by a stranger": STRANGER.token(),
    "with an unknown key": jwt.encode({"sub": "alice"}, STRANGER.keys["first"], "RS256", headers={"kid": "x"}),
    "signed with the wrong one of two keys": jwt.encode(
        {"sub": "alice", "iat": NOW, "exp": NOW + 6000}, PROVIDER.keys["curve"], "ES256", headers={"kid": "first"}
    ),
    "signed by nobody": forged({"alg": "none", "kid": "first"}),
    "signed by nobody, in capitals": forged({"alg": "NONE", "kid": "first"}),
    "with the public key for a secret": forged({"alg": "HS256", "kid": "first"}, public_pem()),
    "with a key of its own": forged({"alg": "RS256", "jwk": {"kty": "RSA"}, "jku": "http://evil"}),
    "with a changed end": ".".join(
        (PROVIDER.token().split(".")[0], encoded({"sub": "root"}), PROVIDER.token().split(".")[2])
    ),
    "empty": "",
    "of two parts": "a.b",
    "no JSON": f"{encoded(b'no')}.{encoded(b'no')}.",
    "a list": f"{encoded([])}.{encoded([])}.",
    "too long": PROVIDER.token(more="x" * (1 << 16)),
    "deep": f"{encoded(b'[' * 20000)}.{encoded(b'[' * 20000)}.",
    "with an end beyond numbers": PROVIDER.token(exp=10**400),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_bad_tokens_are_refused(kind: str) -> None:
    with pytest.raises(AuthenticationRefused):
        accept_signed(SETTINGS, KEYS)(BAD[kind])


def test_a_token_for_an_audience_is_refused_where_none_is_expected() -> None:
    with pytest.raises(AuthenticationRefused):
        accept_signed(SETTINGS._replace(audience=()), KEYS)(PROVIDER.token())
    assert accept_signed(SETTINGS._replace(audience=()), KEYS)(PROVIDER.token(aud=None)).user == "alice"


def test_secrets_and_keys_for_encryption_are_not_taken_for_keys() -> None:
    first = json.loads(PROVIDER.document())["keys"][0]
    secret = {"kty": "oct", "k": encoded(b"secret"), "kid": "secret"}
    document = {"keys": [secret, {**first, "use": "enc", "kid": "enc"}, first, 7, {"kty": "RSA", "kid": "broken"}]}
    assert list(read_keys(json.dumps(document).encode())) == ["first"]
    without: tuple[Any, ...] = ({"keys": [secret]}, {"keys": {}}, [], {"keys": [first] * 300})
    for nothing in without:
        with pytest.raises(ValueError, match="it has no"):
            read_keys(json.dumps(nothing).encode())


def test_a_token_without_a_key_id_is_checked_with_the_only_key() -> None:
    token = jwt.encode(
        {"sub": "alice", "iat": NOW, "exp": NOW + 6000, "iss": "https://issuer", "aud": "ottla"},
        PROVIDER.keys["first"],
        "RS256",
    )
    only = {"first": KEYS["first"]}
    assert key_id(token) == ""
    assert accept_signed(SETTINGS, only)(token).user == "alice"
    with pytest.raises(AuthenticationRefused):
        accept_signed(SETTINGS, KEYS)(token)


def test_unsigned_tokens_still_need_a_user_and_an_end() -> None:
    accept = accept_unsigned(SETTINGS._replace(jwks_url=None))
    assert accept(forged({"alg": "none"})).user == "alice"
    for bad in (forged({"alg": "none"}, exp=NOW - 6000), forged({"alg": "none"}, sub=""), "a.b.c"):
        with pytest.raises(AuthenticationRefused):
            accept(bad)


def exchange() -> BearerExchange:
    return BearerExchange(accept_signed(SETTINGS, KEYS))


def test_a_refused_token_is_named_in_json_before_the_client_is_refused() -> None:
    refusing = exchange()
    assert refusing.respond(b"n,,\x01auth=Bearer x.y.z\x01\x01") == b'{"status":"invalid_token"}'
    with pytest.raises(AuthenticationRefused, match="invalid_token"):
        refusing.respond(b"\x01")
    assert refusing.user is None


def test_only_the_user_of_the_token_can_be_asked_for() -> None:
    token = PROVIDER.token().encode()
    fine = exchange()
    assert fine.respond(b"n,a=alice,\x01auth=Bearer " + token + b"\x01more=x\x01\x01") == b""
    assert fine.user == "alice"
    with pytest.raises(AuthenticationRefused, match="authorization id"):
        exchange().respond(b"n,a=root,\x01auth=Bearer " + token + b"\x01\x01")


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"\0alice\0secret", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01x=y\x01\x01", b"\xff"]
)
def test_messages_of_another_form_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationRefused):
        exchange().respond(message)
