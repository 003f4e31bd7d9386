"""Logins by token (OAUTHBEARER): clients of other projects, bad tokens, keys that change, and providers that fail."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.support.identity_provider import IdentityProvider
from tests.support.logins import accepts
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import ClosedError, RawConnection
from tests.wire.test_sasl import MESSAGES, METADATA, produce_and_consume

from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

PREFIX = "listener.name.outside.oauthbearer."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


@contextmanager
def token_broker(url: str | None, **more: str) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker that accepts the tokens of a provider, and the address where clients log in."""
    broker = OttlaProcess()
    address = f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{PREFIX}sasl.jaas.config": MODULE,
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.expected.audience": "ottla",
            **({} if url is None else {"sasl.oauthbearer.jwks.endpoint.url": url}),
            **more,
        }
    )
    with broker:
        yield broker, address


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture(scope="module")
def running(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OttlaProcess, str]]:
    path = provider.write(tmp_path_factory.mktemp("keys") / "keys.json")
    with token_broker(path.as_uri()) as started:
        yield started


def librdkafka(address: str, token: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3600),
        **more,
    }


def is_accepted(address: str, token: str) -> bool:
    return accepts(lambda heard: AdminClient(librdkafka(address, token, error_cb=heard)))


def authenticate(connection: RawConnection, token: str) -> Any:
    assert connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
    first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return connection.ask(SaslAuthenticateRequest(auth_bytes=first), 2)


def test_clients_of_other_projects_log_in(provider: IdentityProvider, running: tuple[OttlaProcess, str]) -> None:
    broker, address = running
    token = provider.token()
    produce_and_consume(librdkafka(address, token), "librdkafka")

    class Token(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    class AioToken(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token

    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    own = settings | {"sasl_oauth_token_provider": Token()}
    producer = KafkaProducer(**own)
    for message in MESSAGES:
        producer.send("kafka-python", message)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=10_000, **own)
    assert [next(consumer).value for _ in MESSAGES] == MESSAGES
    consumer.close()

    async def with_aiokafka() -> None:
        own = settings | {"sasl_oauth_token_provider": AioToken()}
        async with AIOKafkaProducer(**own) as sending:
            for message in MESSAGES:
                await sending.send("aiokafka", message)
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **own) as receiving:
            assert [(await receiving.getone()).value for _ in MESSAGES] == MESSAGES

    asyncio.run(asyncio.wait_for(with_aiokafka(), 60))
    assert token not in broker.log_text()


def test_bad_tokens_are_refused_and_the_log_has_the_reason(
    provider: IdentityProvider, running: tuple[OttlaProcess, str]
) -> None:
    broker, address = running
    for bad, why in (
        (provider.token(exp=int(time.time()) - 60), "expired"),
        (provider.token(aud="other"), "Audience"),
        (IdentityProvider().token(), "Signature verification failed"),
    ):
        with RawConnection(address) as connection:
            assert authenticate(connection, bad).auth_bytes == b'{"status":"invalid_token"}'
            with pytest.raises(ClosedError):
                connection.ask(METADATA, 9)
        with RawConnection(address) as connection:
            authenticate(connection, bad)
            answer = connection.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == '{"status":"invalid_token"}'
        assert why in broker.log_text()
        assert bad not in broker.log_text()
    assert not is_accepted(address, provider.token(iss="https://other"))


def test_a_login_lasts_as_long_as_its_token(provider: IdentityProvider, running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    with RawConnection(address) as connection:
        answer = authenticate(connection, provider.token(exp=int(time.time()) + 3))
        assert 0 < answer.session_lifetime_ms <= 3000
        assert connection.ask(METADATA, 9).brokers
        time.sleep(answer.session_lifetime_ms / 1000 + 0.1)
        assert 3_590_000 < authenticate(connection, provider.token()).session_lifetime_ms <= 3_600_000
        assert connection.ask(METADATA, 9).brokers
    with RawConnection(address) as connection:
        answer = authenticate(connection, provider.token(exp=int(time.time()) + 2))
        time.sleep(answer.session_lifetime_ms / 1000 + 0.1)
        with pytest.raises(ClosedError):
            connection.ask(METADATA, 9)


class Endpoint:
    """A provider's server over HTTP, whose answers a test sets."""

    def __init__(self, body: str) -> None:
        endpoint = self
        self.body, self.status, self.asked = body, 200, 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.asked += 1
                self.send_response(endpoint.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(endpoint.body.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def __enter__(self) -> "Endpoint":
        Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_keys_are_read_again_when_they_are_old_and_for_unknown_ones_seldom() -> None:
    provider = IdentityProvider()
    with (
        Endpoint(provider.document()) as endpoint,
        token_broker(endpoint.url, **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "500"}) as (_, address),
    ):
        assert is_accepted(address, provider.token())
        provider.add_key("second", elliptic=True)
        endpoint.body = provider.document()
        time.sleep(0.6)
        assert is_accepted(address, provider.token(key_id="second"))
        endpoint.body = '{"keys": []}'  # a provider that fails takes nothing away
        time.sleep(0.6)
        assert is_accepted(address, provider.token(key_id="second"))
    with Endpoint(provider.document()) as endpoint, token_broker(endpoint.url) as (_, address):
        unknown = IdentityProvider()
        unknown.add_key("unknown")
        for _ in range(20):
            with RawConnection(address) as connection:
                assert authenticate(connection, unknown.token(key_id="unknown")).auth_bytes
        assert endpoint.asked == 1


@pytest.mark.parametrize(("status", "body"), [(302, ""), (500, ""), (200, "x" * (2 << 20)), (200, "[[[["), (200, "{}")])
def test_logins_fail_while_the_keys_cannot_be_read_and_succeed_afterwards(status: int, body: str) -> None:
    provider = IdentityProvider()
    with Endpoint(body) as endpoint, token_broker(endpoint.url) as (broker, address):
        endpoint.status = status
        with RawConnection(address) as connection:
            assert authenticate(connection, provider.token()).auth_bytes == b'{"status":"invalid_token"}'
        assert "cannot be read" in broker.log_text()
        endpoint.status, endpoint.body = 200, provider.document()
        assert is_accepted(address, provider.token())


def test_unsigned_tokens_are_accepted_where_that_is_named(tmp_path: Path) -> None:
    import jwt

    now = int(time.time())
    token = jwt.encode({"sub": "alice", "iat": now, "exp": now + 60}, "", "none")
    handler = f"{PREFIX}sasl.server.callback.handler.class"
    package = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    with token_broker(None, **{handler: f"{package}.OAuthBearerUnsecuredValidatorCallbackHandler"}) as (_, address):
        assert is_accepted(address, token)
    with token_broker(IdentityProvider().write(tmp_path / "keys.json").as_uri()) as (_, address):
        assert not is_accepted(address, token)


@pytest.mark.parametrize(
    "url", ["", "http://example.com/keys", "https://user:secret@example.com/", "ftp://example.com/", "file://host/x"]
)
def test_a_broker_does_not_start_without_keys_or_with_ones_that_anybody_could_replace(url: str) -> None:
    from ottla.config.broker import BrokerConfig
    from ottla.config.sasl import sasl_settings
    from ottla.errors import InvalidConfig

    config = BrokerConfig(
        {
            "broker.id": "1",
            "log.dirs": "/tmp/x",
            "listeners": "OUTSIDE://:9092",
            "inter.broker.listener.name": "OUTSIDE",
            "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
        }
    )
    with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url") as refused:
        sasl_settings(config, "OUTSIDE")
    assert "secret" not in str(refused.value)
