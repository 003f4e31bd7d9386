"""Every client of another project over every protocol and mechanism that it has, with good and with bad credentials.

One broker has a listener for each protocol; a row of `WAYS` is a way to prove a name.
"""

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.support.certificates import Authority
from tests.support.genuine import ToolFailedError
from tests.support.identity_provider import IdentityProvider
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.requirements import require
from tests.support.tool_server import kafka_tool

MODULES = "org.apache.kafka.common.security"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "java")
TOPIC = "orders"


class Way(NamedTuple):
    """A protocol, and a mechanism if it has SASL."""

    listener: str
    mechanism: str = ""

    @property
    def protocol(self) -> str:
        """Security protocol of the listener."""
        return "SSL" if self.listener == "MUTUAL" else self.listener

    def __str__(self) -> str:
        return f"{self.listener} {self.mechanism}".strip()


ALL_WAYS = [Way("SSL"), Way("MUTUAL")] + [
    Way(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in (*PASSWORDS, "OAUTHBEARER")
]


class Place(NamedTuple):
    """A broker, and the files of its clients."""

    addresses: dict[str, str]
    provider: IdentityProvider
    directory: Path

    def file(self, name: str) -> str:
        return str(self.directory / name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("place")
    authority, provider = Authority(), IdentityProvider()
    authority.write(directory / "ca.pem")
    Authority("stranger").write(directory / "stranger.pem")
    authority.issue("broker").write_pem(directory / "broker.pem")
    authority.issue("client").write_pem(directory / "good.pem")
    Authority("other").issue("client").write_pem(directory / "bad.pem")
    provider.write(directory / "keys.json")
    broker = OttlaProcess()
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL")}
    for name in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{name}."
        broker.properties[f"{prefix}plain.sasl.jaas.config"] = (
            f'{MODULES}.plain.PlainLoginModule required user_alice="good";'
        )
        broker.properties[f"{prefix}oauthbearer.sasl.jaas.config"] = (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        )
    broker.properties.update(
        {
            "listeners": ",".join(
                (f"PLAINTEXT://{broker.bootstrap}", *(f"{name}://{at}" for name, at in addresses.items()))
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join((*PASSWORDS, "OAUTHBEARER")),
            "initial.scram.users": ",".join(f"{name}=[name=alice,password=good]" for name in PASSWORDS[1:]),
            "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.expected.audience": "ottla",
        }
    )
    with broker:
        yield Place(addresses, provider, directory)


class ClosedIfLost(socket.socket):
    """A socket that closes when nothing refers to it; Python's own warn then."""

    def __del__(self) -> None:
        self.close()


class SecuredClosedIfLost(ssl.SSLSocket):
    """As ClosedIfLost, with TLS."""

    def __del__(self) -> None:
        self.close()


@pytest.fixture(autouse=True)
def kafka_python_may_lose_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close what kafka-python 3.0 loses: a socket whose handshake fails, and one that still connects when it gives up.

    A log record of pytest's keeps it until after the test: the warning would fail the test that runs by then.
    """
    monkeypatch.setattr(KafkaNetSocket, "socket", lambda _, *given: ClosedIfLost(*given))
    monkeypatch.setattr(ssl.SSLContext, "sslsocket_class", SecuredClosedIfLost)


# -- clients: each sends one record, or says why not ------------------------------------------------------------------


def librdkafkas(place: Place, way: Way, *, good: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": place.addresses[way.listener], "security.protocol": way.protocol}
    if "SSL" in way.protocol:
        is_trusted = good or way.listener != "SSL"
        settings["ssl.ca.location"] = place.file("ca.pem" if is_trusted else "stranger.pem")
    if way.listener == "MUTUAL":
        pair = place.file("good.pem" if good else "bad.pem")
        settings |= {"ssl.certificate.location": pair, "ssl.key.location": pair}
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
    if way.mechanism in PASSWORDS:
        settings |= {"sasl.username": "alice", "sasl.password": "good" if good else "bad"}
    return settings


def by_confluent_kafka(place: Place, way: Way, *, good: bool) -> str:
    problems: list[str] = []
    settings = librdkafkas(place, way, good=good) | {"error_cb": lambda error: problems.append(str(error))}
    if way.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (token_of(place, good=good), time.time() + 3600)
    producer = Producer({**settings, "log_level": 0, "message.timeout.ms": 20_000})
    sent: list[str] = []
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: sent.append(str(error or "")))
    deadline = time.monotonic() + 20
    while not sent and not problems and time.monotonic() < deadline:
        producer.poll(0.02)
    if not sent:
        producer.purge()
        producer.flush(1)
    return (problems or sent)[0]


def token_of(place: Place, *, good: bool) -> str:
    return place.provider.token("alice") if good else IdentityProvider().token("alice")


def pythons(place: Place, way: Way, *, good: bool) -> dict[str, Any]:
    """Settings of kafka-python and aiokafka."""
    settings: dict[str, Any] = {
        "bootstrap_servers": place.addresses[way.listener],
        "security_protocol": way.protocol,
    }
    if "SSL" in way.protocol:
        is_trusted = good or way.listener != "SSL"
        context = ssl.create_default_context(cafile=place.file("ca.pem" if is_trusted else "stranger.pem"))
        if way.listener == "MUTUAL":
            context.load_cert_chain(place.file("good.pem" if good else "bad.pem"))
        settings["ssl_context"] = context
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.mechanism in PASSWORDS:
        settings |= {"sasl_plain_username": "alice", "sasl_plain_password": "good" if good else "bad"}
    return settings


def by_kafka_python(place: Place, way: Way, *, good: bool) -> str:
    class Token(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token_of(place, good=good)

    settings = pythons(place, way, good=good)
    if way.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Token()
    networks: list[KafkaNetClient] = []

    def network(**given: Any) -> KafkaNetClient:
        networks.append(KafkaNetClient(**given))
        return networks[-1]

    settings |= {"kafka_client": network, "max_block_ms": 20_000 if good else 500, "bootstrap_timeout_ms": 500}
    try:
        producer = KafkaProducer(**settings)
    except Exception as refused:
        for each in networks:  # a producer that did not come to be leaves the sockets that wake its loop
            each.close()
        return repr(refused)
    try:
        producer.send(TOPIC, b"x").get(20)
    except Exception as refused:
        return repr(refused)
    finally:
        producer.close(1)
    return ""


def by_aiokafka(place: Place, way: Way, *, good: bool) -> str:
    class Token(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token_of(place, good=good)

    async def send() -> str:
        settings = pythons(place, way, good=good)
        if way.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Token()
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"x")
        except Exception as refused:
            return repr(refused)
        finally:
            await producer.stop()
        return ""

    return asyncio.run(asyncio.wait_for(send(), 30))


def by_kcat(place: Place, way: Way, *, good: bool) -> str:
    settings = librdkafkas(place, way, good=good)
    address = settings.pop("bootstrap.servers")
    words = [f"-X{name}={value}" for name, value in settings.items()]
    command = [require("kcat"), "-P", "-b", address, "-t", TOPIC, "-Xmessage.timeout.ms=2000", *words]
    done = subprocess.run(command, input="x\n", capture_output=True, text=True, timeout=30, check=False)
    return "" if done.returncode == 0 else done.stderr


def by_java(place: Place, way: Way, *, good: bool) -> str:
    lines = [f"security.protocol={way.protocol}"]
    if "SSL" in way.protocol:
        is_trusted = good or way.listener != "SSL"
        trust = place.file("ca.pem" if is_trusted else "stranger.pem")
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={trust}"]
    if way.listener == "MUTUAL":
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={place.file('good.pem' if good else 'bad.pem')}"]
    if way.mechanism:
        module = "plain.PlainLoginModule" if way.mechanism == "PLAIN" else "scram.ScramLoginModule"
        password = "good" if good else "bad"
        lines += [
            f"sasl.mechanism={way.mechanism}",
            f'sasl.jaas.config={MODULES}.{module} required username="alice" password="{password}";',
        ]
    config = place.directory / "java.properties"
    config.write_text("\n".join(lines))
    try:
        kafka_tool(
            "TopicCommand",
            "--bootstrap-server",
            place.addresses[way.listener],
            "--command-config",
            str(config),
            "--list",
        )
    except ToolFailedError as refused:
        return str(refused)
    return ""


DO = {
    "confluent-kafka": by_confluent_kafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "kcat": by_kcat,
    "java": by_java,
}
NOT_HERE = {("kcat", "OAUTHBEARER"), ("java", "OAUTHBEARER"), ("kcat", "SCRAM-SHA-256"), ("kcat", "SCRAM-SHA-512")}
"""kcat cannot be given a token, and Debian's has librdkafka 2.0, whose nonce in SCRAM genuine Kafka refuses, too, since
CVE-2024-56128. Java's tools ask a provider for tokens, as brokers do in `test_broker_logins`."""
ROWS = [
    pytest.param(client, way, marks=pytest.mark.soak if way.listener == "SASL_PLAINTEXT" else (), id=f"{client} {way}")
    for client in CLIENTS
    for way in ALL_WAYS
    if (client, way.mechanism) not in NOT_HERE
]


@pytest.mark.parametrize(("client", "way"), ROWS)
def test_good_credentials_are_accepted_and_bad_ones_refused(place: Place, client: str, way: Way) -> None:
    assert DO[client](place, way, good=True) == ""
    assert DO[client](place, way, good=False) != ""
