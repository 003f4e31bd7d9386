"""Logins to the REST API: passwords and hashes, the file of users, failed attempts, tokens, roles."""

import asyncio
import os
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from tests.support.identity_provider import IdentityProvider

from ottla.config.sasl import TokenSettings
from ottla.connect.errors import ConfigError
from ottla.connect.rest import passwords
from ottla.connect.rest.authentication import Caller, Logins
from ottla.connect.rest.guard import Refusal
from ottla.connect.rest.users import LOOK_AGAIN_S, Users, jaas_users_file
from ottla.security.failed_logins import MOST_KEPT, PER_ADDRESS, PER_USER, REFILL_S, FailedLogins, network

HASHED = passwords.hashed("correct horse")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def users_file(path: Path, text: str) -> Path:
    """Replaced as an operator would, by another file."""
    other = path.with_suffix(".new")
    other.write_text(text)
    return other.rename(path)


class Door:
    """A client at the logins of a worker."""

    def __init__(self, logins: Logins) -> None:
        self.logins = logins

    def __call__(self, authorization: str | None, address: str = "10.0.0.1") -> Caller | int:
        headers = Headers({} if authorization is None else {"authorization": authorization})
        try:
            return asyncio.run(self.logins.caller(headers, address))
        except Refusal as refusal:
            return refusal.status


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def door(tmp_path: Path, clock: Clock) -> Door:
    file = users_file(tmp_path / "users", f"alice={HASHED}\nbob=plain text\n")
    return Door(Logins(Users(file, clock), None, frozenset(("alice",)), clock))


# -- passwords -------------------------------------------------------------------------------------------------------


def test_a_hash_is_right_for_its_password_alone() -> None:
    assert passwords.is_right(HASHED, "correct horse")
    assert not passwords.is_right(HASHED, "correct horsE")
    assert not passwords.is_right(HASHED, HASHED), "the file's text is no password"
    assert passwords.hashed("correct horse") != HASHED, "each has a salt of its own"
    assert passwords.problem(HASHED) is None
    assert passwords.problem(passwords.DECOY) is None


@pytest.mark.parametrize(
    "kept",
    [
        "$scrypt$",
        "$scrypt$ln=14,r=8,p=1$c2FsdA$",
        "$scrypt$ln=14,r=8,p=1$c2FsdA$aGFzaA",
        "$scrypt$ln=14,r=8,p=1$c2Fsd$" + "A" * 43,
        "$scrypt$ln=30,r=8,p=1$c2FsdA$" + "A" * 43,
        "$scrypt$ln=14,r=999,p=1$c2FsdA$" + "A" * 43,
        "$scrypt$ln=14,r=8,p=99$c2FsdA$" + "A" * 43,
        "$scrypt$ln=0,r=8,p=1$c2FsdA$" + "A" * 43,
    ],
)
def test_a_hash_that_cannot_be_checked_or_is_dear_lets_nobody_in(kept: str, tmp_path: Path) -> None:
    assert passwords.problem(kept) is not None
    assert not passwords.is_right(kept, "")
    with pytest.raises(ConfigError, match=r"the password of alice is (a|no) hash") as refused:
        Users(users_file(tmp_path / "users", f"alice={kept}\n"))
    assert "AAAA" not in str(refused.value)
    assert "aGFz" not in str(refused.value)


# -- users -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no user"),
        ("# nobody\n", "has no user"),
        ("alice=\n", "alice has no password"),
        ("=geheim\n", "has a line that is not of the form"),
        ("alice=\\u00z\n", "has a line that is not of the form"),
        ("x" * (1 << 20) + "=y\n", "is larger than 1 MiB"),
    ],
)
def test_a_file_without_users_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """Kafka's module lets everybody in then."""
    with pytest.raises(ConfigError, match=why) as refused:
        Users(users_file(tmp_path / "users", text))
    assert "geheim" not in str(refused.value)


