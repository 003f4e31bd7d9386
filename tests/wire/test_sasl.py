"""Listeners whose clients log in: PLAIN and SCRAM, wrong passwords, and clients that do something else first."""

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from tests.support.bystander import bystander
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.logins import accepts
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import ClosedError, RawConnection

from ottla.client.sansio.sasl import Scram
from ottla.cluster.image import ResourceType as Resource
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

MESSAGES = [b"%04d" % number for number in range(200)]
SECRETS = ("wonderland", "looking-glass", "pencil")
LOGINS = [("PLAIN", "alice", "wonderland"), ("SCRAM-SHA-256", "bob", "pencil"), ("SCRAM-SHA-512", "bob", "pencil")]
ASKED = ApiVersionsRequest(client_software_name="test", client_software_version="1")
USER = Resource.USER.value
METADATA = MetadataRequest(topics=None)


@contextmanager
def sasl_broker(protocol: str = "SASL_PLAINTEXT", **more: str) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker with users alice and carol (PLAIN) and bob (SCRAM), and the address where they log in."""
    broker = OttlaProcess()
    address = f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://{address}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,OUTSIDE:{protocol}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.outside.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'user_alice="wonderland" user_carol="looking-glass";'
            ),
            **more,
        }
    )
    with broker:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            set_password(broker, "bob", "pencil", mechanism)
        yield broker, address


def set_password(broker: OttlaProcess, user: str, password: str, mechanism: Any = ScramMechanism.SCRAM_SHA_256) -> None:
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # it has to live until the result is there
    admin.alter_user_scram_credentials([change])[user].result(10)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OttlaProcess, str]]:
    with sasl_broker() as started:
        yield started


def login(address: str, mechanism: str, user: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def produce_and_consume(settings: dict[str, Any], topic: str) -> None:
    producer = Producer(settings)
    for message in MESSAGES:
        producer.produce(topic, message)
    assert producer.flush(30) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(received) < len(MESSAGES) and time.monotonic() < deadline:
        received += [message.value() or b"" for message in consumer.consume(1000, 1.0) if not message.error()]
    consumer.close()
    assert sorted(received) == MESSAGES


def is_accepted(address: str, mechanism: str, user: str, password: str) -> bool:
    """Whether a client that logs in gets an answer."""
    return accepts(lambda heard: AdminClient(login(address, mechanism, user, password, error_cb=heard)))


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_clients_of_other_projects_log_in(
    running: tuple[OttlaProcess, str], mechanism: str, user: str, password: str
) -> None:
    broker, address = running
    produce_and_consume(login(address, mechanism, user, password), f"librdkafka-{mechanism}")
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**settings)
    for message in MESSAGES:
        producer.send(topic, message)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=10_000, **settings)
    assert [next(consumer).value for _ in MESSAGES] == MESSAGES
    consumer.close()

    async def with_aiokafka() -> None:
        topic = f"aiokafka-{mechanism}"
        async with AIOKafkaProducer(**settings) as sending:
            for message in MESSAGES:
                await sending.send(topic, message)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as receiving:
            assert [(await receiving.getone()).value for _ in MESSAGES] == MESSAGES

    asyncio.run(asyncio.wait_for(with_aiokafka(), 60))
    assert not any(secret in broker.log_text() for secret in SECRETS)


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "pencil"),
        ("PLAIN", "bob", "pencil"),
        ("SCRAM-SHA-256", "bob", "Pencil"),
        ("SCRAM-SHA-512", "alice", "wonderland"),
    ],
)
def test_wrong_logins_are_refused(running: tuple[OttlaProcess, str], mechanism: str, user: str, password: str) -> None:
    broker, address = running
    assert not is_accepted(address, mechanism, user, password)
    assert "Authentication failed" in broker.log_text()
    assert not any(secret in broker.log_text().lower() for secret in SECRETS)


def test_changed_and_removed_passwords_hold_for_the_next_login(running: tuple[OttlaProcess, str]) -> None:
    broker, address = running
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    set_password(broker, "dora", "first")
    assert is_accepted(address, "SCRAM-SHA-256", "dora", "first")
    set_password(broker, "dora", "second")
    assert not is_accepted(address, "SCRAM-SHA-256", "dora", "first")
    assert is_accepted(address, "SCRAM-SHA-256", "dora", "second")
    futures: Any = admin.describe_user_scram_credentials(["dora"])
    described = futures["dora"].result(10)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    broker.kill()
    broker.start()
    assert is_accepted(address, "SCRAM-SHA-256", "dora", "second")
    removal = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([removal])["dora"].result(10)
    assert not is_accepted(address, "SCRAM-SHA-256", "dora", "second")
    with pytest.raises(KafkaException, match="does not exist"):
        admin.alter_user_scram_credentials([removal])["dora"].result(10)


def test_no_request_shows_a_secret(running: tuple[OttlaProcess, str]) -> None:
    broker, _ = running
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ResourceType.BROKER, "1")
    (found,) = admin.describe_configs([resource]).values()
    shown = {name: entry.value for name, entry in found.result(10).items()}
    assert not [name for name, value in shown.items() if value and any(secret in value for secret in SECRETS)]
    with RawConnection(broker.bootstrap) as connection:
        asked = DescribeConfigsResource(resource_type=USER, resource_name="bob", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        (result,) = connection.ask(request, 4).results
        assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])
        edit = AlterableConfig(name="SCRAM-SHA-256", config_operation=0, value="salt=")
        altered = AlterConfigsResource(resource_type=USER, resource_name="bob", configs=[edit])
        answer = connection.ask(IncrementalAlterConfigsRequest(resources=[altered], validate_only=False), 1)
        assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_nothing_else_is_served_before(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    with RawConnection(address) as connection:
        assert connection.ask(ASKED, 4).error_code == 0
        with pytest.raises(ClosedError):
            connection.ask(METADATA, 9)
    with RawConnection(address) as connection:
        answer = connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(ClosedError):
            connection.ask(ASKED, 4)
    with RawConnection(address) as connection:
        for _ in range(32):
            connection.ask(ASKED, 4)
        with pytest.raises(ClosedError):
            connection.ask(ASKED, 4)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(struct.pack(">i", 600_000))
        assert sock.recv(1) == b""


def frame(api_key: int, version: int, body: bytes, tags: bytes = b"\0") -> bytes:
    """A request with a flexible header."""
    content = struct.pack(">hhih", api_key, version, 1, 0) + tags + body
    return struct.pack(">i", len(content)) + content


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes((number & 127 | 128,))
        number >>= 7
    return out + bytes((number,))


MOST = 520_000
"""Bytes of a body, within sasl.server.max.receive.size."""
TAGS = MOST // 4
MANY_TAGS = varint(TAGS) + b"".join(varint(100 + number) + b"\0" for number in range(TAGS))[: MOST - 5]
HOSTILE_FRAMES = [
    frame(18, 4, b"", varint(1 << 31)),
    frame(18, 4, b"", MANY_TAGS),
    frame(18, 4, varint(MOST) + b"a" * (MOST - 10) + b"\2b\0"),
    frame(18, 4, b"\2a\2b" + MANY_TAGS),
    frame(18, 4, varint(1 << 34)),
    frame(18, 4, b"\xff" * 1000),
    frame(36, 2, varint(1 << 31) + b"x"),
    frame(36, 2, varint(MOST - 20) + bytes(MOST - 21) + b"\0"),
    frame(36, 2, b"\1" + MANY_TAGS),
    struct.pack(">ihhih", 10 + 2 + MOST, 17, 1, 1, 0) + struct.pack(">h", 32_767) + b"x" * MOST,
    struct.pack(">ihhih", 12, 17, 1, 1, -1) + struct.pack(">h", -1),
    struct.pack(">ihhi", 8, 32_767, 32_767, 1),
]


def test_hostile_frames_before_a_login_delay_nobody(running: tuple[OttlaProcess, str]) -> None:
    """Each on many connections at once; the best of three, as in test_dear_requests."""
    broker, address = running
    host, _, port = address.rpartition(":")
    seen = []
    with bystander(broker) as other:
        for _ in range(3):
            for each in HOSTILE_FRAMES:
                with ExitStack() as opened:
                    socks = [opened.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(10)]
                    for sock in socks:
                        with suppress(OSError):
                            sock.sendall(each)
                        with suppress(OSError):
                            sock.shutdown(socket.SHUT_WR)
                    for sock in socks:
                        with suppress(ConnectionResetError):
                            while sock.recv(65536):
                                pass
            seen.append(other.lap())
    assert min(each.worst_s for each in seen) < 0.05, [str(each) for each in seen]
    assert seen[-1].memory_peak_bytes - seen[0].memory_before_bytes < 100 << 20, [str(each) for each in seen]
    with RawConnection(address) as connection:
        assert connection.ask(ASKED, 4).error_code == 0


def test_bare_tokens_follow_the_first_version_of_the_handshake(running: tuple[OttlaProcess, str]) -> None:
    _, address = running
    with RawConnection(address) as connection:
        assert connection.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code == 0
        client = Scram("SCRAM-SHA-256", "bob", "pencil", "nonce")
        token = client.respond(None)
        while token is not None:
            token = client.respond(connection.exchange_bytes(token))
        assert connection.ask(METADATA, 9).brokers
    with RawConnection(address) as connection:
        assert connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        with pytest.raises(ClosedError):
            connection.exchange_bytes(b"\0alice\0wrong")


def test_a_listener_without_sasl_refuses_a_login(running: tuple[OttlaProcess, str]) -> None:
    broker, _ = running
    with RawConnection(broker.bootstrap) as connection:
        assert connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=b""), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.ask(METADATA, 9).brokers


def test_a_login_ends_and_is_renewed_by_its_own_user_only() -> None:
    with sasl_broker(**{"listener.name.outside.plain.connections.max.reauth.ms": "1500"}) as (_, address):

        def authenticate(connection: RawConnection, user: str, password: str) -> Any:
            assert connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            return connection.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)

        with RawConnection(address) as connection:
            answer = authenticate(connection, "alice", "wonderland")
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 1500)
            assert connection.ask(METADATA, 9).brokers
            time.sleep(1.6)
            assert authenticate(connection, "alice", "wonderland").error_code == 0
            assert connection.ask(METADATA, 9).brokers
            answer = authenticate(connection, "carol", "looking-glass")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "Cannot change principals" in answer.error_message
        with RawConnection(address) as connection:
            authenticate(connection, "alice", "wonderland")
            time.sleep(1.6)
            with pytest.raises(ClosedError):
                connection.ask(METADATA, 9)
        # librdkafka and kafka-python do not renew a login: they connect again
        producer = Producer(login(address, "PLAIN", "alice", "wonderland"))
        for number in range(20):
            producer.produce("renewed", b"%d" % number)
            producer.poll(0.2)
        assert producer.flush(30) == 0


def test_passwords_travel_encrypted_with_sasl_ssl(tmp_path: Path) -> None:
    authority = Authority()
    ca = authority.write(tmp_path / "ca.pem")
    store = authority.issue("broker").write_pem(tmp_path / "broker.pem")
    with sasl_broker("SASL_SSL", **{"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}) as (_, address):
        for mechanism, user, password in LOGINS:
            settings = login(address, mechanism, user, password)
            settings |= {"security.protocol": "SASL_SSL", "ssl.ca.location": str(ca)}
            produce_and_consume(settings, f"encrypted-{mechanism}")


def test_users_of_the_properties_file_can_be_changed_while_it_runs() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    with sasl_broker() as (broker, address):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def change(value: str) -> Any:
            name = "listener.name.outside.plain.sasl.jaas.config"
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            (changed,) = admin.incremental_alter_configs([resource]).values()
            return changed

        change(f'{module} user_eve="pencil";').result(10)
        eventually(lambda: is_accepted(address, "PLAIN", "eve", "pencil"))
        assert not is_accepted(address, "PLAIN", "alice", "wonderland")
        with pytest.raises(KafkaException, match="a quotation mark is not closed"):
            change(f'{module} user_eve="x').result(10)
        assert is_accepted(address, "PLAIN", "eve", "pencil")


def test_the_first_users_are_there_before_anybody_logs_in() -> None:
    users = "SCRAM-SHA-512=[name=admin,password=wonder,land=],SCRAM-SHA-256=[password=x,name=bob]"
    broker = OttlaProcess()
    address = f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://{address}",  # the first one is for the probe
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "initial.scram.users": users,
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="admin" password="wonder,land=";'
            ),
        }
    )
    with broker:
        assert is_accepted(address, "SCRAM-SHA-512", "admin", "wonder,land=")
        admin = AdminClient(login(address, "SCRAM-SHA-512", "admin", "wonder,land="))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("admin", info, b"changed")
        admin.alter_user_scram_credentials([change])["admin"].result(10)
        broker.kill()
        broker.start()
        assert is_accepted(address, "SCRAM-SHA-512", "admin", "changed")
        assert not is_accepted(address, "SCRAM-SHA-512", "admin", "wonder,land=")
        assert "wonder" not in broker.log_text()
