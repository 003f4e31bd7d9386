"""Logins by Kerberos (GSSAPI): clients of other projects, and tickets and key tables that do not hold."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.genuine import TOOL_JVM_OPTIONS, kafka_tool
from tests.support.kerberos import NAME, Realm, key_line
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import RawConnection
from tests.support.requirements import require

from ottla.config.kerberos import KerberosKey, KerberosSettings
from ottla.errors import ErrorCode, InvalidConfig
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.security.gssapi import Acceptor, Credentials, GssError, Initiator, new_cache
from ottla.security.kerberos import KerberosLogin, check_kerberos

SERVICE = "kafka/localhost"
LINES = [f"{number}" for number in range(200)]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("realm")) as started:
        for principal in (SERVICE, "alice", "bob/laptop", "carol/laptop"):
            started.add(principal)
        yield started


@pytest.fixture(scope="module")
def running(realm: Realm) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker that knows bob/laptop as BOB, and carol/laptop not at all."""
    broker = OttlaProcess(environment=realm.environment)
    port = free_port()
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://localhost:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            "listener.name.outside.gssapi.sasl.jaas.config": key_line(realm.table_of(SERVICE), SERVICE),
            "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1@$0](b.*@EXAMPLE.TEST)s/@.*///U,RULE:[1:$1]",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            "allow.everyone.if.no.acl.found": "false",
        }
    )
    with broker:
        yield broker, f"localhost:{port}"


@pytest.fixture(autouse=True)
def environment(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)


def last_answer(address: str, login: KerberosLogin) -> tuple[int, str]:
    """The error and its text that end a login."""
    login.prepare()
    with RawConnection(address) as connection:
        assert connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
        answer, challenge = None, None
        while (token := login.respond(challenge)) is not None:
            answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            challenge = bytes(answer.auth_bytes)
            if answer.error_code:
                break
        assert answer is not None
        return answer.error_code, answer.error_message or ""


def login(table: Path, principal: str, cache: str = "") -> KerberosLogin:
    name = f"{principal}@{NAME}"
    return KerberosLogin(
        lambda: Initiator(Credentials(name, str(table), cache=cache or new_cache()), "kafka", "localhost")
    )


def skewed(cache: Path, seconds: int) -> Path:
    """A file of tickets whose owner takes it to be later by some seconds: its header has the difference."""
    content = bytearray(cache.read_bytes())
    content[8:12] = seconds.to_bytes(4, "big", signed=True)
    assert content[:8] == b"\x05\x04\x00\x0c\x00\x01\x00\x08"
    cache.write_bytes(content)
    return cache


def test_kcat_produces_and_consumes(realm: Realm, running: tuple[OttlaProcess, str], tmp_path: Path) -> None:
    _, address = running
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(realm.table_of("alice")),
        "sasl.kerberos.principal": f"alice@{NAME}",
    }
    words = [require("kcat"), "-b", address, "-t", "kcat", *(f"-X{name}={value}" for name, value in settings.items())]
    environment = {"KRB5CCNAME": str(tmp_path / "tickets"), **realm.environment, "PATH": "/usr/bin:/bin"}
    subprocess.run([*words, "-P"], input=TEXT, text=True, env=environment, check=True, timeout=30)
    consumed = subprocess.run(
        [*words, "-C", "-e", "-q"], text=True, env=environment, check=True, timeout=30, capture_output=True
    )
    assert consumed.stdout.splitlines() == LINES


def test_javas_clients_produce_and_consume(realm: Realm, running: tuple[OttlaProcess, str], tmp_path: Path) -> None:
    _, address = running
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={key_line(realm.table_of('alice'), 'alice')}\n"
    )
    options = (*TOOL_JVM_OPTIONS, f"-Djava.security.krb5.conf={realm.conf}")
    at = ("--bootstrap-server", address, "--topic", "java", "--command-config", str(config))
    kafka_tool("ConsoleProducer", *at, stdin=TEXT, jvm_options=options)
    received = kafka_tool(
        "ConsoleConsumer", *at, "--from-beginning", "--max-messages", str(len(LINES)), jvm_options=options
    )
    assert received.stdout.splitlines() == LINES


