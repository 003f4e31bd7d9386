"""TLS under a connection: bytes in both directions, however they are cut, and handshakes that fail."""

import asyncio
import logging
import os
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.certificates import write_certificate

from ottla.log.file_region import FileRegion
from ottla.log.fs import RealFileSystem
from ottla.security.principals import principal_rules
from ottla.server import tls_transport
from ottla.server.connection import Connection, Endpoints
from ottla.server.memory import MemoryBudget
from ottla.server.replies import Piece, ReplySlot
from ottla.server.tls_transport import RECORD_BYTES, TlsTransport
from ottla.server.transport import PlainTransport

MAX_FRAME_BYTES = 16 << 20
TIMEOUT_S = 20.0


@dataclass
class Bench:
    """A connection of a broker on a loop of its own, and what its client knows."""

    address: tuple[str, int]
    client_context: ssl.SSLContext
    loop: asyncio.AbstractEventLoop
    answer: Callable[[bytes], Sequence[Piece]] = lambda body: [framed(body)]
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    frames: list[bytes] = field(default_factory=list)

    def run(self, client: Callable[[ssl.SSLSocket], None]) -> None:
        """Run the client in a thread, with its connection, and the broker's end on the loop."""

        def connect() -> None:
            plain = socket.create_connection(self.address, TIMEOUT_S)
            with self.client_context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                client(secured)

        self.run_plain(connect)

    def run_plain(self, client: Callable[[], None]) -> None:
        async def main() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.to_thread(client)
                await self.closed.wait()

        self.loop.run_until_complete(main())


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def receive(sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = sock.recv(size - len(received))
        assert chunk, f"closed with {size - len(received)} bytes to come"
        received += chunk
    return bytes(received)


def receive_frame(sock: socket.socket) -> bytes:
    return receive(sock, int.from_bytes(receive(sock, 4), "big"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_certificate(tmp_path_factory.mktemp("tls"))


def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    key, chain = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return context


@contextmanager
def bench(certificate: tuple[Path, Path], context: ssl.SSLContext | None = None) -> Iterator[Bench]:
    loop = asyncio.new_event_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    client_context = ssl.create_default_context(cafile=certificate[1])
    made = Bench(listening.getsockname(), client_context, loop)
    opened: list[Connection] = []
    threads = ThreadPoolExecutor(1)

    def handle(frame: memoryview, connection: Connection, slot: ReplySlot) -> None:
        body = bytes(frame)
        made.frames.append(body)
        slot.fill(made.answer(body))

    def accept() -> None:
        sock, _ = listening.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)
        endpoints = Endpoints("SSL", 1, *sock.getpeername(), *sock.getsockname())
        opened.append(
            Connection(
                TlsTransport(sock, context or server_context(certificate), loop, threads, principal_rules("DEFAULT")),
                endpoints,
                loop=loop,
                scratch=memoryview(bytearray(64 << 10)),
                handle_frame=handle,
                max_frame_bytes=MAX_FRAME_BYTES,
                memory=MemoryBudget(loop, limit_bytes=64 << 20, largest_request_bytes=MAX_FRAME_BYTES),
                closed=lambda _: made.closed.set(),
            )
        )

    loop.add_reader(listening.fileno(), accept)
    try:
        yield made
    finally:
        for connection in opened:
            connection.close()
        threads.shutdown()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        listening.close()
        loop.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("seed", range(4))
def test_requests_and_answers_arrive_whole_however_they_are_cut(
    certificate: tuple[Path, Path], seed: int, version: ssl.TLSVersion
) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 100, 5000, RECORD_BYTES, 70_000, 300_000, 3 << 20]) for _ in range(12)]
    bodies = [rng.randbytes(size) for size in sizes]

    def client(sock: ssl.SSLSocket) -> None:
        """Always a part of the next request ahead, as much as the sockets take for certain."""
        data = b"".join(map(framed, bodies))
        end = 0
        answers = []
        for body in bodies:
            end += 4 + len(body)
            wanted = end + rng.choice([0, 1, 3, 5000, 20_000])
            while data and wanted > 0:
                cut = min(rng.choice([1, 3, 1000, 9000, RECORD_BYTES, 100_000, 1 << 20]), wanted)
                sock.sendall(data[:cut])
                data = data[cut:]
                wanted -= cut
                end -= cut
            answers.append(receive_frame(sock))
        assert answers == bodies

    with bench(certificate) as made:
        made.client_context.minimum_version = made.client_context.maximum_version = version
        made.run(client)
        assert made.frames == bodies


