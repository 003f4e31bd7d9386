"""SCRAM, with the messages of RFC 7677, and with a server that lies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import AuthenticationFailed
from ottla.client.sansio.sasl import Bearer, Plain, Scram
from ottla.client.security import PLAIN, UnsupportedSecurity, security_of

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_LAST = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_exchange_of_the_rfc() -> None:
    mechanism = scram()
    assert mechanism.respond(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mechanism.respond(SERVER_FIRST) == CLIENT_LAST
    assert mechanism.respond(SERVER_LAST) is None


@pytest.mark.parametrize(
    "last", [b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"", b"v=*", b"\xff"], ids=["lie", "error", "", "*", "utf8"]
)
def test_a_server_that_does_not_know_the_password_is_not_believed(last: bytes) -> None:
    mechanism = scram()
    mechanism.respond(None)
    mechanism.respond(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed):
        mechanism.respond(last)


@pytest.mark.parametrize(
    "first",
    [
        SERVER_FIRST.replace(b"r=rOpr", b"r=xxxx"),
        SERVER_FIRST.replace(b"4096", b"1"),
        SERVER_FIRST.replace(b"4096", b"4000000000"),
        SERVER_FIRST.replace(b"4096", b"many"),
    ],
)
def test_a_server_that_weakens_the_exchange_is_refused(first: bytes) -> None:
    mechanism = scram()
    mechanism.respond(None)
    with pytest.raises(AuthenticationFailed):
        mechanism.respond(first)


@given(st.binary(max_size=100))
def test_hostile_challenges_end_in_a_clear_error(challenge: bytes) -> None:
    mechanism = scram()
    mechanism.respond(None)
    with pytest.raises(AuthenticationFailed):
        mechanism.respond(challenge)


def test_plain_sends_one_token() -> None:
    mechanism = Plain("user", "secret")
    assert mechanism.respond(None) == b"\0user\0secret"
    assert mechanism.respond(b"") is None


def test_a_bearer_acknowledges_a_refusal() -> None:
    mechanism = Bearer("abc")
    assert mechanism.respond(None) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert mechanism.respond(b"") is None
    assert mechanism.respond(b'{"status":"invalid_token"}') == b"\x01"


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "p"}


def test_properties_say_how_a_connection_is_protected() -> None:
    assert security_of({}) == PLAIN
    assert security_of({"ssl.curves.list": "unused without TLS"}) == PLAIN
    tls, mechanism, _ = security_of({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"})
    assert tls is not None
    assert mechanism is None
    assert not tls.check_hostname
    for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        tls, mechanism, _ = security_of({**SASL, "sasl.mechanism": name})
        assert tls is None
        assert mechanism is not None
        assert mechanism().name == name


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"security.protocol": "tls"}, "is none of plaintext, ssl"),
        ({**SASL}, "SASL mechanism GSSAPI is not spoken here"),
        ({**SASL, "sasl.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "needs sasl.password"),
        ({"security.protocol": "SSL", "ssl.crl.location": "revoked.pem"}, "ssl.crl.location is not understood here"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}, "cannot be used"),
    ],
)
def test_a_protection_that_is_not_offered_is_refused(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(UnsupportedSecurity, match=complaint):
        security_of(properties)
