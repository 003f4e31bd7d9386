"""TLS between a connection and its socket: the handshake in a thread, what follows on the loop (ADR 40).

OpenSSL reads and writes the socket itself. One call encrypts or decrypts one record, which holds 16 KB at most.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from enum import Enum
from typing import Final, cast

from ottla.errors import sentence
from ottla.log.file_region import FileRegion
from ottla.security.principals import ANONYMOUS, UnnamedClient
from ottla.server.transport import Buffer

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long a handshake may take: a client that connects and sends nothing holds its connection no longer."""
RECORD_BYTES: Final = 1 << 14
REGION_STEP_BYTES: Final = 1 << 18
"""What one call of `send_region` reads of a file at most."""

_PLAIN_TEXT: Final = frozenset(("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"))
_DISTRUSTED: Final = frozenset(
    (
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    )
)
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, and ssl.client.auth is required",
    "NO_SHARED_CIPHER": "client and broker have no cipher suite in common (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is not enabled (ssl.enabled.protocols)",
}


class _Step(Enum):
    """What a handshake waits for."""

    READ = "read"
    WRITE = "write"
    DONE = "done"


class TlsTransport:
    """The broker's end of TLS on a non-blocking TCP socket. On the loop's thread."""

    __slots__ = (
        "_deadline",
        "_failed",
        "_is_closed",
        "_is_open",
        "_loop",
        "_name",
        "_ready",
        "_sock",
        "_step",
        "_threads",
        "fd",
        "principal",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        name: Callable[[bytes], str],
    ) -> None:
        """Take `sock` over. `threads` run the handshake: it takes a core for about a millisecond, during which OpenSSL
        releases the interpreter. `name` makes a principal of the client's certificate (DER), which was verified, or
        raises `UnnamedClient`. Raises OSError if the client has gone."""
        self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.fd: Final = self._sock.fileno()
        self._loop = loop
        self._threads = threads
        self._name = name
        self.principal = ANONYMOUS
        self._ready: Callable[[], None] | None = None
        self._failed: Callable[[str], None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._step: asyncio.Future[_Step] | None = None
        self._is_open = False
        self._is_closed = False

    # -- handshake ---------------------------------------------------------------------------------------------------

    def begin(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Shake hands, then call `ready`, or `failed` with the reason why not."""
        self._ready, self._failed = ready, failed
        reason = f"the TLS handshake took longer than {HANDSHAKE_TIMEOUT_S:.0f} s"
        self._deadline = self._loop.call_later(HANDSHAKE_TIMEOUT_S, failed, reason)
        self._loop.add_reader(self.fd, self._begin_step)

    def _begin_step(self) -> None:
        """Go on in a thread; until that ends, nothing else touches the socket."""
        self._stop_waiting()
        self._step = self._loop.run_in_executor(self._threads, _shake_hands, self._sock)
        self._step.add_done_callback(self._end_step)

    def _end_step(self, step: "asyncio.Future[_Step]") -> None:
        self._step = None
        problem = None if step.cancelled() else cast("Exception | None", step.exception())
        if self._is_closed or step.cancelled():
            self._sock.close()
        elif problem is not None:
            if self._failed is not None:
                self._failed(handshake_problem(problem))
        elif step.result() is _Step.DONE:
            self._open()
        elif step.result() is _Step.READ:
            self._loop.add_reader(self.fd, self._begin_step)
        else:
            self._loop.add_writer(self.fd, self._begin_step)

    def _open(self) -> None:
        self._is_open = True
        certificate = self._sock.getpeercert(binary_form=True)
        if certificate is not None:
            try:
                self.principal = self._name(certificate)
            except UnnamedClient as problem:
                if self._failed is not None:
                    self._failed(str(problem))
                return
        if self._deadline is not None:
            self._deadline.cancel()
        ready, self._ready, self._failed = self._ready, None, None
        if ready is not None:
            ready()

    def _stop_waiting(self) -> None:
        self._loop.remove_reader(self.fd)
        self._loop.remove_writer(self.fd)

    # -- bytes -------------------------------------------------------------------------------------------------------

    def receive_into(self, buffers: Sequence[memoryview]) -> int:
        """Fill `buffers` with whole records while they come full: a large request is read in one turn of the loop."""
        received = 0
        for buffer in buffers:
            filled = 0
            while filled < len(buffer):
                try:
                    count = self._sock.recv_into(buffer[filled:])
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    if received + filled:
                        return received + filled
                    raise BlockingIOError from None
                filled += count
                if count < RECORD_BYTES and not self._sock.pending():
                    return received + filled
            received += filled
        return received

    def has_decrypted(self) -> bool:
        """Whether the rest of a record is left, which the system no longer reports."""
        return self._sock.pending() > 0

    def has_unread(self) -> bool:
        """Whether something has come that was not received yet."""
        if self._sock.pending():
            return True
        try:
            return bool(socket.socket.recv(self._sock, 1, socket.MSG_PEEK))
        except OSError:
            return False

    def send(self, buffers: Sequence[Buffer], *, more_follows: bool) -> int:
        """Encrypt and send, small buffers together in one record."""
        sent = 0
        for chunk in _records(buffers):
            count = self._write(chunk, sent)
            sent += count
            if count < len(chunk):
                break
        return sent

    def send_region(self, region: FileRegion, sent: int) -> int:
        """Read, encrypt and send the next part of a file: what encrypts in this process cannot use `sendfile`."""
        chunk = memoryview(region.read(sent, REGION_STEP_BYTES))
        done = 0
        while done < len(chunk):
            part = chunk[done : done + RECORD_BYTES]
            count = self._write(part, done)
            done += count
            if count < len(part):
                break
        return done

    def _write(self, chunk: Buffer, sent_before: int) -> int:
        """How much of a record's bytes were sent. What blocks is to come again, as the beginning of as many bytes or
        more: OpenSSL has encrypted it already."""
        try:
            return self._sock.send(chunk)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if sent_before:
                return 0
            raise BlockingIOError from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise ConnectionResetError("the client has gone") from error

    def close(self) -> None:
        """Say goodbye if there is room for it, and close; a handshake's step under way closes the socket at its end."""
        self._is_closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._ready = self._failed = None
        if self._step is not None:
            return
        if self._is_open:
            with suppress(OSError, ValueError):
                self._sock.unwrap()  # sends close_notify; it does not wait for the client's
        else:
            self._stop_waiting()
        self._sock.close()


def _shake_hands(sock: ssl.SSLSocket) -> _Step:
    """One step, in a thread. Raises OSError."""
    try:
        sock.do_handshake()
    except ssl.SSLWantReadError:
        return _Step.READ
    except ssl.SSLWantWriteError:
        return _Step.WRITE
    return _Step.DONE


def _records(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes in chunks of at most a record; only small buffers are copied."""
    small: list[Buffer] = []
    room = RECORD_BYTES
    for buffer in buffers:
        view = memoryview(buffer)
        while view:
            part = view[:room]
            small.append(part)
            room -= len(part)
            view = view[len(part) :]
            if not room:
                yield small[0] if len(small) == 1 else b"".join(small)
                small, room = [], RECORD_BYTES
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def handshake_problem(problem: Exception) -> str:
    """Why a client gets no connection, for the log of the broker."""
    reason = str(getattr(problem, "reason", "") or "")
    if reason in _PLAIN_TEXT:
        return "the client does not speak TLS (its security.protocol is to be SSL or SASL_SSL)"
    if reason in _DISTRUSTED:
        return "the client does not trust the certificate of this broker"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"the client's certificate is not trusted: {getattr(problem, 'verify_message', 'unknown reason')}"
    if reason in _REASONS:
        return _REASONS[reason]
    if isinstance(problem, ssl.SSLEOFError | ConnectionError):
        return "the client hung up during the TLS handshake"
    text = reason.replace("_", " ").lower() if reason else sentence(problem)
    return f"the TLS handshake failed: {text}"