def test_users_are_read_again_and_a_file_that_is_gone_lets_nobody_in(door: Door, clock: Clock, tmp_path: Path) -> None:
    assert door(basic("bob", "plain text")) == Caller("bob", may_change=False)
    users_file(tmp_path / "users", f"alice={HASHED}\n")
    clock.now += LOOK_AGAIN_S
    assert door(basic("bob", "plain text")) == 401, "removed, though the login was remembered"
    assert door(basic("alice", "correct horse")) == Caller("alice", may_change=True)
    os.remove(tmp_path / "users")
    clock.now += LOOK_AGAIN_S
    assert door(basic("alice", "correct horse")) == 401
    users_file(tmp_path / "users", "alice=another one\n")
    clock.now += LOOK_AGAIN_S
    assert door(basic("alice", "correct horse")) == 401
    assert door(basic("alice", "another one")) == Caller("alice", may_change=True)


MODULE = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"


def test_kafkas_jaas_file_names_the_users(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(
        f"/* of Kafka */\nKafkaClient {{ some.Module required; }};\nKafkaConnect {{\n  // users\n  {MODULE} required\n"
        '  file="/etc/users.properties";\n};\n'
    )
    assert jaas_users_file(str(jaas)) == Path("/etc/users.properties")
    options = {"KAFKA_OPTS": f"-Xmx1G -Djava.security.auth.login.config={jaas} -Da=b"}
    assert jaas_users_file(None, options) == Path("/etc/users.properties")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read"),
        ("KafkaServer { x required; };", "has no section KafkaConnect"),
        ("KafkaConnect { com.example.Ldap required a=b; };", "com.example.Ldap is not served"),
        (f"KafkaConnect {{ {MODULE} required; }};", "has no option file"),
        (
            f'KafkaConnect {{ {MODULE} required file="/a"; {MODULE} required file="/b"; }};',
            "more than one login module",
        ),
    ],
)
def test_a_jaas_file_that_says_something_else_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    jaas = tmp_path / "jaas.conf"
    if text is not None:
        jaas.write_text(text)
    with pytest.raises(ConfigError, match=why):
        jaas_users_file(str(jaas))
    with pytest.raises(ConfigError, match="takes its users from a JAAS configuration"):
        jaas_users_file(None, {})


# -- failed logins ---------------------------------------------------------------------------------------------------


def test_failures_are_taken_up_to_a_number_and_then_one_at_a_time() -> None:
    failed, now = FailedLogins(), 1000.0
    for _ in range(PER_ADDRESS):
        assert failed.wait_s("10.0.0.1", "alice", now) == 0
        failed.note("10.0.0.1", "alice", now)
    assert failed.wait_s("10.0.0.1", "bob", now) == REFILL_S, "of any user"
    assert failed.wait_s("10.0.0.2", "alice", now) == 0, "from elsewhere"
    assert failed.wait_s("10.0.0.1", "bob", now + REFILL_S) == 0
    failed.note("10.0.0.1", "bob", now + REFILL_S)
    assert failed.wait_s("10.0.0.1", "bob", now + REFILL_S) > 0
    failed.forgive("10.0.0.1", "bob", now + REFILL_S)
    assert failed.wait_s("10.0.0.1", "bob", now + REFILL_S) == 0


def test_a_user_is_guarded_against_many_addresses() -> None:
    failed = FailedLogins()
    for number in range(PER_USER):
        failed.note(f"10.0.{number}.1", "alice", 0.0)
    assert failed.wait_s("10.9.9.9", "alice", 0.0) > 0
    assert failed.wait_s("10.9.9.9", "bob", 0.0) == 0


def test_what_is_kept_of_failures_is_bounded() -> None:
    failed = FailedLogins()
    for number in range(MOST_KEPT):
        failed.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "x" * 100_000, 0.0)
    assert len(failed._buckets) <= MOST_KEPT
    assert max(len(key) for _, key in failed._buckets) <= 200


def test_one_client_has_a_network_of_addresses() -> None:
    assert network("2001:db8::1") == network("2001:db8::ffff:2")
    assert network("2001:db8::1") != network("2001:db8:0:1::1")
    assert network("::ffff:10.0.0.1") == network("10.0.0.1")
    assert network("fe80::1%eth0") == network("fe80::2%eth1")


