"""Where a worker listens, and that nobody else's address is open without a login."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.connect.errors import ConfigError
from ottla.connect.rest.certificates import https_settings
from ottla.connect.rest.listening import Address, addresses, advertised, check_exposure, listening
from ottla.connect.rest.server import logins
from ottla.connect.runtime.worker_settings import worker_settings


def asked(listeners: str) -> list[Address]:
    return addresses(worker_settings({"listeners": listeners}))


def test_listeners_are_several() -> None:
    assert asked("http://127.0.0.1:8083, HTTPS://[::1]:8443,host") == [
        Address("http", "127.0.0.1", 8083), Address("https", "::1", 8443), Address("http", "host", 8083),
    ]  # fmt: skip


@pytest.mark.parametrize("listeners", ["", " , ", "ftp://h:1", "http://h:99999", "http://u:p@h:1", "http://[h:1"])
def test_listeners_that_cannot_be_are_refused(listeners: str) -> None:
    with pytest.raises(ConfigError, match=r"^listeners is"):
        asked(listeners)


@pytest.mark.parametrize(
    ("host", "is_open"), [("0.0.0.0", True), ("", True), ("127.0.0.1", False), ("127.0.0.2", False)]
)
def test_other_addresses_than_loopback_ones_need_a_login(host: str, is_open: bool) -> None:
    listener = listening(Address("http", host, 0))
    try:
        check_exposure(worker_settings({}), listener, has_login=True)
        check_exposure(worker_settings({"rest.allow.unauthenticated": "true"}), listener, has_login=False)
        if is_open:
            with pytest.raises(ConfigError, match=r"ask for a login \(rest.users.file"):
                check_exposure(worker_settings({}), listener, has_login=False)
        else:
            check_exposure(worker_settings({}), listener, has_login=False)
        with pytest.raises(ConfigError, match=r"rest.advertised.listener is https, and listeners has none"):
            advertised(worker_settings({"rest.advertised.listener": "https"}), [listener])
        assert advertised(worker_settings({}), [listener]) is listener
    finally:
        listener.socket.close()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"rest.extension.classes": "com.example.Ldap"}, "com.example.Ldap, Java classes that Ottla does not have"),
        ({"rest.admin.users": "alice"}, "nobody can log in"),
        ({"rest.users.file": "/no/such"}, "/no/such cannot be read: No such file"),
        ({"rest.oauthbearer.jwks.endpoint.url": "https://idp/keys"}, "expected.audience is missing"),
    ],
)
def test_a_login_that_is_asked_for_and_cannot_be_stops_the_start(settings: Mapping[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        logins(worker_settings(settings))


@pytest.mark.parametrize(
    "url",
    ["http://idp/keys", "http://localhost.evil.example/keys", "https://u:p@idp/keys", "file://host/keys", "ftp://x"],
)
def test_keys_that_could_be_replaced_on_their_way_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"rest.oauthbearer.jwks.endpoint.url: it has to be an https or file URL"):
        logins(
            worker_settings(
                {"rest.oauthbearer.jwks.endpoint.url": url, "rest.oauthbearer.expected.audience": "connect"}
            )
        )


def test_without_settings_nobody_is_asked_to_log_in() -> None:
    assert logins(worker_settings({})) is None


def test_tls_has_settings_of_its_own_or_those_of_the_worker(tmp_path: Path) -> None:
    shared = {"ssl.keystore.location": "/shared", "ssl.client.auth": "required"}
    assert https_settings(shared).key_store.location == "/shared"
    own = https_settings({**shared, "listeners.https.ssl.keystore.location": "/own"})
    assert (own.key_store.location, own.client_auth) == ("/own", "none"), "all of them or none, as in Kafka"
    with pytest.raises(ConfigError, match=r"ssl.client.auth"):
        https_settings({"listeners.https.ssl.client.auth": "maybe"})
