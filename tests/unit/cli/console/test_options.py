"""Where `ottla console` may listen, and when it changes something, by its options."""

from pathlib import Path
from typing import Any

import click
import pytest

from ottla.cli.brokers.client import Connection
from ottla.cli.console.commands import _settings
from ottla.connect.rest.client import Access as WorkerLogin
from ottla.connect.rest.client import basic
from ottla.console.access.roles import Role
from ottla.console.connectors import NO_LOGIN
from ottla.console.server import Exposed, check_exposure

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
NOTHING: dict[str, Any] = {
    "login": False,
    "roles": (),
    "roles_file": None,
    "masks": (),
    "read_only": False,
    "allow_changes": False,
    "public_url": None,
    "audit_log": None,
    "workers": (),
    "home": None,
}


def asked(
    host: str = "127.0.0.1", properties: dict[str, str] | None = None, access: WorkerLogin = NO_LOGIN, **given: Any
) -> Any:
    connection = Connection("h:1", properties or {})
    return _settings(connection, access, host, {**NOTHING, **given}, is_encrypted=False)


@pytest.mark.parametrize(
    ("host", "has_login", "is_encrypted", "allows_plain_http", "refusal"),
    [
        ("127.0.0.1", False, False, False, None),
        ("::1", False, False, False, None),
        ("localhost", False, False, False, None),
        ("0.0.0.0", False, True, True, "--login"),
        ("::", False, True, True, "--login"),
        ("0.0.0.0", True, False, False, "--tls-certificate"),
        ("0.0.0.0", True, True, False, None),
        ("0.0.0.0", True, False, True, None),
    ],
)
def test_beyond_this_machine_it_asks_for_a_login_and_for_tls(
    host: str, has_login: bool, is_encrypted: bool, allows_plain_http: bool, refusal: str | None
) -> None:
    def check() -> None:
        check_exposure(host, 8080, has_login=has_login, is_encrypted=is_encrypted, allows_plain_http=allows_plain_http)

    if refusal is None:
        check()
    else:
        with pytest.raises(Exposed, match=refusal):
            check()


@pytest.mark.parametrize(
    ("host", "properties", "given", "changes"),
    [
        ("127.0.0.1", {}, {}, True),
        ("127.0.0.1", {}, {"read_only": True}, False),
        ("127.0.0.1", {"security.protocol": "SSL"}, {}, True),
        ("127.0.0.1", {**SASL, "sasl.username": "ops"}, {}, False),  # it would lend ops to everybody here
        ("127.0.0.1", {"security.protocol": "SSL", "ssl.key.location": "k"}, {}, False),
        ("127.0.0.1", {**SASL, "sasl.username": "ops"}, {"allow_changes": True}, True),
        ("127.0.0.1", SASL, {"login": True}, True),
        ("127.0.0.1", SASL, {"login": True, "public_url": "https://c.example"}, False),
        ("0.0.0.0", SASL, {"login": True}, False),
        ("0.0.0.0", SASL, {"login": True, "allow_changes": True}, True),
    ],
)
def test_when_it_changes_something(host: str, properties: dict[str, str], given: dict[str, Any], changes: bool) -> None:
    assert asked(host, properties, **given).changes is changes


@pytest.mark.parametrize(
    ("properties", "given", "complaint"),
    [
        ({}, {"login": True}, "without users"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, {"login": True}, "not by GSSAPI"),
        ({}, {"roles": ("a=admin",)}, "need --login"),
        ({}, {"read_only": True, "allow_changes": True}, "exclude each other"),
        ({}, {"public_url": "https://c.example"}, "needs --login"),
        (SASL, {"login": True, "public_url": "c.example"}, "https://HOST"),
        (SASL, {"login": True, "public_url": "https://c.example/console"}, "https://HOST"),
    ],
)
def test_options_that_do_not_fit(properties: dict[str, str], given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        asked("127.0.0.1", properties, **given)


def test_roles_come_from_options_and_a_file_and_a_proxy_has_a_name(tmp_path: Path) -> None:
    file = tmp_path / "roles"
    file.write_text("# staff\nbob=editor\n*=none\n")
    settings = asked(
        "127.0.0.1",
        SASL,
        login=True,
        roles=("alice=admin",),
        roles_file=file,
        public_url="https://Console.example:8443/",
    )
    assert [settings.roles.of(name) for name in ("alice", "bob", "carol")] == [Role.ADMIN, Role.EDITOR, Role.NONE]
    assert ("console.example" in settings.names, settings.scheme, settings.has_proxy) == (True, "https", True)
    assert not settings.is_loopback


def test_a_login_at_workers_is_not_lent_to_everybody() -> None:
    login = WorkerLogin(basic("ops", "secret"))
    assert not asked(access=login, workers=("w:8083",)).changes
    assert asked(access=login, workers=("w:8083",), allow_changes=True).changes
    assert asked(access=login).changes
    assert asked(workers=("w:8083", "v:8083")).changes
    assert [each.url for each in asked(workers=("w:8083", "v:8083")).workers] == ["w:8083", "v:8083"]


def test_jobs_of_this_user_are_shown_here_and_changed_only_where_that_is_meant(tmp_path: Path) -> None:
    assert asked().home is not None
    assert not asked().promotes
    assert asked(home=str(tmp_path)).promotes
    with_login = asked(properties=SASL, login=True)
    assert (with_login.home, with_login.promotes) == (None, True)
    assert asked(properties=SASL, login=True, home=str(tmp_path)).home == tmp_path


def test_no_page_can_show_a_login_in_the_address_of_a_worker() -> None:
    with pytest.raises(click.UsageError, match="--connect-user"):
        asked(workers=("http://ops:secret@connect:8083",))
