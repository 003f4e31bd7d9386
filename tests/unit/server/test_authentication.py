"""What a connection may do before, during and after a login."""

import pytest

from ottla.config.sasl import SaslSettings
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.api import ApiKey
from ottla.security.sasl import Exchange, PlainExchange, is_one_of
from ottla.server.authentication import MOST_REQUESTS, Authentication

USERS = {"alice": "secret", "bob": "hidden"}


class Mechanisms:
    """PLAIN with two users, whose logins last ten seconds."""

    settings = SaslSettings(("PLAIN",), USERS, {"PLAIN": 10_000})
    max_bytes = 1000

    def exchange(self, mechanism: str) -> Exchange:
        return PlainExchange(is_one_of(USERS))

    def missing(self, mechanism: str, token: bytes, exchange: object) -> None:
        return None


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authentication(clock: Clock) -> Authentication:
    return Authentication(Mechanisms(), clock)


def log_in(authentication: Authentication, token: bytes) -> None:
    authentication.begin("PLAIN", bare_tokens=False)
    authentication.respond(token)


def test_only_a_few_requests_of_three_kinds_are_admitted_before(authentication: Authentication) -> None:
    assert not authentication.admits(ApiKey.METADATA)
    assert not authentication.admits(ApiKey.PRODUCE)
    for _ in range(MOST_REQUESTS - 2):
        assert authentication.admits(ApiKey.API_VERSIONS)
    assert not authentication.admits(ApiKey.API_VERSIONS)


def test_a_login_lasts_for_its_time_and_can_be_renewed(authentication: Authentication, clock: Clock) -> None:
    log_in(authentication, b"\0alice\0secret")
    assert authentication.principal == "User:alice"
    assert authentication.session_lifetime_ms == 10_000
    clock.now += 9.9
    assert authentication.admits(ApiKey.PRODUCE)
    clock.now += 0.2
    assert not authentication.admits(ApiKey.PRODUCE)
    assert authentication.admits(ApiKey.SASL_HANDSHAKE)
    log_in(authentication, b"\0alice\0secret")
    assert authentication.admits(ApiKey.PRODUCE)


def test_a_renewal_neither_changes_the_user_nor_ends_well_with_a_wrong_password(authentication: Authentication) -> None:
    log_in(authentication, b"\0alice\0secret")
    for token in (b"\0bob\0hidden", b"\0alice\0wrong"):
        with pytest.raises(ApiError) as refused:
            log_in(authentication, token)
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert authentication.principal == "User:alice"


def test_tokens_without_a_handshake_and_handshakes_within_another_are_refused(authentication: Authentication) -> None:
    with pytest.raises(ApiError) as refused:
        authentication.respond(b"\0alice\0secret")
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(ApiError) as refused:
        authentication.begin("SCRAM-SHA-256", bare_tokens=False)
    assert refused.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    authentication.begin("PLAIN", bare_tokens=True)
    assert authentication.takes_tokens
    with pytest.raises(ApiError) as refused:
        authentication.begin("PLAIN", bare_tokens=False)
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE
    assert authentication.principal is None