def test_names_follow_the_rules(realm: Realm, running: tuple[OttlaProcess, str]) -> None:
    broker, address = running
    assert last_answer(address, login(realm.table_of("alice"), "alice"))[0] == 0
    assert last_answer(address, login(realm.table_of("bob/laptop"), "bob/laptop"))[0] == 0
    code, why = last_answer(address, login(realm.table_of("carol/laptop"), "carol/laptop"))
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert why == "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    eventually(
        lambda: f"no rule of sasl.kerberos.principal.to.local.rules applies to carol/laptop@{NAME}" in broker.log_text()
    )


def test_tickets_that_do_not_hold(realm: Realm, running: tuple[OttlaProcess, str], tmp_path: Path) -> None:
    broker, address = running
    with pytest.raises(ConnectionError, match="Kerberos gives no ticket"):
        login(tmp_path / "none.keytab", "alice").prepare()
    realm.add("dave")
    realm.replace_key("dave")
    with pytest.raises(ConnectionError, match=r"(?i)preauthentication failed|password incorrect|decrypt"):
        login(realm.table_of("dave"), "dave").prepare()

    later = realm.kinit("alice", tmp_path / "later")
    assert later is not None
    subprocess.run(["kvno", "-q", "-c", str(later), SERVICE], check=True)
    skewed(later, 3600)
    code, _ = last_answer(address, login(tmp_path / "none.keytab", "alice", f"FILE:{later}"))
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    eventually(lambda: "Clock skew too great" in broker.log_text())


def test_an_expired_ticket_is_refused(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the tolerance of clocks, five minutes by default and two seconds here."""
    strict = tmp_path / "krb5.conf"
    strict.write_text(realm.conf.read_text().replace("[libdefaults]", "[libdefaults]\n    clockskew = 2"))
    short = realm.kinit("alice", tmp_path / "short", "-l", "1s")
    assert short is not None
    credentials = Credentials(f"alice@{NAME}", str(tmp_path / "none.keytab"), cache=f"FILE:{short}")

    def reason() -> str:
        monkeypatch.setenv("KRB5_CONFIG", str(realm.conf))
        try:
            token = Initiator(credentials, "kafka", "localhost").step(b"")
            monkeypatch.setenv("KRB5_CONFIG", str(strict))
            Acceptor(Credentials(f"{SERVICE}@{NAME}", str(realm.table_of(SERVICE)))).step(token)
        except GssError as refused:
            return str(refused)
        return ""

    eventually(lambda: reason() == "Ticket expired")


def test_a_key_that_was_replaced_is_taken_up_from_the_key_table(
    realm: Realm, running: tuple[OttlaProcess, str]
) -> None:
    broker, address = running
    realm.replace_key(SERVICE)
    code, _ = last_answer(address, login(realm.table_of("alice"), "alice"))
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    eventually(lambda: "key" in broker.log_text().rpartition("SASL mechanism GSSAPI:")[2])
    realm.export_key(SERVICE)
    assert last_answer(address, login(realm.table_of("alice"), "alice"))[0] == 0


def test_garbage_is_refused(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    for token in (b"", b"\0", b"`" * 1000, b"n,,\x01auth=Bearer x\x01\x01", bytes(100_000)):
        with RawConnection(address) as connection:
            assert connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
            answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with RawConnection(address) as connection:
        answer = connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_contexts_are_for_one_service(realm: Realm) -> None:
    credentials = Credentials(f"alice@{NAME}", str(realm.table_of("alice")), cache=new_cache())
    with pytest.raises(GssError, match="not found"):
        Initiator(credentials, "other", "localhost").step(b"")


@pytest.mark.parametrize(("table", "principal"), [("none.keytab", SERVICE), ("", "other/localhost")])
def test_a_broker_needs_its_key(realm: Realm, tmp_path: Path, table: str, principal: str) -> None:
    path = tmp_path / table if table else realm.table_of(SERVICE)
    key = KerberosKey(f"{principal}@{NAME}", str(path))
    with pytest.raises(InvalidConfig, match=f"the key table {path} cannot be used for {principal}@{NAME}: "):
        check_kerberos(KerberosSettings(key, ("DEFAULT",)))