def test_what_was_decrypted_and_not_read_is_read_without_another_byte(certificate: tuple[Path, Path]) -> None:
    """Records that do not divide the buffer leave a part of one in OpenSSL, which the system reports no more."""
    bodies = [os.urandom(9973) for _ in range(60)]

    def client(sock: ssl.SSLSocket) -> None:
        for body in bodies:
            sock.sendall(framed(body))
        assert [receive_frame(sock) for _ in bodies] == bodies

    with bench(certificate) as made:
        made.run(client)


def test_parts_of_files_are_encrypted_and_a_slow_client_gets_all_of_them(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    content = os.urandom(5 << 20)
    (tmp_path / "segment").write_bytes(content)
    file = RealFileSystem().open(str(tmp_path / "segment"))
    with bench(certificate) as made:
        descriptor = os.open(tmp_path / "segment", os.O_RDONLY)
        size, position = 4 << 20, 4321

        def answer(body: bytes) -> Sequence[Piece]:
            region = FileRegion(file, descriptor, position, size)
            return [struct.pack(">i", 3 + size + 2), b"abc", region, b"yz"]

        def client(sock: ssl.SSLSocket) -> None:
            sock.sendall(framed(b"first") + framed(b"second"))
            for _ in range(2):
                received = receive_frame(sock)
                assert received == b"abc" + content[position : position + size] + b"yz"

        made.answer = answer
        made.run(client)
        os.close(descriptor)


def test_a_client_without_tls_is_named(certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def client() -> None:
        with socket.create_connection(made.address, TIMEOUT_S) as sock, suppress(ConnectionResetError):
            sock.sendall(framed(b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"))
            while sock.recv(100):
                """OpenSSL answers with an alert."""

    with bench(certificate) as made:
        made.run_plain(client)
    assert "the client does not speak TLS (its security.protocol is to be SSL or SASL_SSL)" in caplog.text
    assert made.frames == []


def test_a_client_without_the_required_certificate_is_named(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context = server_context(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate[1])

    def client(sock: ssl.SSLSocket) -> None:
        with pytest.raises(ssl.SSLError, match=r"certificate required|CERTIFICATE_REQUIRED"):
            sock.recv(1)

    with bench(certificate, context) as made:
        made.run(client)
    assert "the client sent no certificate, and ssl.client.auth is required" in caplog.text


def test_a_client_that_does_not_trust_the_broker_is_named(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def client() -> None:
        with socket.create_connection(made.address, TIMEOUT_S) as sock, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(sock, server_hostname="127.0.0.1")

    with bench(certificate) as made:
        made.run_plain(client)
    assert "the client does not trust the certificate of this broker" in caplog.text


def test_a_client_that_sends_nothing_is_closed_in_time(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.1)

    def client() -> None:
        with socket.create_connection(made.address, TIMEOUT_S) as sock:
            assert sock.recv(1) == b""

    with bench(certificate) as made:
        made.run_plain(client)
    assert "the TLS handshake took longer than" in caplog.text


def test_a_handshake_that_is_given_up_in_its_thread_closes_the_socket_afterwards(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor must not be closed, and given to another connection, while a thread reads from it."""
    stepping, go_on = threading.Event(), threading.Event()

    def slow(sock: ssl.SSLSocket) -> object:
        stepping.set()
        assert go_on.wait(TIMEOUT_S)
        raise ssl.SSLWantReadError

    monkeypatch.setattr(tls_transport, "_shake_hands", slow)
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(1)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport = TlsTransport(theirs, server_context(certificate), loop, threads, principal_rules("DEFAULT"))
    problems: list[str] = []

    async def main() -> None:
        transport.begin(lambda: problems.append("ready"), problems.append)
        ours.sendall(b"hello")
        await asyncio.to_thread(stepping.wait, TIMEOUT_S)
        transport.close()
        assert os.fstat(transport.fd)
        go_on.set()
        await asyncio.to_thread(threads.shutdown)
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(transport.fd)

    loop.run_until_complete(main())
    loop.close()
    ours.close()
    assert problems == []


def test_tls_at_a_listener_without_it_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    closed: list[bool] = []
    Connection(
        PlainTransport(theirs),
        Endpoints("PLAINTEXT", 1, "10.1.1.1", 5, "10.1.1.2", 9092),
        loop=loop,
        scratch=memoryview(bytearray(64 << 10)),
        handle_frame=lambda *_: None,
        max_frame_bytes=100 << 20,
        memory=MemoryBudget(loop, limit_bytes=64 << 20, largest_request_bytes=100 << 20),
        closed=lambda _: closed.append(True),
    )
    ours.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

    async def until_closed() -> None:
        while not closed:
            await asyncio.sleep(0.01)

    loop.run_until_complete(asyncio.wait_for(until_closed(), TIMEOUT_S))
    loop.close()
    ours.close()
    assert "the client speaks TLS, and this listener does not" in caplog.text
