"""The bytes of one connection, as its socket takes and gives them, without waiting.

`Connection` knows only this interface: what encrypts stands in the place of `PlainTransport`.
"""

import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.log.file_region import FileRegion
from ottla.security.principals import ANONYMOUS

Buffer = bytes | bytearray | memoryview

MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class Transport(Protocol):
    """One end of a connection. What cannot be done now raises BlockingIOError; a connection that broke, OSError."""

    @property
    def fd(self) -> int:
        """The descriptor whose readiness the loop watches."""
        ...

    principal: str
    """The name that the client has proved by then, `User:<name>`."""

    def begin(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Call `ready` once bytes can be received and sent, or `failed` with the reason why there will be none."""
        ...

    def receive_into(self, buffers: Sequence[memoryview]) -> int:
        """Fill `buffers` in their order with what has come; returns how many bytes, 0 at the end of the stream."""
        ...

    def has_decrypted(self) -> bool:
        """Whether something can be received although the descriptor reports nothing."""
        ...

    def has_unread(self) -> bool:
        """Whether something has come that was not received yet."""
        ...

    def send(self, buffers: Sequence[Buffer], *, more_follows: bool) -> int:
        """Send the beginning of `buffers`; returns how many bytes. `more_follows` may save a small packet."""
        ...

    def send_region(self, region: FileRegion, sent: int) -> int:
        """Send what follows the first `sent` bytes of `region`; returns how many bytes. EOFError if its file has
        become shorter."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    """A non-blocking TCP socket."""

    __slots__ = ("_sock", "fd", "principal")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.principal = ANONYMOUS
        self.fd: Final = sock.fileno()

    def begin(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        ready()

    def receive_into(self, buffers: Sequence[memoryview]) -> int:
        return self._sock.recv_into(buffers[0]) if len(buffers) == 1 else self._sock.recvmsg_into(buffers)[0]

    def has_decrypted(self) -> bool:
        return False

    def has_unread(self) -> bool:
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def send(self, buffers: Sequence[Buffer], *, more_follows: bool) -> int:
        return self._sock.sendmsg(buffers, (), MSG_MORE if more_follows else 0)

    def send_region(self, region: FileRegion, sent: int) -> int:
        return region.send_to(self.fd, sent)

    def close(self) -> None:
        self._sock.close()