def test_guesses_from_an_address_are_refused_and_shut_nobody_out_who_is_in(door: Door, clock: Clock) -> None:
    assert door(basic("alice", "correct horse")) == Caller("alice", may_change=True)
    for _ in range(PER_ADDRESS):
        assert door(basic("bob", "a guess")) == 401
    assert door(basic("bob", "plain text")) == 429, "also the right one: else the limit would be none"
    assert door(basic("alice", "correct horse")) == Caller("alice", may_change=True)
    assert door(basic("bob", "plain text"), "10.0.0.2") == Caller("bob", may_change=False)
    clock.now += REFILL_S
    assert door(basic("bob", "plain text")) == Caller("bob", may_change=False)


def test_guesses_that_come_at_once_are_counted_before_they_are_checked(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    go_on = threading.Event()

    def slow(_kept: str, password: str) -> bool:
        checked.append(password)
        return not go_on.wait(60)

    monkeypatch.setattr("ottla.connect.rest.authentication.is_right", slow)

    async def all_at_once() -> list[int]:
        async def guess(number: int) -> int:
            try:
                await door.logins.caller(Headers({"authorization": basic("alice", str(number))}), "10.0.0.1")
            except Refusal as refusal:
                return refusal.status
            return 200

        guesses = [asyncio.create_task(guess(number)) for number in range(100)]
        await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
        go_on.set()
        return await asyncio.gather(*guesses)

    statuses = asyncio.run(all_at_once())
    assert (statuses.count(429), statuses.count(401)) == (100 - PER_ADDRESS, PER_ADDRESS)
    assert len(checked) == PER_ADDRESS


@pytest.mark.timed
def test_a_refusal_takes_as_long_for_nobody_as_for_somebody(door: Door) -> None:
    def cpu_s(user: str) -> float:
        begin = time.process_time()
        assert door(basic(user, "a guess"), f"{user}-{begin}") == 401
        return time.process_time() - begin

    hashed, plain, nobody = (min(cpu_s(user) for _ in range(5)) for user in ("alice", "bob", "nobody"))
    assert 0.5 < nobody / hashed < 2
    assert 0.5 < nobody / plain < 2


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic YQ==",
        "Basic " + b64encode(b"\xff:\xff").decode(),
        "Bearer x",
        "Digest x",
        "Basic " + "A" * 200_000,
        basic("alice", "x" * 5000),
        basic("", ""),
        basic("alice", ""),
    ],
)
def test_other_headers_let_nobody_in(door: Door, header: str | None) -> None:
    assert door(header) == 401


def test_nothing_that_was_tried_is_in_the_log(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    door(basic("alice", "nearly the password"))
    assert "'alice' from 10.0.0.1" in caplog.text
    assert "nearly" not in caplog.text
    assert "nearly" not in repr(vars(door.logins))


# -- roles and tokens ------------------------------------------------------------------------------------------------


def test_without_admins_all_users_of_the_file_are_as_in_kafka(tmp_path: Path) -> None:
    file = users_file(tmp_path / "users", "bob=plain text\n")
    for admins, may in ((None, True), (frozenset(("*",)), True), (frozenset[str](), False)):
        door = Door(Logins(Users(file), None, admins, Clock()))
        assert door(basic("bob", "plain text")) == Caller("bob", may_change=may)


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


def test_tokens_prove_users_who_may_read(tmp_path: Path, provider: IdentityProvider, clock: Clock) -> None:
    keys = provider.write(tmp_path / "keys.json")
    settings = TokenSettings(keys.as_uri(), "https://issuer", ("connect",), "sub", "scope", 30)

    def at(admins: frozenset[str] | None) -> Callable[[str], Caller | int]:
        door = Door(Logins(None, settings, admins, clock))
        return lambda header: door(header)

    good = "Bearer " + provider.token("alice", aud="connect")
    assert at(None)(good) == Caller("alice", may_change=False), "nobody has named this user"
    assert at(frozenset(("alice",)))(good) == Caller("alice", may_change=True)
    assert at(frozenset(("*",)))("bearer " + good[7:]) == Caller("alice", may_change=True)
    refused = at(None)
    assert refused("Bearer " + provider.token("alice", aud="other")) == 401
    assert refused("Bearer " + provider.token("alice", aud="connect", iss="https://evil")) == 401
    assert refused("Bearer " + provider.token("alice", aud="connect", exp=int(time.time()) - 60)) == 401
    assert refused(good[:-4]) == 401
    for _ in range(PER_ADDRESS):
        refused("Bearer x.y.z")
    assert refused(good) == 429
