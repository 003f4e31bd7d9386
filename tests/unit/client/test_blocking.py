"""The blocking driver against servers in this process: answers, silence, hostile bytes, interruptions, TLS."""

import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.certificates import write_certificate

from ottla.client.addresses import Address, parse_addresses
from ottla.client.blocking import Connection
from ottla.client.errors import AuthenticationFailed, BrokerRefused, BrokerSilent, BrokerUnavailable
from ottla.client.pool import Connections
from ottla.client.security import PLAIN, Security, security_of
from ottla.protocol.api import ApiKey
from ottla.protocol.framing import encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import Message

Serve = Callable[[socket.socket], None]
REQUEST = MetadataRequest(topics=[])


def framed(message: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(bytes(piece) for piece in encode_response(message, version, correlation_id))  # type: ignore[arg-type]


def take(end: socket.socket) -> bytes:
    """One request."""
    frame = b""
    while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
        if not (data := end.recv(1 << 16)):
            break
        frame += data
    return frame


def negotiate(end: socket.socket) -> None:
    take(end)
    keys = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=10)]
    end.sendall(framed(ApiVersionsResponse(api_keys=keys), 4, 1))


def answer(correlation_id: int) -> bytes:
    return framed(MetadataResponse(brokers=[], topics=[], controller_id=correlation_id), 10, correlation_id)


