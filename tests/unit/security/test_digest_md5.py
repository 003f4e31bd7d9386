"""DIGEST-MD5 by the example of RFC 2831, and servers that do not prove themselves."""

import pytest

from ottla.security.digest_md5 import DigestLogin

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def login() -> DigestLogin:
    return DigestLogin("chris", "secret", "imap/elwood.innosoft.com", "OA6MHXh6VqTrRk")


def test_the_example_of_the_rfc() -> None:
    client = login()
    assert client.respond(None) == b""
    answer = client.respond(CHALLENGE)
    assert answer is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in answer
    assert b'username="chris",realm="elwood.innosoft.com"' in answer
    assert b"secret" not in answer
    assert client.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


@pytest.mark.parametrize("proof", [b"", b"rspauth=", b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"nonsense"])
def test_a_server_has_to_know_the_password(proof: bytes) -> None:
    client = login()
    client.respond(None)
    client.respond(CHALLENGE)
    with pytest.raises(ConnectionError):
        client.respond(proof)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"rspauth=ea40f60335c427b5527b84dbabcdfffd",
        b'nonce="x",algorithm=md5',
        b"algorithm=md5-sess",
        b'nonce="x",algorithm=md5-sess,qop="auth-conf"',
        b'nonce="x',
        b"\xff\xfe",
    ],
)
def test_challenges_that_ask_for_no_password_are_not_answered(challenge: bytes) -> None:
    client = login()
    client.respond(None)
    with pytest.raises(ConnectionError):
        client.respond(challenge)


def test_signs_in_names_are_escaped() -> None:
    client = DigestLogin('a"b\\', "x", "zookeeper/zk-sasl-md5", "n")
    client.respond(None)
    answer = client.respond(b'realm="zk-sasl-md5",nonce="a,b\\"c",qop="auth,auth-int",algorithm=md5-sess')
    assert answer is not None
    assert b'username="a\\"b\\\\"' in answer
    assert b'nonce="a,b\\"c"' in answer
