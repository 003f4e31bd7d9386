"""The broker's side of SASL, with this project's own client and with messages of RFC 7677."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import AuthenticationFailed
from ottla.client.sansio.sasl import Mechanism, Plain, Scram
from ottla.cluster.scram_credentials import ScramCredential, credential_text, parse_credential
from ottla.errors import InvalidConfig
from ottla.security.sasl import (
    SCRAM_HASHES,
    AuthenticationRefused,
    Exchange,
    PlainExchange,
    ScramExchange,
    TokenLogin,
    credential,
    is_one_of,
    salted,
)

SALT = b"0123456789abcdef"


def talk(client: Mechanism, server: Exchange) -> None:
    token = client.respond(None)
    while token is not None:
        token = client.respond(server.respond(token))


def scram(mechanism: str, password: str, *users: str) -> ScramExchange:
    stored = credential(mechanism, salted(mechanism, password, SALT, 4096), SALT, 4096)
    return ScramExchange(mechanism, lambda user: stored if user in users else None, "server-nonce")


def test_plain_accepts_a_right_password_only() -> None:
    check = is_one_of({"alice": "secret", "bob": ""})
    server = PlainExchange(check)
    talk(Plain("alice", "secret"), server)
    assert server.user == "alice"
    for user, password in (("alice", "Secret"), ("alice", "secret2"), ("carol", "secret")):
        server = PlainExchange(check)
        with pytest.raises(AuthenticationRefused, match=r"^Authentication failed: Invalid username or password$"):
            talk(Plain(user, password), server)
        assert server.user is None


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0se\0cret", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0bob\0", "password not specified"),
        (b"root\0alice\0secret", "an authorization id that is different from username"),
        (b"\0\xff\0secret", "not UTF-8"),
        (b"", "expected 3 tokens, got 1"),
    ],
)
def test_plain_refuses_what_is_no_login(token: bytes, why: str) -> None:
    server = PlainExchange(is_one_of({"alice": "secret", "bob": ""}))
    with pytest.raises(AuthenticationRefused, match=why):
        server.respond(token)
    assert server.user is None


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "Zoë"])
def test_scram_accepts_a_right_password_and_proves_the_broker(mechanism: str, user: str) -> None:
    server = scram(mechanism, "pencil", user)
    talk(Scram(mechanism, user, "pencil", "client-nonce"), server)
    assert server.user == user


@pytest.mark.parametrize(("user", "password"), [("alice", "Pencil"), ("bob", "pencil")])
def test_scram_refuses_others_with_one_answer(user: str, password: str) -> None:
    server = scram("SCRAM-SHA-256", "pencil", "alice")
    with pytest.raises(AuthenticationRefused, match=r"^Authentication failed: Invalid user credentials$"):
        talk(Scram("SCRAM-SHA-256", user, password, "client-nonce"), server)
    assert server.user is None


def test_the_messages_of_rfc_7677() -> None:
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    stored = credential("SCRAM-SHA-256", salted("SCRAM-SHA-256", "pencil", salt, 4096), salt, 4096)
    server = ScramExchange("SCRAM-SHA-256", lambda user: stored, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = server.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,a=root,n=alice,r=abc",
        b"\xff\xff",
    ],
)
def test_scram_refuses_first_messages_that_are_none(first: bytes) -> None:
    with pytest.raises(AuthenticationRefused):
        scram("SCRAM-SHA-256", "pencil", "alice").respond(first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=client-nonceserver-nonce",
        b"c=biws,r=client-nonce,p=AAAA",
        b"c=biws,r=client-nonceserver-nonce,p=AAAA",
        b"c=biws,r=client-nonceserver-nonce,p=***",
        b"c=biws,r=client-nonceserver-nonce,p=" + b"A" * 43 + b"=",
    ],
)
def test_scram_refuses_final_messages_without_a_proof(final: bytes) -> None:
    server = scram("SCRAM-SHA-256", "pencil", "alice")
    server.respond(b"n,,n=alice,r=client-nonce")
    with pytest.raises(AuthenticationRefused):
        server.respond(final)
    assert server.user is None


def test_a_final_message_cannot_come_first_nor_a_proof_be_used_again() -> None:
    server = scram("SCRAM-SHA-256", "pencil", "alice")
    with pytest.raises(AuthenticationRefused):
        server.respond(b"c=biws,r=client-nonceserver-nonce,p=" + b"A" * 43 + b"=")
    with pytest.raises(AuthenticationRefused):
        server.respond(b"n,,n=alice,r=client-nonce")
    assert server.user is None


def test_a_server_with_another_credential_is_found_out_by_the_client() -> None:
    stored = credential("SCRAM-SHA-256", salted("SCRAM-SHA-256", "pencil", SALT, 4096), SALT, 4096)
    impostor = ScramExchange("SCRAM-SHA-256", lambda user: stored._replace(server_key=b"x" * 32), "server-nonce")
    with pytest.raises(AuthenticationFailed, match="it may be another server"):
        talk(Scram("SCRAM-SHA-256", "alice", "pencil", "client-nonce"), impostor)


@given(st.binary(min_size=1), st.binary(), st.binary(), st.integers(4096, 1 << 31))
def test_credentials_are_read_as_they_were_written(salt: bytes, stored: bytes, server: bytes, iterations: int) -> None:
    one = ScramCredential(salt, stored, server, iterations)
    assert parse_credential(credential_text(one)) == one
    assert repr(one) == f"ScramCredential(iterations={iterations})"


@pytest.mark.parametrize("text", ["", "salt=AA==", "salt=*,stored_key=,server_key=,iterations=1", "salt=AA==,x"])
def test_a_malformed_credential_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_credential(text)
    assert "AA==" not in str(refused.value)


def test_a_token_is_found_by_its_name_unless_a_user_has_it() -> None:
    """librdkafka cannot send `tokenauth`; a login without it proves the same as one with it."""
    salt = b"salt of a token!"
    stored = credential("SCRAM-SHA-256", salted("SCRAM-SHA-256", "hmac", salt, 4096), salt, 4096)
    token = TokenLogin(stored, "alice", 1000)

    def outcome(users: dict[str, ScramCredential], *, says_token: bool) -> tuple[str | None, bool]:
        server = ScramExchange("SCRAM-SHA-256", users.get, "server", {"id": token}.get)
        client = Scram("SCRAM-SHA-256", "id", "hmac", "nonce", is_token=says_token)
        sent = client.respond(None)
        while sent is not None:
            sent = client.respond(server.respond(sent))
        return server.user, server.is_by_token

    assert outcome({}, says_token=True) == outcome({}, says_token=False) == ("alice", True)
    assert outcome({"id": stored}, says_token=False) == ("id", False)
    assert outcome({"id": stored}, says_token=True) == ("alice", True)
