"""Tokens of brokers: from where they come, how long they are used, and what is no token."""

import time
from pathlib import Path

import pytest
from tests.support.identity_provider import IdentityProvider
from tests.support.token_endpoint import CLIENT, TokenEndpoint

from ottla.config.logins import TokenLoginSettings
from ottla.security.bearer_login import BearerLogin, BearerTokens, expiry


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


def test_a_token_of_a_file_is_used_until_most_of_its_life_is_over(provider: IdentityProvider, tmp_path: Path) -> None:
    file, now = tmp_path / "token", time.time()
    clock = [now]
    tokens = BearerTokens(TokenLoginSettings(file.as_uri()), lambda: clock[0])
    first, second = (provider.token(exp=int(now) + life_s) for life_s in (100, 1000))
    file.write_text(f"{first}\n")
    assert tokens.current() == first
    file.write_text(second)
    clock[0] = now + 70
    assert tokens.current() == first
    clock[0] = now + 85
    login = BearerLogin(tokens)
    login.prepare()
    assert login.respond(None) == f"n,,\x01auth=Bearer {second}\x01\x01".encode()
    assert login.respond(b"") is None
    assert login.respond(b'{"status":"invalid_token"}') == b"\x01"


def test_a_provider_gives_tokens_for_the_secret(provider: IdentityProvider) -> None:
    with TokenEndpoint(provider, life_s=60) as endpoint:
        settings = TokenLoginSettings(endpoint.url, *CLIENT, "kafka")
        tokens = BearerTokens(settings)
        assert tokens.current() == tokens.current()
        assert endpoint.given == ["kafka"]
        with pytest.raises(ConnectionError, match="401") as refused:
            BearerTokens(settings._replace(client_secret="hunter2")).current()
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "a.b.c", "x", "hunter2." + "e30" + ".x", "a\nb.e30.c"])
def test_what_is_no_token_is_refused_without_quoting_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it is no JSON Web Token"):
        expiry(text)
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConnectionError, match="no token comes from file:") as refused:
        BearerTokens(TokenLoginSettings((tmp_path / "token").as_uri())).current()
    assert "hunter2" not in str(refused.value)


def test_an_expired_token_is_not_sent(provider: IdentityProvider, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(provider.token(exp=int(time.time()) - 1))
    with pytest.raises(ConnectionError, match="the token has expired"):
        BearerTokens(TokenLoginSettings((tmp_path / "token").as_uri())).current()
