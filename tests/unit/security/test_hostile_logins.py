"""What a client can send before it has proved its name: 512 KB at most (`sasl.server.max.receive.size`).

Each is refused within the time that any request may take on the loop.
"""

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest
from jwt import PyJWK
from tests.support.identity_provider import IdentityProvider

from ottla.config.sasl import TokenSettings
from ottla.security.bearer_tokens import accept_signed
from ottla.security.sasl import (
    AuthenticationRefused,
    BearerExchange,
    PlainExchange,
    ScramExchange,
    bearer_token,
    is_one_of,
    scram_name,
)

SIZE: Final = 524_288
LONGEST_S: Final = 0.05
Judge = Callable[[bytes], object]


def filled(beginning: bytes, piece: bytes, end: bytes = b"") -> bytes:
    room = SIZE - len(beginning) - len(end)
    return beginning + (piece * (room // len(piece) + 1))[:room] + end


TOKENS: Final = {
    "nothing": bytes(SIZE),
    "a": b"a" * SIZE,
    "commas": b"," * SIZE,
    "no text": b"\xff" * SIZE,
    "wide text": "\U0001f600".encode() * (SIZE // 4),
    "plain with a long password": filled(b"\0alice\0", b"x"),
    "plain with many names": filled(b"\0alice\0wonderland", b"\0"),
    "scram with a long name": filled(b"n,,n=", b"a", b",r=nonce"),
    "scram with escapes": filled(b"n,,n=", b"=2C", b",r=nonce"),
    "scram with a bad escape at the end": filled(b"n,,n=", b"=2C", b"=,r=nonce"),
    "scram with extensions": filled(b"n,,n=bob,r=nonce", b",a=b"),
    "scram with token logins": filled(b"n,,n=bob,r=nonce", b",tokenauth=tru"),
    "scram with a mandatory extension": filled(b"n,,m=", b"=", b",n=bob,r=x"),
    "scram with proofs": filled(b"c=biws,r=x", b",p=", b","),
    "scram with an end that does not fit": filled(b"c=biws,r=x,", b"p=p,", b"\0"),
    "bearer with pairs": filled(b"n,,\x01", b"a=b\x01"),
    "bearer with a pair that does not end": filled(b"n,,\x01auth=Bearer ", b"a"),
    "bearer for a long name": filled(b"n,a=", b"=2C", b",\x01auth=Bearer x\x01\x01"),
    "bearer with spaces": filled(b"n,,\x01auth=Bearer ", b" \t\r\n", b"\x01\x01"),
}


def cpu_s(judge: Judge, token: bytes) -> float:
    """The best of three: others use the processor, too."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        with suppress(AuthenticationRefused):
            judge(token)
        best = min(best, time.process_time() - began)
    return best


def scram_twice(token: bytes) -> None:
    with suppress(AuthenticationRefused):
        ScramExchange("SCRAM-SHA-256", lambda _: None, "nonce", lambda _: None).respond(token)
    exchange = ScramExchange("SCRAM-SHA-256", lambda _: None, "nonce")
    with suppress(AuthenticationRefused):
        exchange.respond(b"n,,n=bob,r=x")
    exchange.respond(token)


JUDGES: Final[dict[str, Judge]] = {
    "PLAIN": lambda token: PlainExchange(is_one_of({"alice": "wonderland"})).respond(token),
    "SCRAM": scram_twice,
    "delegation token": scram_name,
    "OAUTHBEARER": bearer_token,
}


@pytest.mark.timed
@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_every_token_is_refused_soon(judge: Judge) -> None:
    slow = {name: spent for name, token in TOKENS.items() if (spent := cpu_s(judge, token)) > LONGEST_S}
    assert slow == {}


def encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.mark.timed
def test_json_web_tokens_that_nest_lie_or_are_large_are_refused_soon(provider: IdentityProvider) -> None:
    document = json.loads(provider.document())["keys"][0]
    keys = {"first": PyJWK(document)}
    settings = TokenSettings("file:///keys", None, ("ottla",), "sub", "scope", 0)
    accept = accept_signed(settings, keys)
    header, payload, signature = provider.token("alice", aud="ottla").encode().split(b".")
    deep = encoded(b'{"alg":"RS256","kid":"first","x":' + b"[" * 45_000)
    many = encoded(json.dumps({"alg": "RS256", "kid": "first", **{str(n): n for n in range(3000)}}).encode())
    forged = [
        b".".join((deep, payload, signature)),
        b".".join((many, payload, signature)),
        b".".join((header, encoded(b"[" * 45_000), signature)),
        b".".join((header, payload, b"A" * 60_000)),
        b"." * 60_000,
        b"." * SIZE,
        b"a.b.c" * 10_000,
        b".".join((encoded(b'{"alg":"none","kid":"first"}'), payload, b"")),
        b".".join((encoded(b'{"alg":"HS256","kid":"first"}'), payload, signature)),
        b".".join((encoded(b'{"alg":"RS256","kid":' + b"9" * 40_000 + b"}"), payload, signature)),
        b".".join((encoded(b'{"alg":"RS256","kid":"first","crit":["x"],"x":1}'), payload, signature)),
        b".".join((header, encoded(b'{"sub":"alice","aud":"ottla","iat":1,"exp":1e999}'), signature)),
    ]
    for token in forged:
        text = token.decode()
        with pytest.raises(AuthenticationRefused):
            accept(text)
        assert cpu_s(lambda _, text=text: accept(text), b"") < LONGEST_S  # type: ignore[misc]
        exchange = BearerExchange(accept)
        with suppress(AuthenticationRefused):
            exchange.respond(b"n,,\x01auth=Bearer " + token + b"\x01\x01")
        assert exchange.user is None