@contextmanager
def server(serve: Serve) -> Iterator[Address]:
    """Where one connection is served by this function, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            end, _ = listener.accept()
            with end:
                serve(end)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1])
        finally:
            thread.join(20)
            assert not thread.is_alive()


def connect(address: Address, timeout_s: float = 5.0, security: Security = PLAIN) -> Connection:
    return Connection(address, client_id="test", timeout_s=timeout_s, security=security, largest_frame_bytes=1 << 20)


def test_requests_may_be_sent_before_answers_are_awaited() -> None:
    def serve(end: socket.socket) -> None:
        negotiate(end)
        take(end)
        end.sendall(answer(2) + answer(3))
        end.recv(1)

    with server(serve) as address, connect(address) as connection:
        for _ in range(2):
            connection.send(REQUEST, connection.version(ApiKey.METADATA))
        assert [connection.receive().controller_id for _ in range(2)] == [2, 3]


def test_a_broker_that_sends_nothing_is_silent_and_one_that_hangs_up_is_gone() -> None:
    def serve(end: socket.socket) -> None:
        negotiate(end)
        end.recv(1 << 16)
        end.recv(1)

    with server(serve) as address, connect(address, 0.3) as connection:
        with pytest.raises(BrokerSilent, match=r"did not answer within 0\.3 s"):
            connection.ask(REQUEST)
        with pytest.raises(BrokerUnavailable, match="was closed"):  # or the late answer would be taken for the next
            connection.ask(REQUEST)
    with server(negotiate) as address, connect(address) as connection, pytest.raises(BrokerUnavailable) as raised:
        connection.ask(REQUEST)
    assert not isinstance(raised.value, BrokerSilent)


def test_several_silent_brokers_take_no_longer_than_one_and_hold_up_no_answer() -> None:
    def silent(end: socket.socket) -> None:
        negotiate(end)
        end.recv(1 << 16)
        end.recv(1)

    def answering(end: socket.socket) -> None:
        negotiate(end)
        take(end)
        end.sendall(answer(2)[:5])
        time.sleep(0.05)
        end.sendall(answer(2)[5:])
        end.recv(1)

    with (
        server(silent) as first,
        server(silent) as second,
        server(answering) as third,
        Connections(lambda address: connect(address, 1.5)) as connections,
    ):
        for address in (first, second, third):
            connections.to(address)
        began = time.monotonic()
        found = connections.ask_each(dict.fromkeys((first, second, third), REQUEST))
        took_s = time.monotonic() - began
        assert list(connections) == [third]
    assert [type(found[address]) for address in (first, second)] == [BrokerSilent, BrokerSilent]
    assert found[third].controller_id == 2
    assert took_s < 2.9, "one timeout of 1.5 s, not two"


def test_an_answer_that_drips_is_not_waited_for_longer_than_one_that_does_not_come() -> None:
    def serve(end: socket.socket) -> None:
        negotiate(end)
        take(end)
        try:
            end.sendall(b"\0\1\0\0")
            while True:
                end.sendall(b"\0")
                time.sleep(0.05)
        except OSError:  # the client has hung up
            pass

    with server(serve) as address, connect(address, 0.5) as connection:
        began = time.monotonic()
        with pytest.raises(BrokerSilent):
            connection.ask(REQUEST)
        assert time.monotonic() - began < 5


def test_a_request_has_its_own_time_to_be_sent_after_an_answer_that_came_late() -> None:
    """The server reads a large request a second later than it might, within the limit of two seconds."""

    def serve(end: socket.socket) -> None:
        negotiate(end)
        take(end)
        time.sleep(1.4)
        end.sendall(answer(2))
        left = 4 + int.from_bytes(end.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL), "big")
        time.sleep(1.0)
        while left and (data := end.recv(min(left, 1 << 20))):
            left -= len(data)
        if not left:
            end.sendall(answer(3))

    large = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 16_000) for _ in range(1_000)])
    with server(serve) as address, connect(address, 2.0) as connection:
        connection.ask(REQUEST)
        assert connection.ask(large).controller_id == 3


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer as a Kafka broker"),
        (b"\x7f\xff\xff\xff", "does not answer as a Kafka broker"),
        (b"\0\0\0\5\0\0", "closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_a_server_that_is_no_broker(reply: bytes, complaint: str) -> None:
    def serve(end: socket.socket) -> None:
        take(end)
        end.sendall(reply)

    with server(serve) as address, pytest.raises(BrokerUnavailable, match=complaint):
        connect(address)


def test_an_interruption_closes_the_connection() -> None:
    """A signal while the answer is awaited, as Ctrl-C is one."""
    ended = threading.Event()

    def serve(end: socket.socket) -> None:
        negotiate(end)
        take(end)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert end.recv(1) == b""
        ended.set()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with server(serve) as address:
            connection = connect(address, 60.0)
            with pytest.raises(KeyboardInterrupt):
                connection.ask(REQUEST)
            assert connection.is_closed
            assert ended.wait(10)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_address_without_a_broker() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(BrokerRefused, match=r"127\.0\.0\.1:\d+ cannot be reached: connection refused"):
            connect(Address("127.0.0.1", port))


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "ä" * 64])
def test_what_cannot_be_the_name_of_a_host_is_a_broker_that_is_not_there(host: str) -> None:
    with pytest.raises(BrokerUnavailable, match="cannot be"):
        connect(Address(host, 9092))


def test_tls(tmp_path: Path) -> None:
    """A broker with a certificate of an authority that is trusted, and without that trust."""
    key, certificate = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(end: socket.socket) -> None:
        try:
            with context.wrap_socket(end, server_side=True) as secured:
                negotiate(secured)
                take(secured)
                secured.sendall(answer(2))
                secured.recv(1)
        except OSError:  # the client hung up
            pass

    trusted = security_of({"security.protocol": "SSL", "ssl.ca.location": str(certificate)})
    with server(serve) as address, connect(address, security=trusted) as connection:
        assert connection.ask(REQUEST).controller_id == 2
    strange = security_of({"security.protocol": "SSL"})
    with server(serve) as address, pytest.raises(AuthenticationFailed, match=r"TLS with .* failed: .*self.signed"):
        connect(address, security=strange)


def test_addresses() -> None:
    assert parse_addresses("a, [::1]:9093,PLAINTEXT://b:1 ,[::2],SSL://c") == [
        ("a", 9092),
        ("::1", 9093),
        ("b", 1),
        ("::2", 9092),
        ("c", 9092),
    ]
    assert parse_addresses("a.b.:1") == [("a.b.", 1)]
    assert [str(each) for each in parse_addresses("[::1],a:1")] == ["[::1]:9092", "a:1"]
    for wrong in ("", ",", "a:0", "a:65536", "a:x", ":9", "a:²", "a..b", ".a", f"{'a' * 64}:1"):
        with pytest.raises(ValueError, match=r"address|no bootstrap"):
            parse_addresses(wrong)
    with pytest.raises(ValueError, match="address"):
        parse_addresses("a", default_port=None)
