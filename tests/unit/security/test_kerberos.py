"""The exchange of GSSAPI with contexts of a test, and what a hostile end may send."""

import pytest

from ottla.security.gssapi import GssError
from ottla.security.kerberos import KerberosExchange, KerberosLogin
from ottla.security.principals import UnnamedClient
from ottla.security.sasl import AuthenticationRefused


class End:
    """Complete after so many steps; each of its tokens is `token`, and it wraps by brackets."""

    def __init__(self, steps: int, *tokens: bytes) -> None:
        self._steps = steps
        self._tokens = list(tokens)
        self.is_complete = False
        self.peer = ""

    def step(self, token: bytes) -> bytes:
        if token == b"bad":
            raise GssError("Invalid token was supplied")
        self._steps -= 1
        if not self._steps:
            self.is_complete, self.peer = True, "alice@REALM"
        return self._tokens.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"(" + message + b")"

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] + message[-1:] != b"()":
            raise GssError("A token had an invalid Message Integrity Check (MIC)")
        return message[1:-1]


def exchange(end: End) -> KerberosExchange:
    return KerberosExchange(lambda: end, lambda principal: principal.partition("@")[0])


def answer(found: KerberosExchange, token: bytes) -> bytes:
    found.judge(token)
    return found.respond(token)


@pytest.mark.parametrize("last", [b"proof", b""])
def test_both_roles(last: bytes) -> None:
    broker, client = exchange(End(1, last)), KerberosLogin(lambda: End(2, b"ticket", b""))
    client.prepare()
    token, challenges = client.respond(None), 0
    while token is not None:
        challenge = answer(broker, token)
        challenges += 1
        if not last and challenges == 1:
            assert challenge == b"(\1\0\0\0)"
            break
        token = client.respond(challenge)
    assert broker.user == ("alice" if last else None)


@pytest.mark.parametrize("user", [b"", b"alice@REALM", b"kafka@host"])
def test_the_name_is_that_of_the_ticket(user: bytes) -> None:
    broker = exchange(End(1, b"proof"))
    assert answer(broker, b"ticket") == b"proof"
    assert answer(broker, b"") == b"(\1\0\0\0)"
    assert broker.user is None
    assert answer(broker, b"(\1\0\0\0" + user + b")") == b""
    assert broker.user == "alice"


@pytest.mark.parametrize(
    "tokens",
    [
        [b"bad"],
        [b"ticket", b"not empty"],
        [b"ticket", b"", b"\1\0\0\0"],
        [b"ticket", b"", b"(\2\0\0\0)"],
        [b"ticket", b"", b"(\4\xff\xff\xff)"],
        [b"ticket", b"", b"(\1)"],
        [b"ticket", b"", b""],
    ],
)
def test_what_is_no_login_is_refused_for_good(tokens: list[bytes]) -> None:
    broker = exchange(End(1, b"proof", b"again"))
    for token in tokens[:-1]:
        answer(broker, token)
    with pytest.raises(AuthenticationRefused, match="Invalid user credentials") as refused:
        answer(broker, tokens[-1])
    assert isinstance(refused.value.__cause__, AuthenticationRefused)
    for token in (b"", b"ticket", b"(\1\0\0\0)"):
        with pytest.raises(AuthenticationRefused):
            answer(broker, token)
    assert broker.user is None


def test_a_token_that_was_not_judged_proves_nothing() -> None:
    broker = exchange(End(1, b"proof"))
    with pytest.raises(AuthenticationRefused):
        broker.respond(b"ticket")


def test_a_principal_without_a_name_is_refused() -> None:
    def unnamed(principal: str) -> str:
        raise UnnamedClient(f"no rule for {principal}")

    broker = KerberosExchange(lambda: End(1, b"proof"), unnamed)
    answer(broker, b"ticket")
    answer(broker, b"")
    with pytest.raises(AuthenticationRefused):
        answer(broker, b"(\1\0\0\0)")
    assert broker.user is None


@pytest.mark.parametrize("challenge", [b"(\2\0\0\0)", b"(\1)", b"\1\0\0\0"])
def test_a_broker_that_asks_for_a_layer_or_proves_nothing_is_left(challenge: bytes) -> None:
    client = KerberosLogin(lambda: End(2, b"ticket", b""))
    client.prepare()
    assert client.respond(None) == b"ticket"
    assert client.respond(b"proof") == b""
    with pytest.raises(ConnectionError, match="Kerberos refuses the login"):
        client.respond(challenge)
